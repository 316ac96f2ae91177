//! The common ground of the compared file systems. Native file systems disagree
//! on a few things that applications do not rely on; each is probed, and things
//! on which the sides disagree are either not requested or not compared.

use crate::native::{allocate_flags, truncate_path};
use crate::op::AllocateMode;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::fmt;
use std::path::Path;

/// The operations that a sequence may have, and the comparison of answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Common {
    /// Operations are carried out as the superuser.
    pub superuser: bool,
    /// Files may be opened with `O_DIRECT`.
    pub direct: bool,
    /// Extended attributes `user.*` may be set.
    pub xattrs: bool,
    /// Modes of `fallocate` that may be asked, in the order of
    /// [`AllocateMode::ALL`].
    pub allocate: [bool; 5],
    /// `fallocate` changes the modification time in the same modes on all
    /// sides; where not, the time is set after it.
    pub allocate_times: bool,
    /// `truncate` changes the modification time on all sides even where the
    /// size stays; where not, the time is set after it.
    pub truncate_times: bool,
    /// A directory's link count is two and its subdirectories on all sides.
    pub dir_links: bool,
}

impl Common {
    /// Everything, as the in-memory model answers it.
    #[must_use]
    pub fn model() -> Self {
        Self {
            superuser: rustix::process::geteuid().is_root(),
            direct: true,
            xattrs: true,
            allocate: [true; 5],
            allocate_times: true,
            truncate_times: true,
            dir_links: true,
        }
    }

    /// Probes each directory in turn and keeps the features that they share,
    /// with each other and with `self`.
    ///
    /// # Errors
    /// The error that kept a directory from being probed.
    pub fn with(mut self, dirs: &[&Path]) -> Result<Self, Errno> {
        for dir in dirs {
            let probed = probe(dir)?;
            self.direct &= probed.direct;
            self.xattrs &= probed.xattrs;
            self.allocate_times &= probed.allocate_times;
            self.truncate_times &= probed.truncate_times;
            self.dir_links &= probed.dir_links;
            for (mine, theirs) in self.allocate.iter_mut().zip(probed.allocate) {
                *mine &= theirs;
            }
        }
        Ok(self)
    }

    /// Whether `mode` may be asked.
    #[must_use]
    pub fn allows(&self, mode: AllocateMode) -> bool {
        AllocateMode::ALL.iter().zip(self.allocate).any(|(known, allowed)| *known == mode && allowed)
    }
}

impl fmt::Display for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left_out = Vec::new();
        let mut note = |compared: bool, what: &str| {
            if !compared {
                left_out.push(what.to_owned());
            }
        };
        note(self.superuser, "chown (not the superuser)");
        note(self.direct, "O_DIRECT");
        note(self.xattrs, "user.* extended attributes");
        for mode in AllocateMode::ALL {
            note(self.allows(mode), &format!("fallocate {mode:?}"));
        }
        note(self.allocate_times, "mtime after fallocate");
        note(self.truncate_times, "mtime after truncate to the same size");
        note(self.dir_links, "link counts of directories");
        if left_out.is_empty() { f.write_str("nothing") } else { f.write_str(&left_out.join(", ")) }
    }
}

/// The features of one file system, tried out in a directory of its own below
/// `dir`.
fn probe(dir: &Path) -> Result<Common, Errno> {
    let base = dir.join(format!(".probe-{}", std::process::id()));
    rustix::fs::mkdir(&base, Mode::RWXU)?;
    let probed = probe_in(&base);
    let removed = std::fs::remove_dir_all(&base);
    let probed = probed?;
    removed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(probed)
}

/// A modification time that is not the clock's.
const LONG_AGO: i64 = 1_000_000;

fn probe_in(base: &Path) -> Result<Common, Errno> {
    let path = base.join("file");
    let flags = OFlags::RDWR | OFlags::CREATE;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::io::pwrite(&file, &[1; 8192], 0)?;
    let mut allocate = [false; 5];
    let mut allocate_times = true;
    let reset = || {
        let old = Timespec { tv_sec: LONG_AGO, tv_nsec: 0 };
        rustix::fs::futimens(&file, &Timestamps { last_access: old, last_modification: old })
    };
    let touched = || Ok::<_, Errno>(rustix::fs::fstat(&file)?.st_mtime != LONG_AGO);
    for (allowed, mode) in allocate.iter_mut().zip(AllocateMode::ALL) {
        // Over data, in a hole, past the end and in nothing at all.
        for (size, offset) in [(16384, 4096), (16384, 12288), (8192, 1 << 20), (0, 0)] {
            rustix::fs::ftruncate(&file, size)?;
            reset()?;
            *allowed = rustix::fs::fallocate(&file, allocate_flags(mode), offset, 4096).is_ok();
            allocate_times &= touched()? || !*allowed;
        }
    }
    let mut truncate_times = true;
    for size in [8192, 0] {
        rustix::fs::ftruncate(&file, size)?;
        reset()?;
        truncate_path(&path, size)?;
        truncate_times &= touched()?;
    }
    rustix::fs::mkdir(base.join("a"), Mode::RWXU)?;
    rustix::fs::mkdir(base.join("a/b"), Mode::RWXU)?;
    let links = rustix::fs::statat(CWD, base.join("a"), AtFlags::empty())?.st_nlink;
    Ok(Common {
        superuser: rustix::process::geteuid().is_root(),
        direct: rustix::fs::open(&path, OFlags::RDWR | OFlags::DIRECT, Mode::empty()).is_ok(),
        xattrs: rustix::fs::fsetxattr(&file, "user.probe", b"x", XattrFlags::empty()).is_ok(),
        allocate,
        allocate_times,
        truncate_times,
        dir_links: links == 3,
    })
}
