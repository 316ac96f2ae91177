//! One thread of load: writes blocks, and truncates, syncs, replaces by rename,
//! creates and removes files. Its operations follow from its seed, so that
//! another process can replay them, without the files, to compute their
//! possible states.

use super::model::Model;
use crate::load::Phase;
use crate::stamps::{BLOCK, block};
use braid_testkit::SplitMix;
use braid_tests_support::error::{Context, Failure, Result, ensure};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

/// Files that are written in place.
const FILES: u64 = 4;

/// Blocks that a file may have, usually: 4 MiB.
pub(super) const BLOCKS: u64 = 256;

/// A thread's files and their expected states.
pub(crate) struct Writer {
    dir: PathBuf,
    blocks: u64,
    random: SplitMix,
    version: u64,
    files: Vec<Model>,
    replaced: Replaced,
    removed: Vec<PathBuf>,
}

/// A file that is replaced as a whole.
#[derive(Default)]
struct Replaced {
    /// Generations that may be found, the synced one first; 0 is none.
    possible: Vec<u64>,
}

/// The outcome of a writer's operations.
pub(crate) enum Target<'a> {
    /// They are carried out.
    Files(&'a [File]),
    /// They were carried out before.
    Replay,
    /// They fail, with unknown effects.
    Cut,
}

impl Target<'_> {
    fn act(&self, on: impl FnOnce(&[File]) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Files(files) => on(files),
            Self::Replay => Ok(()),
            Self::Cut => Err(io::Error::other("cut")),
        }
    }
}

impl Writer {
    /// Makes its directory and its files, of at most so many blocks each.
    pub(crate) fn new(dir: &Path, number: u64, blocks: u64, seed: u64) -> Result<Self> {
        let own = dir.join(format!("writer{number}"));
        std::fs::create_dir(&own).at(&own)?;
        let files = (0..FILES).map(|file| Model::new(number * FILES + file)).collect();
        let replaced = Replaced { possible: vec![0] };
        let random = SplitMix::new(seed);
        let writer = Self { dir: own, blocks, random, version: 0, files, replaced, removed: Vec::new() };
        for at in 0..writer.files.len() {
            File::create(writer.path(at)).and_then(|file| file.sync_all()).at(&writer.dir)?;
        }
        for dir in [&writer.dir, dir] {
            File::open(dir).and_then(|dir| dir.sync_all()).at(dir)?;
        }
        Ok(writer)
    }

    /// Resumes from a [`state`](Self::state), with another seed.
    pub(crate) fn resume(dir: &Path, number: u64, blocks: u64, seed: u64, state: &Value) -> Option<Self> {
        let files = state["files"].as_array()?.iter().zip(number * FILES..);
        Some(Self {
            dir: dir.join(format!("writer{number}")),
            blocks,
            random: SplitMix::new(seed),
            version: state["version"].as_u64()?,
            files: files.map(|(file, number)| Model::resume(number, file)).collect::<Option<_>>()?,
            replaced: Replaced { possible: vec![state["replaced"].as_u64()?] },
            removed: Vec::new(),
        })
    }

    /// The known states of its files after [`verify`](Self::verify), in JSON.
    pub(crate) fn state(&self) -> Value {
        let files: Vec<_> = self.files.iter().map(Model::state).collect();
        let replaced = self.replaced.possible.first();
        json!({ "version": self.version, "replaced": replaced, "files": files })
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.join(format!("file{file}"))
    }

    /// Works until an operation fails after the kill, or the time is over. A
    /// failure before the kill is Braid's.
    pub(super) fn work(&mut self, acknowledged: &Sender<()>, phase: &Phase) -> Result<()> {
        let open = self.open()?;
        while !phase.is_over() {
            match self.step(&Target::Files(&open)) {
                Ok(false) => {}
                // The receiver is gone once it has counted enough.
                Ok(true) => drop(acknowledged.send(())),
                Err(_) if phase.is_failing() => return Ok(()),
                Err(error) => return Err(Failure(format!("before the kill: {error}"))),
            }
        }
        Ok(())
    }

    /// The files that are written in place.
    pub(crate) fn open(&self) -> Result<Vec<File>> {
        let open = |at| OpenOptions::new().read(true).write(true).open(self.path(at)).at(&self.dir);
        (0..self.files.len()).map(open).collect()
    }

    /// One operation; answers whether something was acknowledged as synced.
    pub(crate) fn step(&mut self, target: &Target<'_>) -> io::Result<bool> {
        let at = usize::try_from(self.random.below(FILES)).unwrap_or(0);
        match self.random.below(100) {
            0..60 => self.write(at, target),
            60..65 => self.truncate(at, target),
            65..85 => self.sync(at, target),
            85..95 => self.replace(target),
            _ => self.make_and_remove(target),
        }
    }

    fn write(&mut self, at: usize, target: &Target<'_>) -> io::Result<bool> {
        let model = &mut self.files[at];
        let append = self.random.below(3) == 0 && (model.len() as u64) < self.blocks;
        let first = if append { model.len() as u64 } else { self.random.below(self.blocks) };
        let count = 1 + self.random.below(8).min(self.blocks - 1 - first.min(self.blocks - 1));
        self.version += 1;
        let (number, version) = (model.number, self.version);
        let places = || (first..first + count).map(|index| usize::try_from(index).unwrap_or(0));
        places().for_each(|place| model.begin_write(place, version));
        target.act(|files| {
            let data: Vec<u8> =
                (first..first + count).flat_map(|index| block(number, index, version)).collect();
            files[at].write_all_at(&data, first * BLOCK as u64)
        })?;
        places().for_each(|place| model.end_write(place, version));
        Ok(false)
    }

    fn truncate(&mut self, at: usize, target: &Target<'_>) -> io::Result<bool> {
        let len = self.random.below(self.blocks);
        let blocks = usize::try_from(len).unwrap_or(0);
        self.files[at].begin_truncate(blocks);
        target.act(|files| files[at].set_len(len * BLOCK as u64))?;
        self.files[at].end_truncate(blocks);
        Ok(false)
    }

    fn sync(&mut self, at: usize, target: &Target<'_>) -> io::Result<bool> {
        let whole = self.random.below(2) == 0;
        target.act(|files| if whole { files[at].sync_all() } else { files[at].sync_data() })?;
        self.files[at].synced();
        Ok(true)
    }

    /// Writes a temporary file, syncs it, renames it; syncs the directory every
    /// other time.
    fn replace(&mut self, target: &Target<'_>) -> io::Result<bool> {
        self.version += 1;
        let version = self.version;
        self.replaced.possible.push(version);
        target.act(|_| {
            let temporary = self.dir.join("replaced.new");
            let file = File::create(&temporary)?;
            file.write_all_at(&generation(version), 0)?;
            file.sync_all()?;
            std::fs::rename(&temporary, self.dir.join("replaced"))
        })?;
        if self.random.below(2) == 0 {
            return Ok(false);
        }
        target.act(|_| File::open(&self.dir)?.sync_all())?;
        self.replaced.possible = vec![version];
        Ok(true)
    }

    /// Creates a spread file and removes it again; syncs the directory.
    fn make_and_remove(&mut self, target: &Target<'_>) -> io::Result<bool> {
        self.version += 1;
        let path = self.dir.join(format!("passing{}", self.version));
        target.act(|_| {
            File::create(&path)?.write_all_at(&generation(self.version), 0)?;
            std::fs::remove_file(&path)?;
            File::open(&self.dir)?.sync_all()
        })?;
        self.removed.push(path);
        Ok(true)
    }

    /// Compares all files with their possible states.
    pub(crate) fn verify(&mut self) -> Result<()> {
        for at in 0..self.files.len() {
            let path = self.path(at);
            let data = std::fs::read(&path).at(&path)?;
            self.files[at].verify(&data).at(&path)?;
        }
        self.verify_replaced()?;
        for path in self.removed.drain(..) {
            ensure(!path.exists(), || format!("{} has come back", path.display()))?;
        }
        Ok(())
    }

    fn verify_replaced(&mut self) -> Result<()> {
        let path = self.dir.join("replaced");
        let data = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other.at(&path)?),
        };
        let found = self.replaced.possible.iter().copied().find(|version| match &data {
            None => *version == 0,
            Some(data) => *version != 0 && *data == generation(*version),
        });
        let found = found.ok_or_else(|| {
            let len = data.map(|data| data.len());
            Failure(format!("{} ({len:?} bytes) is of none of its generations", path.display()))
        })?;
        self.replaced.possible = vec![found];
        Ok(())
    }
}

/// The contents of the file that is replaced: 1 KiB to 400 KiB.
fn generation(version: u64) -> Vec<u8> {
    let mut data = vec![0; 1024 + usize::try_from(version * 7919 % 400_000).unwrap_or(0)];
    SplitMix::new(version).fill(&mut data);
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_tests_support::lab::Lab;

    #[test]
    fn a_load_gone_through_again_accepts_its_files_and_no_others() {
        let lab = Lab::new("writer").unwrap();
        let state = Writer::new(lab.path(), 0, 16, 0).unwrap().state();
        let resume = || Writer::resume(lab.path(), 0, 16, 5, &state).unwrap();
        let mut writer = resume();
        let files = writer.open().unwrap();
        for _ in 0..200 {
            writer.step(&Target::Files(&files)).unwrap();
        }
        let replay = || {
            let mut again = resume();
            for _ in 0..200 {
                again.step(&Target::Replay).unwrap();
            }
            assert!(again.step(&Target::Cut).is_err());
            again
        };
        assert_eq!(replay().verify(), Ok(()));
        files[0].write_all_at(b"elsewhere", 0).unwrap();
        assert!(replay().verify().is_err());
    }
}
