//! The file of a trace, which has whole lines in any case.

use crate::failure::{Failure, Result};
use braid_contract::{Shown, tame_json};
use braid_daemon::trace::end_line;
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::TraceLines;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Least limit of a file; a smaller one has room for nothing.
pub(super) const SIZE_MIN: u64 = 4096;
/// Most bytes of the last line.
const END_BYTES: u64 = 256;

/// A trace that is being written.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    bytes: u64,
    limit: u64,
    full: bool,
}

/// Refuses a file in the recorded volume: each line written there would cause
/// another.
pub(super) fn check_place(path: &Path, mount: &Mount) -> Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = std::fs::metadata(dir).map_err(|error| refused(path, &error.to_string()))?;
    if found.dev() == mount.dev {
        return Err(Failure::new(format!(
            "{}: it is in the volume that is to be recorded, and would be recorded itself\n  \
             help: name a file elsewhere: --output /tmp/braid.trace",
            path.shown()
        )));
    }
    Ok(())
}

impl Output {
    /// Creates the file, readable by its owner only since it has the names of
    /// all files, with a limit in bytes.
    pub(super) fn create(path: &Path, limit: Option<u64>) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::new(format!(
                "{}: there is such a file already\n  help: remove it, or name another one: --output FILE",
                path.shown()
            )),
            _ => refused(path, &error.to_string()),
        })?;
        let limit = limit.unwrap_or(u64::MAX);
        Ok(Self { path: path.to_owned(), file, bytes: 0, limit, full: false })
    }

    /// Removes the file: nothing was recorded.
    pub(super) fn remove(&self) {
        // A leftover empty file does no harm.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Writes lines, as many as fit; answers the number of operations in them.
    pub(super) fn write(&mut self, lines: &TraceLines) -> Result<u64> {
        let room = self.limit.saturating_sub(self.bytes + END_BYTES);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let text = tame_json(&lines.lines);
        if text.len() <= room {
            self.put(&text)?;
            return Ok(lines.ops);
        }
        self.full = true;
        let whole = text.as_bytes()[..room].iter().rposition(|byte| *byte == b'\n');
        let some = &text[..whole.map_or(0, |at| at + 1)];
        self.put(some)?;
        let is_op = |line: &&str| {
            !["file", "dropped"].iter().any(|op| line.starts_with(&format!("{{\"op\":\"{op}\"")))
        };
        Ok(some.lines().filter(is_op).count() as u64)
    }

    /// Writes the last line.
    pub(super) fn end(&mut self, age_ns: u64, ops: u64, dropped: u64, why: &str) -> Result<()> {
        self.put(&end_line(age_ns, ops, dropped, why))
    }

    /// Whether the limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes whole lines, as many as fit.
    pub(super) fn put(&mut self, lines: &str) -> Result<()> {
        let mut left = lines.as_bytes();
        let mut failed = None;
        while !left.is_empty() && failed.is_none() {
            match self.file.write(left) {
                Ok(0) => failed = Some(std::io::Error::from(ErrorKind::WriteZero)),
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => failed = Some(error),
            }
        }
        let Some(error) = failed else {
            self.bytes += lines.len() as u64;
            return Ok(());
        };
        let written = &lines.as_bytes()[..lines.len() - left.len()];
        let whole = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.bytes += whole as u64;
        // Removes half a line. If that fails too, readers skip it.
        let _ = self.file.set_len(self.bytes);
        Err(Failure::new(format!(
            "{}: can't be written: {error}\n  help: it is good up to its last line; make room and record again",
            self.path.shown()
        )))
    }
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(format!(
        "{}: can't be written: {why}\n  help: name another file: --output FILE",
        path.shown()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_full_ends_with_a_whole_line_and_what_it_tells_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let mut output = Output::create(&path, Some(SIZE_MIN)).unwrap();
        output.put("head\n").unwrap();
        let op = format!("{{\"op\":\"read\"{}}}\n", " ".repeat(500));
        let file = "{\"op\":\"file\"}\n";
        let lines = |count: usize| TraceLines {
            lines: file.to_owned() + &op.repeat(count),
            ops: count as u64,
            ..TraceLines::default()
        };
        assert_eq!(output.write(&lines(2)).unwrap(), 2);
        assert!(!output.is_full());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(output.write(&lines(20)).unwrap(), 5);
        assert!(output.is_full());
        output.end(1, 7, 0, "size").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() as u64 <= SIZE_MIN && text.len() as u64 == output.bytes(), "{}", text.len());
        assert_eq!(text.lines().filter(|line| line.starts_with("{\"op\":\"read\"")).count(), 7);
        assert!(text.ends_with("\"why\":\"size\"}\n"), "{text}");
        let again = Output::create(&path, None).unwrap_err().to_string();
        assert!(again.contains("there is such a file already"), "{again}");
    }
}
