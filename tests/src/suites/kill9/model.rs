//! The possible states of a file after a crash: the state at its last sync, or
//! later ones, block by block.

use crate::stamps::{BLOCK, versions};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The versions that the sectors of a block are of; 0 is zeros.
type Versions = BTreeSet<u64>;

/// A file of stamped blocks.
pub(super) struct Model {
    /// The number in its stamps.
    pub(super) number: u64,
    /// The contents of each block for a reader now.
    live: Vec<Versions>,
    /// The size for a reader now, in bytes.
    size: u64,
    /// The possible contents of each block after a crash.
    possible: Vec<Versions>,
    /// The smallest and the largest possible size then, in bytes.
    sizes: (u64, u64),
}

impl Model {
    /// An empty file, synced.
    pub(super) fn new(number: u64) -> Self {
        Self { number, live: Vec::new(), size: 0, possible: Vec::new(), sizes: (0, 0) }
    }

    /// Resumes from a [`state`](Self::state), for a file that is synced as it
    /// is.
    pub(super) fn resume(number: u64, state: &Value) -> Option<Self> {
        let blocks = state["blocks"].as_array()?.iter();
        let versions = |block: &Value| block.as_array()?.iter().map(Value::as_u64).collect();
        let live = blocks.map(versions).collect::<Option<Vec<Versions>>>()?;
        let mut model = Self { live, size: state["size"].as_u64()?, ..Self::new(number) };
        model.synced();
        Some(model)
    }

    /// The state for a reader now, in JSON.
    pub(super) fn state(&self) -> Value {
        json!({ "size": self.size, "blocks": self.live })
    }

    /// Blocks that the file has now.
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// To be called before a write, since a failed one may have happened.
    pub(super) fn begin_write(&mut self, at: usize, version: u64) {
        self.cover(at + 1);
        self.possible[at].insert(version);
        if let Some(last) = self.cut_block(bytes(at + 1)) {
            self.possible[last].insert(0);
        }
        self.sizes.1 = self.sizes.1.max(bytes(at + 1));
    }

    /// The write has succeeded.
    pub(super) fn end_write(&mut self, at: usize, version: u64) {
        if self.live.len() <= at {
            self.zero_rest(bytes(at + 1));
            self.live.resize(at + 1, [0].into());
        }
        self.live[at] = [version].into();
        self.size = self.size.max(bytes(at + 1));
    }

    /// To be called before a truncation.
    pub(super) fn begin_truncate(&mut self, len: usize) {
        self.cover(len);
        if let Some(last) = self.cut_block(bytes(len)) {
            self.possible[last].insert(0);
        }
        self.possible.iter_mut().skip(len).for_each(|block| _ = block.insert(0));
        self.sizes = (self.sizes.0.min(bytes(len)), self.sizes.1.max(bytes(len)));
    }

    /// The truncation has succeeded.
    pub(super) fn end_truncate(&mut self, len: usize) {
        self.zero_rest(bytes(len));
        self.live.resize(len, [0].into());
        self.size = bytes(len);
    }

    /// Notes a successful sync of the file: the present state stays.
    pub(super) fn synced(&mut self) {
        self.possible = self.live.clone();
        self.sizes = (self.size, self.size);
    }

    /// The last block, if a crash left a part of it and the file grows to `size`:
    /// the rest is zeros then.
    fn cut_block(&self, size: u64) -> Option<usize> {
        let cut = size > self.size && !self.size.is_multiple_of(BLOCK as u64);
        cut.then(|| (self.size / BLOCK as u64) as usize)
    }

    /// The file grows to `size`.
    fn zero_rest(&mut self, size: u64) {
        if let Some(last) = self.cut_block(size) {
            self.live[last].insert(0);
        }
    }

    fn cover(&mut self, len: usize) {
        while self.possible.len() < len {
            self.possible.push([0].into());
        }
    }

    /// Compares the data found with the possible states, and adopts it.
    pub(super) fn verify(&mut self, data: &[u8]) -> Result<(), String> {
        let (size, (smallest, largest)) = (data.len() as u64, self.sizes);
        if size < smallest || size > largest {
            return Err(format!("{size} bytes long, not {smallest} to {largest}"));
        }
        let mut found = Vec::new();
        for (block, at) in data.chunks(BLOCK).zip(0..) {
            let Some(seen) = versions(block, self.number, at as u64) else {
                return Err(format!("block {at} holds what was never written there"));
            };
            let allowed = &self.possible[at];
            if !seen.is_subset(allowed) {
                return Err(format!("block {at} is of versions {seen:?}, allowed are {allowed:?}"));
            }
            found.push(seen);
        }
        (self.live, self.size) = (found, size);
        self.synced();
        Ok(())
    }
}

fn bytes(blocks: usize) -> u64 {
    blocks as u64 * BLOCK as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamps::block;

    fn written(synced: bool) -> Model {
        let mut model = Model::new(7);
        model.begin_write(0, 1);
        model.end_write(0, 1);
        model.synced();
        model.begin_write(0, 2);
        model.end_write(0, 2);
        if synced {
            model.synced();
        }
        model
    }

    #[test]
    fn the_rest_of_a_block_that_a_crash_left_in_part_is_zeros_once_the_file_grows() {
        let mut model = Model::new(7);
        model.begin_write(0, 1);
        model.end_write(0, 1);
        assert_eq!(model.verify(&block(7, 0, 1)[..BLOCK / 4]), Ok(()));
        model.begin_write(1, 2);
        model.end_write(1, 2);
        model.synced();
        let mut data = block(7, 0, 1);
        data[BLOCK / 4..].fill(0);
        data.extend(block(7, 1, 2));
        assert_eq!(model.verify(&data), Ok(()));
        assert!(model.verify(&data[..BLOCK]).is_err());
    }

    #[test]
    fn a_write_that_was_not_synced_may_be_lost() {
        assert_eq!(written(false).verify(&block(7, 0, 1)), Ok(()));
        assert_eq!(written(false).verify(&block(7, 0, 2)), Ok(()));
    }

    #[test]
    fn a_write_that_was_synced_must_not_be_lost() {
        assert!(written(true).verify(&block(7, 0, 1)).is_err());
        assert!(written(true).verify(&[0; BLOCK]).is_err());
        assert!(written(true).verify(&[]).is_err());
        assert_eq!(written(true).verify(&block(7, 0, 2)), Ok(()));
    }

    #[test]
    fn a_state_comes_back_as_it_was() {
        let state = written(true).state();
        let mut model = Model::resume(7, &state).unwrap();
        assert_eq!(model.state(), state);
        assert!(model.verify(&block(7, 0, 1)).is_err());
        assert_eq!(model.verify(&block(7, 0, 2)), Ok(()));
    }

    #[test]
    fn data_from_elsewhere_is_noticed() {
        assert!(written(false).verify(&block(7, 1, 2)).is_err());
        assert!(written(false).verify(&block(8, 0, 2)).is_err());
    }

    #[test]
    fn what_a_synced_truncation_cut_off_must_not_come_back() {
        let cut = |synced| {
            let mut model = written(true);
            model.begin_truncate(0);
            model.end_truncate(0);
            if synced {
                model.synced();
            }
            model.begin_truncate(1);
            model.end_truncate(1);
            model
        };
        assert_eq!(cut(false).verify(&block(7, 0, 2)), Ok(()));
        assert!(cut(true).verify(&block(7, 0, 2)).is_err());
        assert_eq!(cut(true).verify(&[0; BLOCK]), Ok(()));
        assert_eq!(cut(true).verify(&[]), Ok(()));
    }
}
