//! `braid scrub`: reads files to their ends, so that modules and devices check what they have, or
//! has the daemon do that.

use crate::args::ScrubArgs;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{interrupt, locate, movers, table};
use braid_contract::units::show_size;
use braid_contract::{Shown, counted};
use braid_ipc::mounts;
use braid_ipc::protocol::JobKind;
use rustix::fs::{Advice, OFlags, SeekFrom};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// Bytes that are passed over where a file can't be read.
const STEP: u64 = 4096;
/// Seconds between two looks for an interrupt.
const LOOK: f64 = 0.2;

/// The outcome.
#[derive(Debug, Default, Serialize)]
struct Report {
    files: u64,
    bytes: u64,
    /// Bytes that could not be read.
    damaged_bytes: u64,
    damaged: Vec<Damage>,
    /// Files and directories that could not be opened.
    unread: Vec<Unread>,
    interrupted: bool,
}

/// A part of a file that can't be read.
#[derive(Debug, Serialize)]
struct Damage {
    path: PathBuf,
    offset: u64,
    length: u64,
    error: String,
}

#[derive(Debug, Serialize)]
struct Unread {
    path: PathBuf,
    error: String,
}

pub(crate) fn run(args: &ScrubArgs) -> Result<()> {
    if args.background {
        return args.paths.iter().try_for_each(|path| {
            let (mount, path) = locate::within(path)?;
            movers::start_only(&mount, JobKind::Scrub { path }, args.bandwidth, args.json)
        });
    }
    let mut scrub = Scrub::new(args)?;
    interrupt::watch();
    for path in &args.paths {
        scrub.tree(path)?;
    }
    let Scrub { report, progress, .. } = scrub;
    drop(progress);
    if args.json {
        table::print_json(&report)?;
    } else {
        table::print(&report.text())?;
    }
    match report.problem() {
        None => Ok(()),
        Some(problem) if args.json => Err(Failure::new(problem).told()),
        Some(problem) => Err(Failure::new(problem)),
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        for Damage { path, offset, length, error } in &self.damaged {
            text.push_str(&format!("{}: bytes {offset} to {}: {error}\n", path.shown(), offset + length));
        }
        for Unread { path, error } in &self.unread {
            text.push_str(&format!("{}: {error}\n", path.shown()));
        }
        text + &format!("read {}, {}\n", counted(self.files, "file"), show_size(self.bytes))
    }

    fn problem(&self) -> Option<String> {
        let mut problems = Vec::new();
        if self.damaged_bytes > 0 {
            problems.push(format!("{} can't be read", show_size(self.damaged_bytes)));
        }
        if !self.unread.is_empty() {
            problems.push(format!("{} could not be opened", counted(self.unread.len() as u64, "path")));
        }
        if self.interrupted {
            problems.push("interrupted: the rest was not read".to_owned());
        }
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

struct Scrub {
    report: Report,
    progress: Progress,
    /// Device numbers of the Braid file systems here.
    braid: HashSet<u64>,
    /// Files with several names that were read.
    seen: HashSet<(u64, u64)>,
    bandwidth: Option<u64>,
    begun: Instant,
    buffer: Vec<u8>,
}

impl Scrub {
    fn new(args: &ScrubArgs) -> Result<Self> {
        let table = mounts::list().map_err(|error| Failure::new(error.to_string()))?;
        Ok(Self {
            report: Report::default(),
            progress: Progress::new(),
            braid: table.iter().filter(|mount| mount.is_braid()).map(|mount| mount.dev).collect(),
            seen: HashSet::new(),
            bandwidth: args.bandwidth,
            begun: Instant::now(),
            buffer: vec![0; PIECE],
        })
    }

    /// Reads a file, or all files below a directory, as far as they are on one Braid file system.
    fn tree(&mut self, root: &Path) -> Result<()> {
        let failed = |error: io::Error| Failure::new(format!("{}: {error}", root.shown()));
        let dev = std::fs::metadata(root).map_err(failed)?.dev();
        if !self.braid.contains(&dev) {
            let advice = "give a mount point, or a path below one: braid stack list";
            let what = format!("{}: it is not on a Braid file system\n  help: {advice}", root.shown());
            return Err(Failure::new(what));
        }
        // A link that is given itself counts for its target.
        let mut left = vec![std::fs::canonicalize(root).map_err(failed)?];
        while let Some(path) = left.pop() {
            if interrupt::came() {
                self.report.interrupted = true;
                return Ok(());
            }
            match self.one(&path, dev) {
                Ok(below) => left.extend(below.into_iter().rev()),
                // It went meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.report.unread.push(Unread { path, error: error.to_string() }),
            }
        }
        Ok(())
    }

    /// Reads a file; returns what a directory has.
    fn one(&mut self, path: &Path, dev: u64) -> io::Result<Vec<PathBuf>> {
        let about = std::fs::symlink_metadata(path)?;
        if about.dev() != dev {
            return Ok(Vec::new());
        }
        if about.is_dir() {
            let mut names = std::fs::read_dir(path)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<Vec<_>>>()?;
            names.sort();
            return Ok(names);
        }
        let is_new = about.nlink() < 2 || self.seen.insert((about.dev(), about.ino()));
        if about.is_file() && is_new {
            self.file(path, &about)?;
        }
        Ok(Vec::new())
    }

    fn file(&mut self, path: &Path, about: &Metadata) -> io::Result<()> {
        // Nothing that has taken the file's place meanwhile is waited for, or followed.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        // The kernel's pages of it say nothing about what is below.
        forget_pages(&file);
        self.report.files += 1;
        let mut at = 0;
        while let Some(from) = next_data(&file, at, about.len()) {
            if interrupt::came() {
                self.report.interrupted = true;
                break;
            }
            match self.piece(path, &file, from, about.len())? {
                0 => break,
                length => at = from + length,
            }
            self.pace(path);
        }
        forget_pages(&file);
        Ok(())
    }

    /// Reads a piece, or passes over one that can't be read; returns its length, 0 at the end.
    fn piece(&mut self, path: &Path, file: &File, offset: u64, len: u64) -> io::Result<u64> {
        match file.read_at(&mut self.buffer, offset) {
            Ok(read) => {
                self.report.bytes += read as u64;
                Ok(read as u64)
            }
            Err(error) if is_of_the_mount(&error) => Err(error),
            Err(_) => self.damaged_piece(path, file, offset..len.min(offset + PIECE as u64)),
        }
    }

    /// Finds out which steps of a piece can't be read.
    fn damaged_piece(&mut self, path: &Path, file: &File, piece: Range<u64>) -> io::Result<u64> {
        let mut at = piece.start;
        while at < piece.end {
            let step = (piece.end - at).min(STEP);
            match file.read_at(&mut self.buffer[..step as usize], at) {
                // It became shorter.
                Ok(0) => return Ok(at - piece.start),
                Ok(read) => {
                    self.report.bytes += read as u64;
                    at += read as u64;
                }
                Err(error) if is_of_the_mount(&error) => return Err(error),
                Err(error) => {
                    self.damage(path, at..at + step, &error);
                    at += step;
                }
            }
        }
        Ok(piece.end - piece.start)
    }

    fn damage(&mut self, path: &Path, part: Range<u64>, error: &io::Error) {
        let (length, error) = (part.end - part.start, error.to_string());
        self.report.damaged_bytes += length;
        if let Some(last) = self.report.damaged.last_mut()
            && last.path == path
            && last.offset + last.length == part.start
            && last.error == error
        {
            last.length += length;
            return;
        }
        self.report.damaged.push(Damage { path: path.to_owned(), offset: part.start, length, error });
    }

    fn pace(&mut self, path: &Path) {
        let Report { bytes, files, damaged_bytes, .. } = self.report;
        let damaged = match damaged_bytes {
            0 => String::new(),
            _ => format!(", {} unreadable", show_size(damaged_bytes)),
        };
        let (files, size) = (counted(files, "file"), show_size(bytes));
        self.progress.show(&format!("{files}, {size}{damaged}: {}", path.shown()));
        let Some(bandwidth) = self.bandwidth else { return };
        let due = bytes as f64 / bandwidth as f64;
        loop {
            let left = due - self.begun.elapsed().as_secs_f64();
            if left <= 0.0 || interrupt::came() {
                return;
            }
            std::thread::sleep(Duration::from_secs_f64(left.min(LOOK)));
        }
    }
}

/// Whether an error is about the mount or the file as a whole, and not about a part of it.
fn is_of_the_mount(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(
        errno,
        Some(rustix::io::Errno::NOTCONN | rustix::io::Errno::STALE | rustix::io::Errno::CONNABORTED)
    )
}

fn forget_pages(file: &File) {
    // Without it, pages that are there are not read anew.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// Where data is at or behind `at`, if the file has any there.
fn next_data(file: &File, at: u64, len: u64) -> Option<u64> {
    if at >= len {
        return None;
    }
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(from) => Some(from),
        Err(rustix::io::Errno::NXIO) => None,
        // Where holes are not known, all is data.
        Err(_) => Some(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_that_lies_together_is_one() {
        let args = ScrubArgs { paths: Vec::new(), bandwidth: None, background: false, json: false };
        let mut scrub = Scrub::new(&args).unwrap();
        let error = io::Error::from_raw_os_error(5);
        for (path, offset) in [("a", 0), ("a", 4096), ("a", 12_288), ("b", 16_384)] {
            scrub.damage(Path::new(path), offset..offset + STEP, &error);
        }
        let found: Vec<_> = scrub.report.damaged.iter().map(|one| (one.offset, one.length)).collect();
        assert_eq!(found, [(0, 8192), (12_288, 4096), (16_384, 4096)]);
        assert!(scrub.report.text().starts_with("a: bytes 0 to 8192: "), "{}", scrub.report.text());
        assert_eq!(scrub.report.problem().as_deref(), Some("16.0 KiB can't be read"));
    }
}
