//! `braid trace record`: receives the daemon's recording and writes it to a
//! file of the caller.

mod output;

use crate::args::TraceRecordArgs;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{locate, table};
use braid_contract::units::{parse_duration, parse_size, show_size};
use braid_contract::{Shown, counted};
use braid_ipc::protocol::{Reply, Request, TraceBegun, TraceRequest};
use braid_ipc::{Breaker, Client, ClientError};
use output::Output;
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Why a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum End {
    Interrupted,
    Duration,
    Size,
    /// On another request through the control socket.
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

/// The totals of the recording.
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
    // Signals are handled before there is a recording to interrupt.
    let (ender, ends) = sync_channel(2);
    watch_signals(ender.clone())?;
    let mut output = Output::create(&args.output, limit)?;
    let begun = begin(&mut daemon, args).inspect_err(|_| output.remove())?;
    output.put(&begun.head)?;
    let (asked, place) = (Arc::new(OnceLock::new()), mount.clone());
    let breaker =
        daemon.breaker().map_err(|error| Failure::new(format!("no connection is left: {error}")))?;
    let request = Request::StopTrace { id: begun.id };
    let stop = move || {
        let mut daemon = locate::need_daemon(&place)?;
        locate::ask(&mut daemon, &request, |reply| matches!(reply, Reply::Done(_)).then_some(()))
    };
    let stopper = Stopper { stop, asked: Arc::clone(&asked), breaker };
    let _ = std::thread::Builder::new()
        .name("end".into())
        .spawn(move || stopper.run(&ends, duration))
        .map_err(|error| Failure::new(format!("no thread can be started: {error}")))?;
    eprintln!("braid: recording {} into {}; Ctrl-C ends it", mount.point.shown(), args.output.shown());
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

/// The part received so far.
#[derive(Default)]
struct Taken {
    ops: u64,
    dropped: u64,
    passthrough_opens: u64,
    age_ns: u64,
}

impl Taken {
    /// Receives all lines until the recording has ended; answers why, as far as
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
                    // Operations without room in the file count as not
                    // recorded.
                    if !output.is_full() {
                        self.ops += output.write(&lines)?;
                        self.dropped += lines.dropped;
                        self.passthrough_opens += lines.passthrough_opens;
                        self.age_ns = lines.age_ns;
                    }
                    if output.is_full() {
                        // If there are more, it ends anyway.
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
                // Nothing is missing that would have fitted.
                Err(_) if output.is_full() => return Ok(End::Size),
                Err(error) => return Err(broken_off(output, self.ops, asked.get().is_some(), &error)),
            }
        }
    }

    fn line(&self, bytes: u64) -> String {
        let (ops, seconds) = (self.ops, self.age_ns / 1_000_000_000);
        let dropped = if self.dropped > 0 { format!(", {} dropped", self.dropped) } else { String::new() };
        format!("{seconds} s: {}, {}{dropped}", counted(ops, "operation"), show_size(bytes))
    }
}

/// The recording ended, but not all of it arrived; `ending` if this command was
/// about to end it.
fn broken_off(output: &Output, ops: u64, ending: bool, why: &ClientError) -> Failure {
    let (when, cause) = match ending {
        true => (" when it was to end", "the daemon is gone, or could not be asked to end it"),
        false => ("", "the daemon is gone, or this command was stopped for more than ten seconds"),
    };
    Failure::new(format!(
        "the recording was broken off{when}: {why}\n  help: {cause}; what was not fetched by then is missing, \
         and {} is good up to its last line, with {}",
        output.path().shown(),
        counted(ops, "operation")
    ))
}

/// Ends the recording.
struct Stopper<S> {
    /// Requests the end from the daemon.
    stop: S,
    /// The reason for the end.
    asked: Arc<OnceLock<End>>,
    /// Breaks the connection of the recording.
    breaker: Breaker,
}

impl<S: FnOnce() -> Result<()>> Stopper<S> {
    fn run(self, ends: &Receiver<End>, duration: Option<Duration>) {
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
        // If it is not under way it is ending already, and the rest arrives.
        let is_ending = |failure: &Failure| failure.errno() == Some(Errno::NOENT.raw_os_error());
        if (self.stop)().is_err_and(|failure| !is_ending(&failure)) {
            // It ends when its reader is gone.
            self.breaker.hang_up();
        }
    }
}

/// Makes the first signal end the recording, and the second this command.
fn watch_signals(ender: SyncSender<End>) -> Result<()> {
    let watch = || {
        // Not SIGHUP: `nohup` ignores it, and the recording ends with the
        // command anyway.
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                // Without a receiver, the recording is ending already.
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
        file: args.output.to_string_lossy().into_owned(),
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
    let Summary { ops, dropped, passthrough_opens, seconds, bytes, .. } = summary;
    let (file, ended) = (args.output.shown(), ended.name());
    let mut text =
        format!("{file}: {} in {seconds:.1} s, {} ({ended})\n", counted(ops, "operation"), show_size(bytes));
    if dropped > 0 {
        text.push_str(&format!(
            "{dropped} more not recorded: they came too fast, or there were too many files; --path would leave others out\n"
        ));
    }
    if passthrough_opens > 0 {
        text.push_str(&format!(
            "{} by passthrough, whose I/O is not in it; mount with --cache direct to have it\n",
            counted(passthrough_opens, "open")
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
    use braid_ipc::protocol::{ErrorReply, PROTOCOL};
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_ending_already_is_heard_out_and_what_can_not_be_ended_is_hung_up() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        for (errno, heard) in [
            (Some(Errno::NOENT.raw_os_error()), true),
            (Some(Errno::IO.raw_os_error()), false),
            (None, false),
        ] {
            let owner = rustix::process::geteuid().as_raw();
            let mut client = Client::connect(&dir.path().join("s"), owner).unwrap();
            let (mut daemon, _) = listener.accept().unwrap();
            let refused = ClientError::Refused(ErrorReply { errno, message: "no".into() });
            let stop = move || Err(Failure::of_client(&refused));
            let asked = Arc::new(OnceLock::new());
            let stopper = Stopper { stop, asked: Arc::clone(&asked), breaker: client.breaker().unwrap() };
            let (ender, ends) = sync_channel(1);
            ender.send(End::Interrupted).unwrap();
            stopper.run(&ends, None);
            assert_eq!(asked.get(), Some(&End::Interrupted));
            let _ = daemon.write_all(format!("{{\"protocol\":{PROTOCOL},\"done\":{{}}}}\n").as_bytes());
            assert_eq!(client.receive().is_ok(), heard, "{errno:?}");
        }
    }

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
