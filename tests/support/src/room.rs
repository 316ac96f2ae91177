//! A file system of its own for the temporary files of tests. Placement depends on how full a tier
//! is, and the tests' tiers are mostly directories there.

use crate::error::{Context, Result, ensure};
use crate::lab::{Kind, Lab, free_space};
use crate::sh::{can_be_root, root_cmd};
use std::path::Path;
use tempfile::{Builder, TempDir};

/// Its size: no tier may look full. Its file has holes.
const MIB: u64 = 12 << 10;
/// The part of it that tests use at a time, with some to spare.
const USED_MIB: u64 = 4 << 10;
/// Memory to be left for the tests themselves.
const MEMORY_MIB: u64 = 4 << 10;

/// The file system, for as long as this is kept.
pub struct Room {
    _lab: Lab,
    /// Removed after the mount on it.
    point: TempDir,
}

impl Room {
    /// Makes the file system, in memory if there is enough. `None` without privilege: then no test
    /// mounts anything either.
    ///
    /// # Errors
    /// If there is too little space for it, or it can't be mounted.
    pub fn make() -> Result<Option<Self>> {
        if !can_be_root() {
            return Ok(None);
        }
        let memory = Path::new("/dev/shm");
        let holds = memory.is_dir()
            && free_space(memory)? >= USED_MIB << 20
            && available()? >= (USED_MIB + MEMORY_MIB) << 20;
        let place = if holds { memory.to_path_buf() } else { std::env::temp_dir() };
        let free = free_space(&place)? >> 20;
        ensure(free >= USED_MIB, || {
            let place = place.display();
            format!(
                "{place} has {free} MiB free, and the tests need {USED_MIB}; free some, or name another place by TMPDIR"
            )
        })?;
        let mut lab = Lab::new_in(&place, "tests")?;
        let dir = lab.file_system("room", Kind::Ext4, MIB)?;
        root_cmd("chmod").arg("1777").arg(&dir).quiet()?;
        let point = Builder::new().prefix("b").rand_bytes(4).tempdir()?;
        lab.bind(&dir, point.path())?;
        println!("== temporary files: an ext4 of {} GiB in {}", MIB >> 10, place.display());
        Ok(Some(Self { _lab: lab, point }))
    }

    /// Where it is mounted, for `TMPDIR`: a short path, since those of sockets are.
    pub fn dir(&self) -> &Path {
        self.point.path()
    }
}

/// Bytes of memory that programs can have without swapping.
fn available() -> Result<u64> {
    let path = Path::new("/proc/meminfo");
    let text = std::fs::read_to_string(path).at(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.unwrap_or_default() << 10)
}
