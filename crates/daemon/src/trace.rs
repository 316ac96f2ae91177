//! Recording a mounted file system, for the control socket, and reading the recorded
//! trace.

use crate::refusal::{Place, Refusal};
use braid_contract::{Errno, RefusalKind};
use braid_ipc::protocol::{ErrorReply, Reply, TraceBegun, TraceEnded, TraceLines, TraceRequest};
use braid_modules::trace::{Trace as Recorder, Traced};
use braid_placement::TraceError;
pub use braid_placement::{Trace, end_line};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Duration;

/// How long lines may wait to be sent, and a client may get nothing.
const PATIENCE: Duration = Duration::from_millis(200);

/// Records until the recording is ended, or the client or the mount is gone.
pub(crate) fn record(
    recorder: &Recorder,
    traced: Traced,
    request: &TraceRequest,
    tell: &mut dyn FnMut(Reply) -> io::Result<()>,
) -> Result<(), ErrorReply> {
    let started = recorder.start_recording(traced, request.path.as_deref());
    let mut recording = started.map_err(|error| {
        let busy = error.refusal() == Some(RefusalKind::Busy);
        let mut refused = ErrorReply::from(error);
        if busy {
            refused
                .message
                .push_str("\n  help: end the `braid trace record` that does it with Ctrl-C, or wait for it");
        }
        refused
    })?;
    let mut tell = |reply| tell(reply).map_err(|error| ErrorReply::new(error.to_string()));
    tell(Reply::TraceBegun(TraceBegun { id: recording.number(), head: recording.head().to_owned() }))?;
    while let Some(recorded) = recording.next(PATIENCE) {
        tell(Reply::TraceLines(TraceLines {
            lines: recorded.lines,
            ops: recorded.ops,
            dropped: recorded.dropped,
            passthrough_opens: recorded.passthrough_opens,
            age_ns: recording.age_ns(),
        }))?;
    }
    tell(Reply::TraceEnded(TraceEnded { age_ns: recording.age_ns(), unmounted: recording.is_cut_off() }))
}

/// Ends a recording.
pub(crate) fn stop(recorder: &Recorder, id: u64) -> Result<(), ErrorReply> {
    match recorder.stop_recording(id) {
        true => Ok(()),
        false => Err(ErrorReply {
            errno: Some(Errno::ENOENT.0),
            message: format!("there is no recording {id} under way"),
        }),
    }
}

/// Reads the trace at `path`.
///
/// # Errors
/// If it can't be read, or its first error: with file and line.
pub fn load(path: &Path) -> Result<Trace, Refusal> {
    const ADVICE: &str = "a trace is recorded by: braid trace record MOUNTPOINT";
    let place = Place::file(&path.to_string_lossy());
    let read = File::open(path).map_err(TraceError::Io).and_then(|file| Trace::read(BufReader::new(file)));
    let trace = read.map_err(|error| match error {
        TraceError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            place.refuse("there is no such file", ADVICE)
        }
        TraceError::Line { line, found } => {
            place.at_line(line).refuse(found, "the file was damaged, or changed by hand; record it again")
        }
        TraceError::Newer(_) => place.refuse(error.to_string(), "use a newer Braid"),
        error => place.refuse(error.to_string(), ADVICE),
    })?;
    if trace.ops.is_empty() {
        return Err(place.refuse("no operation was recorded in it", "record while something is done"));
    }
    Ok(trace)
}
