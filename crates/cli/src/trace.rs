//! `braid trace record`: takes what the daemon records and writes it to a file
//! of whoever asks.

mod output;

use crate::args::TraceRecordArgs;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{locate, table};
use braid_daemon::units::{parse_duration, parse_size, show_size};
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{Reply, Request, TraceBegun, TraceRequest};
use braid_ipc::{Breaker, Client};
use output::Output;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Why a recording ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum End {
    Interrupted,
    Duration,
    Size,
    /// By somebody else, through the control socket.
    Stopped,
    Unmounted,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::Duration => "duration",
            Self::Size => "size",
            Self::Stopped => "stopped",
            Self::Unmounted => "unmounted",
        }
    }
}

/// What was recorded.
#[derive(Serialize)]
struct Summary {
    file: String,
    ops: u64,
    dropped: u64,
    passthrough_opens: u64,
    seconds: f64,
    bytes: u64,
    ended: End,
}

pub(crate) fn record(args: &TraceRecordArgs) -> Result<()> {
    let duration = args.duration.as_deref().map(duration).transpose()?;
    let limit = args.size.as_deref().map(size).transpose()?;
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let mut daemon = locate::need_daemon(&mount)?;
    output::check_place(&args.output, &mount)?;
    // Signals are noticed before there is anything that they would break off.
    let (ender, ends) = sync_channel(2);
    watch_signals(ender.clone())?;
    let mut output = Output::create(&args.output, limit)?;
    let begun = begin(&mut daemon, args).inspect_err(|_| output.remove())?;
    output.put(&begun.head)?;
    let asked = Arc::new(OnceLock::new());
    let breaker =
        daemon.breaker().map_err(|error| Failure::new(format!("no connection is left: {error}")))?;
    let stopper = Stopper { mount: mount.clone(), id: begun.id, asked: Arc::clone(&asked), breaker };
    let _ = std::thread::Builder::new()
        .name("end".into())
        .spawn(move || stopper.run(&ends, duration))
        .map_err(|error| Failure::new(format!("no thread can be started: {error}")))?;
    eprintln!("braid: recording {} into {}; Ctrl-C ends it", mount.point.display(), args.output.display());
    let mut taken = Taken::default();
    let by_daemon = taken.all(&mut daemon, &mut output, (&ender, &asked))?;
    let ended = asked.get().copied().unwrap_or(by_daemon);
    output.end(taken.age_ns, taken.ops, taken.dropped, ended.name())?;
    tell(args, &output, &taken, ended)
}

fn begin(daemon: &mut Client, args: &TraceRecordArgs) -> Result<TraceBegun> {
    let request = Request::RecordTrace(TraceRequest { path: args.path.clone() });
    locate::ask(daemon, &request, |reply| match reply {
        Reply::TraceBegun(begun) => Some(begun),
        _ => None,
    })
}

/// What came so far.
#[derive(Default)]
struct Taken {
    ops: u64,
    dropped: u64,
    passthrough_opens: u64,
    age_ns: u64,
}

impl Taken {
    /// Takes all lines until the recording has ended; answers why, as far as
    /// the daemon knows.
    fn all(
        &mut self,
        daemon: &mut Client,
        output: &mut Output,
        (ender, asked): (&SyncSender<End>, &OnceLock<End>),
    ) -> Result<End> {
        let mut progress = Progress::new();
        loop {
            match daemon.receive() {
                Ok(Reply::TraceLines(lines)) => {
                    // What the file has no room for was not recorded.
                    if !output.is_full() {
                        self.ops += output.write(&lines)?;
                        self.dropped += lines.dropped;
                        self.passthrough_opens += lines.passthrough_opens;
                        self.age_ns = lines.age_ns;
                    }
                    if output.is_full() {
                        // If there are others, it ends anyway.
                        let _ = ender.try_send(End::Size);
                    }
                    progress.show(&self.line(output.bytes()));
                }
                Ok(Reply::TraceEnded(ended)) => {
                    if !output.is_full() {
                        self.age_ns = ended.age_ns;
                    }
                    return Ok(if ended.unmounted { End::Unmounted } else { End::Stopped });
                }
                Ok(_) => return Err(Failure::new("the daemon answered something else")),
                Err(error) => {
                    // The daemon could not be asked to end it, and was hung up.
                    let asked = asked.get().copied();
                    return asked.ok_or_else(|| broken_off(output, self.ops, &error.to_string()));
                }
            }
        }
    }

    fn line(&self, bytes: u64) -> String {
        let (ops, seconds) = (self.ops, self.age_ns / 1_000_000_000);
        let dropped = if self.dropped > 0 { format!(", {} dropped", self.dropped) } else { String::new() };
        format!("{seconds} s: {ops} operations, {}{dropped}", show_size(bytes))
    }
}

fn broken_off(output: &Output, ops: u64, why: &str) -> Failure {
    Failure::new(format!(
        "the recording was broken off: {why}\n  help: the daemon is gone, or this command was stopped for more than ten seconds; \
         {} is good up to its last line, with {ops} operations",
        output.path().display()
    ))
}

/// Ends the recording when it is time.
struct Stopper {
    mount: Mount,
    id: u64,
    /// Why it ended.
    asked: Arc<OnceLock<End>>,
    /// Of the connection that the recording comes through.
    breaker: Breaker,
}

impl Stopper {
    fn run(&self, ends: &Receiver<End>, duration: Option<Duration>) {
        let end = match duration {
            None => ends.recv().ok(),
            Some(duration) => match ends.recv_timeout(duration) {
                Ok(end) => Some(end),
                Err(RecvTimeoutError::Timeout) => Some(End::Duration),
                Err(RecvTimeoutError::Disconnected) => None,
            },
        };
        let Some(end) = end else { return };
        let _ = self.asked.set(end);
        let stopped = locate::need_daemon(&self.mount).and_then(|mut daemon| {
            locate::ask(&mut daemon, &Request::StopTrace { id: self.id }, |reply| {
                matches!(reply, Reply::Done(_)).then_some(())
            })
        });
        if stopped.is_err() {
            // It ends when nobody takes it any more.
            self.breaker.hang_up();
        }
    }
}

/// The first signal ends the recording, the second this command.
fn watch_signals(ender: SyncSender<End>) -> Result<()> {
    let watch = || {
        // Not SIGHUP: `nohup` has it ignored, and without the command the
        // recording ends too.
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                // Where nobody takes it, the recording is ending already.
                let _ = ender.try_send(End::Interrupted);
                if count > 0 {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        })
    };
    watch().map(drop).map_err(|error| Failure::new(format!("signals can't be watched: {error}")))
}

fn tell(args: &TraceRecordArgs, output: &Output, taken: &Taken, ended: End) -> Result<()> {
    let summary = Summary {
        file: args.output.display().to_string(),
        ops: taken.ops,
        dropped: taken.dropped,
        passthrough_opens: taken.passthrough_opens,
        seconds: taken.age_ns as f64 / 1e9,
        bytes: output.bytes(),
        ended,
    };
    if args.json {
        return table::print_json(&summary);
    }
    let Summary { file, ops, dropped, passthrough_opens, seconds, bytes, .. } = summary;
    let ended = ended.name();
    let mut text = format!("{file}: {ops} operations in {seconds:.1} s, {} ({ended})\n", show_size(bytes));
    if dropped > 0 {
        text.push_str(&format!(
            "{dropped} more came too fast to be recorded; --path would leave others out\n"
        ));
    }
    if passthrough_opens > 0 {
        text.push_str(&format!(
            "{passthrough_opens} opens were by passthrough: what was read so is not in it; mount with --no-passthrough to have it\n"
        ));
    }
    table::print(&text)
}

fn duration(text: &str) -> Result<Duration> {
    let refuse =
        |why: &str| Failure::usage(format!("--duration {text}: not a duration\n  help: {why}, such as 90s"));
    match parse_duration(text) {
        Ok(0) => Err(refuse("write more than 0")),
        Ok(nanos) => Ok(Duration::from_nanos(nanos)),
        Err(why) => Err(refuse(&why)),
    }
}

fn size(text: &str) -> Result<u64> {
    let refuse = |why: &str| Failure::usage(format!("--size {text}: can't be used\n  help: {why}"));
    match parse_size(text) {
        Ok(size) if size < output::SIZE_MIN => Err(refuse(&format!("write at least {}", output::SIZE_MIN))),
        Ok(size) => Ok(size),
        Err(why) => Err(refuse(&why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_durations_and_sizes() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(size("1MiB").unwrap(), 1 << 20);
        for bad in ["0s", "90", "soon"] {
            assert!(duration(bad).unwrap_err().is_usage(), "{bad}");
        }
        for bad in ["0", "4095", "much"] {
            assert!(size(bad).unwrap_err().is_usage(), "{bad}");
        }
    }
}
