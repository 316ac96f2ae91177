//! Parses a trace, and refuses other input.

use super::record::{Header, LineKind, Record, TRACE_VERSION, TraceOpKind, VersionOnly};
use braid_format::RangeSize;
use braid_format::SIZE_MAX;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};

/// Longest line of a trace: paths have at most 4096 bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Longest read or write, in bytes: a copy within the volume is one of each,
/// with at most that length.
const IO_BYTES_MAX: u64 = 1 << 32;
/// Most bytes of a reservation that are used: each range of it is simulated.
const RESERVED_BYTES_MAX: u64 = 1 << 42;
/// Longest file, in bytes: offsets are signed.
const END_MAX: u64 = i64::MAX.cast_unsigned();
/// Longest recording, in nanoseconds: each epoch of it is simulated.
const AGE_NS_MAX: u64 = 366 * 24 * 3600 * 1_000_000_000;

/// A trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Range size of the recorded volume.
    pub range_size: RangeSize,
    /// Descriptions of files. A file that was opened several times may have
    /// several.
    pub files: Vec<TraceFile>,
    /// The operations, in the order in which they ended.
    pub ops: Vec<TraceOp>,
    /// Operations that were not recorded.
    pub dropped: u64,
    /// Opens whose reads the kernel did itself, and which are missing here.
    pub passthrough_opens: u64,
    /// Whether the last line exists: the recording was not broken off.
    pub complete: bool,
}

/// Facts about a file at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceFile {
    /// Inode number. Another file may have had it before.
    pub number: u64,
    /// Path below the volume's root.
    pub path: String,
    /// User who owns it.
    pub uid: u32,
    /// Its size then, in bytes.
    pub size: u64,
    /// That time, in nanoseconds since the recording began.
    pub at_ns: u64,
    /// Age of the file then, in nanoseconds.
    pub age_ns: u64,
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceOp {
    /// The kind of operation.
    pub kind: TraceOpKind,
    /// When it began, in nanoseconds since the recording did.
    pub at_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Its thread; 0 if unknown.
    pub thread: u32,
    /// The file, as an index of [`Trace::files`].
    pub file: usize,
    /// First byte.
    pub offset: u64,
    /// Bytes that were read, written or reserved.
    pub len: u64,
    /// Size of the file before; after it for a truncation.
    pub size: u64,
    /// It had to be durable when it returned.
    pub sync: bool,
    /// It had to bypass the page cache.
    pub direct: bool,
    /// User of the caller.
    pub uid: u32,
    /// Group of the caller.
    pub gid: u32,
    /// The stream of the data, if known.
    pub stream: Option<u32>,
}

/// Why a trace can't be read.
#[derive(Debug)]
pub enum TraceError {
    /// The file can't be read.
    Io(io::Error),
    /// It is empty.
    Empty,
    /// It does not begin like a trace.
    Foreign(String),
    /// It is of a later version.
    Newer(u32),
    /// A line is not one of a trace.
    Line {
        /// Its number, from 1 on.
        line: u64,
        /// The error.
        found: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "can't be read: {error}"),
            Self::Empty => f.write_str("the file is empty"),
            Self::Foreign(why) => write!(f, "not a trace of Braid: {why}"),
            Self::Newer(version) => write!(
                f,
                "a trace of format version {version}; this Braid reads versions up to {TRACE_VERSION}"
            ),
            Self::Line { line, found } => write!(f, "line {line}: {found}"),
        }
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Reads a trace. An incomplete last line is skipped: the recording was
    /// broken off there.
    ///
    /// # Errors
    /// If it can't be read or is no trace: the first error.
    pub fn read(from: impl BufRead) -> Result<Self, TraceError> {
        let mut lines = Lines { from, number: 0, text: Vec::new() };
        let first = lines.next()?.ok_or(TraceError::Empty)?;
        let mut trace = Self { range_size: range_size(first)?, ..Self::default() };
        let mut known = HashMap::new();
        while let Some(text) = lines.next()? {
            let record = serde_json::from_slice::<Record>(text).map_err(|error| error.to_string());
            let taken = match record {
                Ok(_) if trace.complete => Err("there is something after the end".into()),
                Ok(record) => trace.take(record, &mut known),
                Err(error) => Err(format!("not a line of a trace: {error}")),
            };
            taken.map_err(|found| TraceError::Line { line: lines.number, found })?;
        }
        Ok(trace)
    }

    /// Adds one line. `known` has the latest description of each file.
    fn take(&mut self, record: Record, known: &mut HashMap<u64, usize>) -> Result<(), String> {
        match record.op {
            LineKind::File => {
                known.insert(record.file, self.files.len());
                self.files.push(TraceFile {
                    number: record.file,
                    path: record.path.ok_or("a file without a path")?,
                    uid: record.uid,
                    size: record.size.min(SIZE_MAX),
                    at_ns: record.at,
                    age_ns: record.age,
                });
            }
            LineKind::Dropped => self.dropped = self.dropped.saturating_add(record.dropped),
            LineKind::End => self.complete = true,
            LineKind::Op(kind) => {
                let file = *known
                    .get(&record.file)
                    .ok_or_else(|| format!("nothing was told of file {} before", record.file))?;
                self.passthrough_opens += u64::from(record.passthrough);
                self.ops.push(op(kind, file, &record)?);
            }
        }
        Ok(())
    }

    /// Seconds from the start of the recording to the end of the last
    /// operation.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let end_ns = self.ops.iter().map(|op| op.at_ns.saturating_add(op.took_ns)).max();
        end_ns.unwrap_or(0) as f64 / 1e9
    }
}

/// The range size in the first line.
fn range_size(text: &[u8]) -> Result<RangeSize, TraceError> {
    let version = serde_json::from_slice::<VersionOnly>(text)
        .map_err(|_| TraceError::Foreign("its first line is not that of a trace".into()))?
        .version;
    if version > TRACE_VERSION {
        return Err(TraceError::Newer(version));
    }
    let header: Header = serde_json::from_slice(text)
        .map_err(|error| TraceError::Line { line: 1, found: format!("not the head of a trace: {error}") })?;
    let found = || format!("no volume has ranges of {} bytes", header.range);
    RangeSize::new(header.range).ok_or_else(|| TraceError::Line { line: 1, found: found() })
}

fn op(kind: TraceOpKind, file: usize, record: &Record) -> Result<TraceOp, String> {
    let (offset, length, size) = (record.offset, record.length, record.size);
    let moves = matches!(kind, TraceOpKind::Read | TraceOpKind::Write);
    if record.at.checked_add(record.took).is_none_or(|end_ns| end_ns > AGE_NS_MAX) {
        return Err("a recording does not take longer than a year".into());
    }
    let end = offset.checked_add(length).filter(|end| *end <= END_MAX && (length <= IO_BYTES_MAX || !moves));
    let end = end.ok_or_else(|| format!("nothing is done to {length} bytes from {offset} on at once"))?;
    // A plain file may be longer than a spread one can be, and a read may begin
    // anywhere: the part beyond is not simulated.
    let offset = offset.min(SIZE_MAX);
    let len = (end.min(SIZE_MAX) - offset).min(RESERVED_BYTES_MAX);
    Ok(TraceOp {
        kind,
        at_ns: record.at,
        took_ns: record.took,
        thread: record.thread,
        file,
        offset,
        len,
        size: size.min(SIZE_MAX),
        sync: record.sync,
        direct: record.direct,
        uid: record.uid,
        gid: record.gid,
        stream: record.stream,
    })
}

/// Whole lines, one by one.
struct Lines<R> {
    from: R,
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.text.clear();
        self.number += 1;
        let mut limited = io::Read::take(&mut self.from, LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut self.text).map_err(TraceError::Io)?;
        match self.text.split_last() {
            Some((b'\n', line)) => Ok(Some(line)),
            _ if self.text.len() as u64 == LINE_BYTES_MAX && self.number == 1 => {
                Err(TraceError::Foreign("its first line is too long".into()))
            }
            _ if self.text.len() as u64 == LINE_BYTES_MAX => {
                Err(TraceError::Line { line: self.number, found: "the line is too long".into() })
            }
            Some(_) if self.number == 1 => Err(TraceError::Foreign("its first line has no end".into())),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{end_line, line};
    use super::*;

    const HEAD: &str = "{\"braid-trace\":1,\"braid\":\"0.1.0\",\"volume\":\"v\",\"range\":65536,\
                        \"policy\":\"weighted\",\"began\":1}\n";

    fn read(text: &str) -> Result<Trace, TraceError> {
        Trace::read(text.as_bytes())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let file =
            Record { file: 7, path: Some("a \"b\"\n".into()), size: 9, age: 5, uid: 3, ..Record::default() };
        let write = Record {
            at: 10,
            took: 4,
            thread: 2,
            offset: 65536,
            length: 512,
            size: 65536,
            append: true,
            sync: true,
            direct: true,
            uid: 1,
            gid: 2,
            stream: Some(3),
            ..Record::of(TraceOpKind::Write, 7)
        };
        let lost = Record { op: LineKind::Dropped, at: 15, dropped: 2, ..Record::default() };
        let text =
            [HEAD.to_owned(), line(&file), line(&write), line(&lost), end_line(20, 1, 2, "size")].concat();
        let trace = read(&text).unwrap();
        assert_eq!((trace.range_size.get(), trace.dropped, trace.complete), (65536, 2, true));
        assert_eq!(trace.files[0].path, "a \"b\"\n");
        assert_eq!((trace.files[0].size, trace.files[0].uid, trace.files[0].age_ns), (9, 3, 5));
        let op = trace.ops[0];
        assert_eq!((op.kind, op.at_ns, op.took_ns, op.thread, op.file), (TraceOpKind::Write, 10, 4, 2, 0));
        assert_eq!((op.offset, op.len, op.size, op.sync, op.direct), (65536, 512, 65536, true, true));
        assert_eq!((op.uid, op.gid, op.stream), (1, 2, Some(3)));
        // Broken off in the middle of a line, it ends with the one before.
        let broken = read(&text[..text.len() - 5]).unwrap();
        assert!(!broken.complete && broken.ops == trace.ops);
    }

    #[test]
    fn a_copy_may_be_longer_than_any_write() {
        let text = format!(
            "{HEAD}{{\"op\":\"file\",\"file\":7,\"path\":\"a\"}}\n\
             {{\"op\":\"write\",\"file\":7,\"length\":4000000000}}\n"
        );
        assert_eq!(read(&text).unwrap().ops[0].len, 4_000_000_000);
    }

    #[test]
    fn what_no_range_can_have_is_cut_off() {
        for (line, expected) in [
            // A read before and beyond the end of a file that is too long to be spread.
            (
                "\"read\",\"offset\":140737488355000,\"length\":1000,\"size\":1125899906842624",
                (SIZE_MAX - 328, 328, SIZE_MAX),
            ),
            ("\"read\",\"offset\":1125899906842624,\"size\":5", (SIZE_MAX, 0, 5)),
            ("\"truncate\",\"size\":1125899906842624", (0, 0, SIZE_MAX)),
            ("\"allocate\",\"length\":5497558138880", (0, RESERVED_BYTES_MAX, 0)),
        ] {
            let file = "{\"op\":\"file\",\"file\":7,\"path\":\"a\"}";
            let op = read(&format!("{HEAD}{file}\n{{\"file\":7,\"op\":{line}}}\n")).unwrap().ops[0];
            assert_eq!((op.offset, op.len, op.size), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let file = "{\"op\":\"file\",\"at\":0,\"file\":7,\"path\":\"a\"}\n";
        let with = |lines: &str| format!("{HEAD}{file}{lines}");
        for (text, says) in [
            (String::new(), "the file is empty"),
            ("hello\n".into(), "not a trace of Braid"),
            ("hello".into(), "its first line has no end"),
            ("x".repeat(1 << 20), "its first line is too long"),
            (
                "{\"braid-trace\":2,\"what\":1}\n".into(),
                "format version 2; this Braid reads versions up to 1",
            ),
            ("{\"braid-trace\":1}\n".into(), "line 1: not the head of a trace"),
            (HEAD.replace("65536", "65537"), "line 1: no volume has ranges of 65537 bytes"),
            (with("nonsense\n"), "line 3: not a line of a trace"),
            (with("{\"op\":\"fly\",\"at\":1}\n"), "line 3: not a line of a trace"),
            (with("{\"op\":\"read\",\"at\":1,\"file\":7,\"colour\":1}\n"), "line 3: not a line of a trace"),
            (with("{\"op\":\"read\",\"at\":1,\"file\":8}\n"), "line 3: nothing was told of file 8 before"),
            (
                with("{\"op\":\"read\",\"file\":7,\"offset\":18446744073709551615,\"length\":1}\n"),
                "line 3: nothing is done to 1 bytes",
            ),
            (with("{\"op\":\"write\",\"file\":7,\"length\":5000000000}\n"), "line 3: nothing is done to"),
            (
                with("{\"op\":\"allocate\",\"file\":7,\"length\":9223372036854775808}\n"),
                "line 3: nothing is done to",
            ),
            (with("{\"op\":\"read\",\"file\":7,\"at\":1000000000000000000}\n"), "line 3: a recording does"),
            (
                with("{\"op\":\"read\",\"file\":7,\"at\":2,\"took\":18446744073709551615}\n"),
                "line 3: a recording does",
            ),
            (with("{\"op\":\"file\",\"file\":8}\n"), "line 3: a file without a path"),
            (with("{\"op\":\"end\"}\n{\"op\":\"end\"}\n"), "line 4: there is something after the end"),
            (with(&"y".repeat(70_000)), "line 3: the line is too long"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
    }
}
