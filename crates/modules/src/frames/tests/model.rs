//! Random operations on a file and on a vector of bytes, which agree.

use super::bed::{Bed, checked, compressed, encrypted};
use crate::frames::Pipeline;
use crate::frames::codec::Codec;
use braid_contract::{Caller, FallocateMode, HandleId, InodeId, SeekTarget, SplitMix};

/// As long as several groups of frames of 4 KiB.
const SIZE_MAX: u64 = 300 << 10;

struct Run {
    bed: Bed,
    ino: InodeId,
    handle: HandleId,
    model: Vec<u8>,
    random: SplitMix,
}

impl Run {
    fn new(pipeline: Pipeline, seed: u64) -> Self {
        let bed = Bed::new(pipeline);
        let (ino, handle) = bed.create("file");
        Self { bed, ino, handle, model: Vec::new(), random: SplitMix::new(seed) }
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![self.random.next_u64() as u8; len];
        let by_chance = self.random.below(len as u64 + 1) as usize;
        self.random.fill(&mut data[..by_chance]);
        data
    }

    /// A part of the file, perhaps behind its end, often at borders of frames.
    fn part(&mut self) -> (u64, u64) {
        let near = |random: &mut SplitMix, limit| match random.below(3) {
            0 => random.below(limit) & !4095,
            _ => random.below(limit),
        };
        let longest = self.random.pick(&[50, 5000, 20_000, 200_000]);
        (near(&mut self.random, SIZE_MAX), near(&mut self.random, longest).max(1))
    }

    fn step(&mut self) {
        let (offset, len) = self.part();
        let end = (offset + len) as usize;
        match self.random.below(25) {
            0..=7 => self.write(offset, len as usize),
            8..=9 => self.write(self.model.len() as u64, (len % 9000 + 1) as usize),
            10 => self.resize(offset / 3),
            11 => self.resize(offset),
            12 => self.resize(0),
            13 => self.zero(offset..end as u64, FallocateMode::PunchHole),
            14 => self.zero(offset..end as u64, FallocateMode::ZeroRange { keep_size: true }),
            15 => {
                self.model.resize(self.model.len().max(end), 0);
                self.zero(offset..end as u64, FallocateMode::ZeroRange { keep_size: false });
            }
            16 => {
                self.model.resize(self.model.len().max(end), 0);
                let mode = FallocateMode::Allocate { keep_size: false };
                self.bed.fallocate(self.handle, offset, len, mode).unwrap();
            }
            17..=18 => self.bed.fsync(self.handle),
            19 => self.bed.fs.settle().unwrap(),
            20 => self.reopen(false),
            21 => self.reopen(true),
            22 => self.bed.hand_over(),
            _ => self.look(offset, len as usize),
        }
        assert_eq!(self.bed.attr(self.ino).size, self.model.len() as u64);
    }

    fn write(&mut self, offset: u64, len: usize) {
        let data = self.data(len);
        let end = offset as usize + len;
        self.model.resize(self.model.len().max(end), 0);
        self.model[offset as usize..end].copy_from_slice(&data);
        self.bed.write(self.handle, offset, &data);
    }

    fn resize(&mut self, size: u64) {
        let handle = (self.random.below(2) == 0).then_some(self.handle);
        assert_eq!(self.bed.truncate(self.ino, handle, size).unwrap().size, size);
        self.model.resize(size as usize, 0);
    }

    fn zero(&mut self, part: std::ops::Range<u64>, mode: FallocateMode) {
        self.bed.fallocate(self.handle, part.start, part.end - part.start, mode).unwrap();
        let end = self.model.len().min(part.end as usize);
        if let Some(zeroed) = self.model.get_mut(part.start as usize..end) {
            zeroed.fill(0);
        }
    }

    /// Ends the mount, or has it killed, and opens the file again.
    fn reopen(&mut self, kill: bool) {
        if kill {
            self.bed.kill();
        } else {
            self.bed.close(self.handle);
            let same = self.bed.pipeline.clone();
            self.bed.mount(same).unwrap();
        }
        (self.ino, self.handle) = self.bed.open("file", true).unwrap();
    }

    fn look(&self, offset: u64, len: usize) {
        let from = self.model.len().min(offset as usize);
        let to = self.model.len().min(offset as usize + len);
        assert!(self.bed.read(self.handle, offset, len).unwrap() == self.model[from..to], "at {offset}");
        self.look_for_data(offset);
    }

    /// Bytes outside of data are zero.
    fn look_for_data(&self, offset: u64) {
        if offset >= self.model.len() as u64 {
            return;
        }
        let seek = |target| self.bed.door().seek(&Caller::root(), self.handle, offset, target);
        let data = seek(SeekTarget::Data).map_or(self.model.len() as u64, |data| data);
        assert!(data >= offset);
        assert!(self.model[offset as usize..data as usize].iter().all(|byte| *byte == 0));
        let hole = seek(SeekTarget::Hole).unwrap();
        assert!(hole == offset || data == offset);
        assert!(hole <= self.model.len() as u64);
    }
}

fn agree(pipeline: &Pipeline, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut run = Run::new(pipeline.clone(), seed);
        for step in 0..60 {
            run.step();
            let size = run.model.len();
            assert!(run.bed.read(run.handle, 0, size).unwrap() == run.model, "seed {seed}, step {step}");
        }
        run.bed.close(run.handle);
        run.bed.fs.settle().unwrap();
        run.bed.fs.settle().unwrap();
        assert!(run.bed.content("file").unwrap() == run.model, "seed {seed}");
    }
}

#[test]
fn checked_files_are_as_the_model() {
    agree(&checked(), 0..25);
}

#[test]
fn compressed_files_are_as_the_model() {
    agree(&compressed(Codec::Zstd(1), 65536), 100..115);
    agree(&compressed(Codec::Lz4, 16384), 200..215);
}

#[test]
fn encrypted_files_are_as_the_model() {
    agree(&encrypted(3), 300..320);
}

#[test]
fn threads_write_one_file_together() {
    const PART: usize = 10_000;
    let bed = Bed::new(compressed(Codec::Zstd(1), 4096));
    let (ino, handle) = bed.create("file");
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let bed = &bed;
            scope.spawn(move || {
                for part in (thread..40).step_by(4) {
                    bed.write(handle, (part * PART) as u64, &[part as u8 + 1; PART]);
                    if part % 8 == 0 {
                        bed.fs.settle().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(bed.attr(ino).size, 40 * PART as u64);
    let content = bed.read(handle, 0, 40 * PART).unwrap();
    for (part, bytes) in content.chunks(PART).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == part as u8 + 1), "part {part}");
    }
    bed.close(handle);
}
