//! What a store has to have after power loss: of each byte, the values that it may
//! have.

use braid_contract::{Errno, ObjectId, Store, StoreIo};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};

/// A byte: what it is, and what else it may be after power loss.
#[derive(Clone, Debug)]
struct Byte {
    now: u8,
    written: bool,
    perhaps: Vec<u8>,
}

impl Byte {
    const UNWRITTEN: Self = Self { now: 0, written: false, perhaps: Vec::new() };

    fn set(&mut self, now: u8, written: bool) {
        if !self.perhaps.contains(&self.now) {
            self.perhaps.push(self.now);
        }
        (self.now, self.written) = (now, written);
    }
}

#[derive(Clone, Debug, Default)]
struct Object {
    bytes: Vec<Byte>,
    /// There, as far as the store says.
    exists: bool,
    /// Whether it may be there, and may be missing, after power loss.
    may: [bool; 2],
}

/// The objects of a store, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model(BTreeMap<u8, Object>);

pub(crate) fn id(number: u8) -> ObjectId {
    ObjectId([number; 16])
}

impl Model {
    pub(crate) fn exists(&self, number: u8) -> bool {
        self.0.get(&number).is_some_and(|object| object.exists)
    }

    pub(crate) fn size(&self, number: u8) -> usize {
        self.0.get(&number).map_or(0, |object| object.bytes.len())
    }

    pub(crate) fn is_written(&self, number: u8, offset: usize, len: usize) -> bool {
        let object = &self.0[&number];
        object.bytes.iter().skip(offset).take(len).any(|byte| byte.written)
    }

    pub(crate) fn created(&mut self, number: u8) {
        let object = self.0.entry(number).or_default();
        // Missing, or what it was before it was removed.
        object.may = [true, true];
        object.exists = true;
    }

    pub(crate) fn wrote(&mut self, number: u8, offset: usize, data: &[u8]) {
        let Some(object) = self.0.get_mut(&number) else { return };
        if object.bytes.len() < offset + data.len() {
            object.bytes.resize(offset + data.len(), Byte::UNWRITTEN);
        }
        for (byte, value) in object.bytes[offset..].iter_mut().zip(data) {
            byte.set(*value, true);
        }
    }

    pub(crate) fn cut(&mut self, number: u8, offset: usize, len: usize) {
        let Some(object) = self.0.get_mut(&number) else { return };
        object.bytes.iter_mut().skip(offset).take(len).for_each(|byte| byte.set(0, false));
    }

    pub(crate) fn resized(&mut self, number: u8, size: usize) {
        self.cut(number, size, usize::MAX);
        let Some(object) = self.0.get_mut(&number) else { return };
        // What was beyond may come back.
        if size > object.bytes.len() || object.bytes[size..].iter().all(|byte| byte.perhaps == [0]) {
            object.bytes.resize(size, Byte::UNWRITTEN);
        }
    }

    pub(crate) fn removed(&mut self, number: u8) {
        self.cut(number, 0, usize::MAX);
        let Some(object) = self.0.get_mut(&number) else { return };
        object.exists = false;
        object.may[1] = true;
    }

    pub(crate) fn synced(&mut self, number: u8) {
        let Some(object) = self.0.get_mut(&number) else { return };
        object.bytes.iter_mut().for_each(|byte| byte.perhaps.clear());
        object.may = [object.exists, !object.exists];
    }

    pub(crate) fn all_synced(&mut self) {
        let numbers: Vec<u8> = self.0.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.synced(number));
    }

    /// What the store says of an object, to its end.
    fn read(store: &dyn Store, number: u8) -> Option<Vec<u8>> {
        let size = match store.stat(id(number)) {
            Err(error) if error.errno() == Errno::ENOENT => return None,
            stat => stat.unwrap().size,
        };
        let mut bytes = vec![0; size as usize];
        let done =
            store.read_at(id(number), 0, &mut [IoSliceMut::new(&mut bytes)], StoreIo::default()).unwrap();
        assert_eq!(done, bytes.len(), "read of {number}");
        Some(bytes)
    }

    /// The store is as it says.
    pub(crate) fn compare(&self, store: &dyn Store) {
        for (number, object) in &self.0 {
            let found = Self::read(store, *number);
            assert_eq!(found.is_some(), object.exists, "whether {number} exists");
            let Some(found) = found else { continue };
            let wanted: Vec<u8> = object.bytes.iter().map(|byte| byte.now).collect();
            let differs = (0..found.len().max(wanted.len()))
                .find(|at| found.get(*at).unwrap_or(&0) != wanted.get(*at).unwrap_or(&0));
            assert_eq!(differs, None, "the first wrong byte of {number}, of {}", found.len());
        }
    }

    /// The power was lost: the store has what it must, and is taken as it is from
    /// now on.
    pub(crate) fn recover(&mut self, store: &dyn Store) {
        for (number, object) in &mut self.0 {
            let found = Self::read(store, *number);
            assert!(object.may[usize::from(found.is_none())], "{number} is there: {}", found.is_some());
            object.exists = found.is_some();
            object.may = [object.exists, !object.exists];
            let found = found.unwrap_or_default();
            for (at, byte) in object.bytes.iter().enumerate() {
                let value = found.get(at).copied().unwrap_or(0);
                let may_be = value == byte.now || byte.perhaps.contains(&value) || !object.exists;
                assert!(may_be, "byte {at} of {number} is {value}: {byte:?}");
            }
            for (at, value) in found.iter().enumerate().skip(object.bytes.len()) {
                assert_eq!(*value, 0, "byte {at} of {number}, which was never written");
            }
            object.bytes =
                found.iter().map(|value| Byte { now: *value, written: false, perhaps: Vec::new() }).collect();
            // What counts as written is the store's to say.
            let mut at = 0;
            while object.exists
                && let Some((start, end)) = store.next_data(id(*number), at).unwrap()
            {
                object
                    .bytes
                    .iter_mut()
                    .take(end as usize)
                    .skip(start as usize)
                    .for_each(|byte| byte.written = true);
                at = end;
            }
        }
    }
}

/// Writes all of it; `None` if the power went.
pub(crate) fn write(
    store: &dyn Store,
    number: u8,
    offset: usize,
    data: &[u8],
    io: StoreIo,
) -> Result<usize, Errno> {
    store.write_at(id(number), offset as u64, &[IoSlice::new(data)], io).map_err(|error| error.errno())
}
