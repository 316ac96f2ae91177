//! A file whose ranges are all known: their contents, and their tiers.

use braid_sys::write_back;
use braid_testkit::SplitMix;
use braid_tests_support::error::{Context, Failure, Result, ensure, fail};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a range.
pub(super) const RANGE: u64 = 64 << 10;

/// The bytes of a file, different for each seed.
pub(super) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SplitMix::new(seed).fill(&mut bytes);
    bytes
}

/// A file, by ranges.
pub(super) struct Sample {
    pub(super) path: PathBuf,
    /// The seed of each range.
    seeds: Vec<u64>,
    /// The tier of each range.
    pub(super) tiers: Vec<String>,
}

impl Sample {
    /// Writes a file of so many ranges, each of which is placed by itself, and
    /// syncs it.
    pub(super) fn write(path: PathBuf, seed: u64, ranges: usize) -> Result<Self> {
        let seeds: Vec<u64> = (0..ranges as u64).map(|range| seed << 16 | range).collect();
        let file = File::create(&path).at(&path)?;
        for (seed, offset) in seeds.iter().zip((0..).step_by(RANGE as usize)) {
            file.write_all_at(&content(*seed, RANGE as usize), offset).at(&path)?;
            write_back(&file).at(&path)?;
        }
        file.sync_all().at(&path)?;
        Ok(Self { path, seeds, tiers: Vec::new() })
    }

    /// Name below the mount point.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Ranges of the file.
    pub(super) fn len(&self) -> usize {
        self.seeds.len()
    }

    /// Whether it has data on this tier.
    pub(super) fn is_on(&self, tier: &str) -> bool {
        self.tiers.iter().any(|on| on == tier)
    }

    /// The ranges on this tier.
    pub(super) fn ranges_on<'a>(&'a self, tier: &'a str) -> impl Iterator<Item = usize> + 'a {
        (0..self.len()).filter(move |range| self.tiers[*range] == tier)
    }

    /// Reads each range, bypassing the page cache: those on `bad` must answer
    /// `EIO`, the others the written data.
    pub(super) fn check(&self, bad: Option<&str>) -> Result<()> {
        let file = open_direct(&self.path)?;
        for range in 0..self.len() {
            let told = self.check_range(&file, range);
            if bad == Some(self.tiers[range].as_str()) {
                let what =
                    || format!("{}: range {range} is on {bad:?}, and answers {told:?}", self.path.display());
                ensure(told == Err(Errno::IO), what)?;
            } else {
                let tier = &self.tiers[range];
                ensure(told == Ok(true), || {
                    format!("{}: range {range}, on {tier}: {told:?}", self.path.display())
                })?;
            }
        }
        Ok(())
    }

    /// The data written to a range.
    pub(super) fn expected(&self, range: usize) -> Vec<u8> {
        content(self.seeds[range], RANGE as usize)
    }

    /// Whether the range reads as the data written to it.
    pub(super) fn check_range(&self, file: &File, range: usize) -> std::result::Result<bool, Errno> {
        let bytes = read_direct(file, range as u64 * RANGE, RANGE as usize)?;
        Ok(bytes == self.expected(range))
    }

    /// Overwrites one range. If refused, it keeps the old contents.
    pub(super) fn rewrite(&mut self, range: usize) -> io::Result<()> {
        let seed = self.seeds[range] + (1 << 40);
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(&content(seed, RANGE as usize), range as u64 * RANGE)?;
        // The kernel may have kept it back.
        write_back(&file)?;
        self.seeds[range] = seed;
        Ok(())
    }

    /// Rewrites the whole file from scratch, and syncs it.
    pub(super) fn begin_anew(&mut self) -> Result<()> {
        let fresh = Self::write(self.path.clone(), self.seeds[0] >> 16 ^ 1 << 20, self.len())?;
        self.seeds = fresh.seeds;
        Ok(())
    }

    /// `fsync` of the file.
    pub(super) fn sync(&self) -> io::Result<()> {
        OpenOptions::new().write(true).open(&self.path)?.sync_all()
    }
}

/// Opens a file for reads that bypass the page cache.
pub(super) fn open_direct(path: &Path) -> Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(|error| Failure(error.to_string()))?;
    OpenOptions::new().read(true).custom_flags(flags).open(path).at(path)
}

/// Reads `len` bytes at `offset`, fewer at the end of the file.
pub(super) fn read_direct(file: &File, offset: u64, len: usize) -> std::result::Result<Vec<u8>, Errno> {
    const ALIGNMENT: usize = 4096;
    let mut buf = vec![0; len + ALIGNMENT];
    let start = buf.as_ptr().align_offset(ALIGNMENT);
    let mut done = 0;
    while done < len {
        let into = &mut buf[start + done..start + len];
        match file.read_at(into, offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL)),
        }
    }
    Ok(buf[start..start + done].to_vec())
}

/// Fails unless an operation failed with this error.
pub(super) fn expect_error<T>(result: io::Result<T>, expected: Errno, what: &str) -> Result<()> {
    match result {
        Err(error) if Errno::from_io_error(&error) == Some(expected) => Ok(()),
        Err(error) => fail(format!("{what}: answered {error}, expected {expected}")),
        Ok(_) => fail(format!("{what}: succeeded, expected {expected}")),
    }
}
