//! One thread of load: blocks written, files cut, synced, replaced by rename,
//! made and removed.

use super::Phase;
use super::model::Model;
use crate::error::{Context, Failure, Result, ensure};
use crate::random::Random;
use crate::suites::stamps::{BLOCK, block};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

/// Files that are written in place.
const FILES: u64 = 4;

/// Blocks that a file may have: 4 MiB.
const BLOCKS: u64 = 256;

/// A thread's files and what it knows about them.
pub(super) struct Writer {
    dir: PathBuf,
    random: Random,
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

impl Writer {
    /// Makes its directory and its files.
    pub(super) fn new(dir: &Path, number: u64, seed: u64) -> Result<Self> {
        let dir = dir.join(format!("writer{number}"));
        std::fs::create_dir(&dir).at(&dir)?;
        let files = (0..FILES).map(|file| Model::new(number * FILES + file)).collect::<Vec<_>>();
        let writer = Self {
            dir,
            random: Random::new(seed),
            version: 0,
            files,
            replaced: Replaced { possible: vec![0] },
            removed: Vec::new(),
        };
        for at in 0..writer.files.len() {
            File::create(writer.path(at)).and_then(|file| file.sync_all()).at(&writer.dir)?;
        }
        Ok(writer)
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.join(format!("file{file}"))
    }

    /// Works until an operation fails after the kill, or it is time to end. A
    /// failure before the kill is one of Braid's.
    pub(super) fn work(&mut self, acknowledged: &Sender<()>, phase: &Phase) -> Result<()> {
        let mut open = Vec::new();
        for at in 0..self.files.len() {
            open.push(OpenOptions::new().read(true).write(true).open(self.path(at)).at(&self.dir)?);
        }
        while !phase.over.load(Ordering::SeqCst) {
            match self.step(&open) {
                Ok(false) => {}
                // Nobody counts any more once it is enough.
                Ok(true) => drop(acknowledged.send(())),
                Err(_) if phase.failing.load(Ordering::SeqCst) => return Ok(()),
                Err(error) => return Err(Failure(format!("before the kill: {error}"))),
            }
        }
        Ok(())
    }

    /// One operation; answers whether something was acknowledged as synced.
    fn step(&mut self, open: &[File]) -> io::Result<bool> {
        let at = usize::try_from(self.random.below(FILES)).unwrap_or(0);
        match self.random.below(100) {
            0..60 => self.write(at, &open[at]),
            60..65 => self.truncate(at, &open[at]),
            65..85 => self.sync(at, &open[at]),
            85..95 => self.replace(),
            _ => self.make_and_remove(),
        }
    }

    fn write(&mut self, at: usize, file: &File) -> io::Result<bool> {
        let model = &mut self.files[at];
        let append = self.random.below(3) == 0 && (model.len() as u64) < BLOCKS;
        let first = if append { model.len() as u64 } else { self.random.below(BLOCKS) };
        let count = 1 + self.random.below(8).min(BLOCKS - 1 - first.min(BLOCKS - 1));
        self.version += 1;
        let mut data = Vec::with_capacity(usize::try_from(count).unwrap_or(1) * BLOCK);
        let blocks = || (first..first + count).map(|index| (index, usize::try_from(index).unwrap_or(0)));
        for (index, place) in blocks() {
            model.begin_write(place, self.version);
            data.extend(block(model.number, index, self.version));
        }
        file.write_all_at(&data, first * BLOCK as u64)?;
        blocks().for_each(|(_, place)| model.end_write(place, self.version));
        Ok(false)
    }

    fn truncate(&mut self, at: usize, file: &File) -> io::Result<bool> {
        let len = self.random.below(BLOCKS);
        let blocks = usize::try_from(len).unwrap_or(0);
        self.files[at].begin_truncate(blocks);
        file.set_len(len * BLOCK as u64)?;
        self.files[at].end_truncate(blocks);
        Ok(false)
    }

    fn sync(&mut self, at: usize, file: &File) -> io::Result<bool> {
        if self.random.below(2) == 0 {
            file.sync_all()?
        } else {
            file.sync_data()?
        }
        self.files[at].synced();
        Ok(true)
    }

    /// Writes a temporary file, syncs it, renames it; syncs the directory every
    /// other time.
    fn replace(&mut self) -> io::Result<bool> {
        self.version += 1;
        let temporary = self.dir.join("replaced.new");
        let file = File::create(&temporary)?;
        file.write_all_at(&generation(self.version), 0)?;
        file.sync_all()?;
        self.replaced.possible.push(self.version);
        std::fs::rename(&temporary, self.dir.join("replaced"))?;
        if self.random.below(2) == 0 {
            return Ok(false);
        }
        File::open(&self.dir)?.sync_all()?;
        self.replaced.possible = vec![self.version];
        Ok(true)
    }

    /// Makes a spread file and removes it again; syncs the directory.
    fn make_and_remove(&mut self) -> io::Result<bool> {
        self.version += 1;
        let path = self.dir.join(format!("passing{}", self.version));
        File::create(&path)?.write_all_at(&generation(self.version), 0)?;
        std::fs::remove_file(&path)?;
        File::open(&self.dir)?.sync_all()?;
        self.removed.push(path);
        Ok(true)
    }

    /// Compares all files with what they may look like.
    pub(super) fn verify(&mut self) -> Result<()> {
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
    Random::new(version).fill(&mut data);
    data
}
