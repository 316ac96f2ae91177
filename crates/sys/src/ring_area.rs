//! The memory of all entries of a session's rings, in one file of its own, so that another
//! process can go on with them: the kernel reads and writes an entry where it was
//! registered, in the memory of the process that hands it over.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::collections::HashSet;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where areas are mapped: far from all that the kernel maps by itself, so that the place
/// is free in another process too.
const PLACES_FROM: usize = 0x2000_0000_0000;
/// Space between two places, and how many there are: a process may serve several mounts.
const PLACE_LEN: usize = 1 << 40;
const PLACES: usize = 64;

/// Slots of shared memory, at a fixed place.
#[derive(Debug)]
pub struct RingArea {
    file: OwnedFd,
    place: usize,
    slots: usize,
    slot_len: usize,
    /// Slots in use.
    taken: Mutex<HashSet<usize>>,
}

impl RingArea {
    /// An area of `slots` slots of `slot_len` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// There is no memory, or no place.
    pub fn new(slots: usize, slot_len: usize) -> io::Result<Self> {
        let file = memfd_create(c"braid-rings", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (slots * slot_len) as u64)?;
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for number in 0..PLACES {
            let area = file.try_clone()?;
            match Self::map(area, PLACES_FROM + number * PLACE_LEN, slots, slot_len) {
                Ok(area) => return Ok(area),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The area of another process, at the same place.
    ///
    /// # Errors
    /// The place is taken, or is none; the file is not that of such an area.
    pub fn received(file: OwnedFd, place: u64, slots: usize, slot_len: usize) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let place = usize::try_from(place).map_err(|_| invalid())?;
        let is_place = (0..PLACES).any(|number| place == PLACES_FROM + number * PLACE_LEN);
        let len =
            slots.checked_mul(slot_len).filter(|len| *len > 0 && *len <= PLACE_LEN).ok_or_else(invalid)?;
        let size = rustix::fs::fstat(&file)?.st_size;
        if !is_place || size != len as i64 {
            return Err(invalid());
        }
        Self::map(file, place, slots, slot_len)
    }

    fn map(file: OwnedFd, place: usize, slots: usize, slot_len: usize) -> io::Result<Self> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
        let at = std::ptr::without_provenance_mut::<c_void>(place);
        // SAFETY: nothing is mapped there, or the call fails.
        let mapped = unsafe { mmap(at, slots * slot_len, access, flags, &file, 0)? };
        if mapped.addr() != place {
            // A kernel before 4.17 takes the place for a wish.
            // SAFETY: it was just mapped, and nothing uses it.
            unsafe { munmap(mapped, slots * slot_len)? };
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Self { file, place, slots, slot_len, taken: Mutex::default() })
    }

    /// Where it is mapped.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.place as u64
    }

    /// How many slots it has.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// How long each is.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// The slot of this number, for one user at a time; `None` if there is none, or it has
    /// one.
    pub(crate) fn take(self: &Arc<Self>, number: usize) -> Option<Slot> {
        let free = number < self.slots && self.lock().insert(number);
        free.then(|| Slot { area: Arc::clone(self), number })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot in use.
#[derive(Debug)]
pub(crate) struct Slot {
    area: Arc<RingArea>,
    number: usize,
}

impl Slot {
    /// Where it begins.
    pub(crate) fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.area.place + self.number * self.area.slot_len)
    }

    /// How long it is.
    pub(crate) fn len(&self) -> usize {
        self.area.slot_len
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.area.lock().remove(&self.number);
    }
}

impl AsFd for RingArea {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for RingArea {
    fn drop(&mut self) {
        let at = std::ptr::without_provenance_mut::<c_void>(self.place);
        // SAFETY: rings that use it hold a reference, so that there are none.
        let _ = unsafe { munmap(at, self.slots * self.slot_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_have_places_of_their_own_and_are_found_there() {
        let area = |slots, len| Arc::new(RingArea::new(slots, len).unwrap());
        let (first, second) = (area(3, 8192), area(1, 4096));
        assert_ne!(first.place(), second.place());
        let file = || first.file.try_clone().unwrap();
        let (one, other, place) = (file(), file(), first.place());
        assert!(RingArea::received(file(), place, 3, 8192).is_err(), "it is in use");
        let slot = first.take(2).unwrap();
        assert!(first.take(2).is_none() && first.take(3).is_none());
        // SAFETY: the slot is mapped, and nothing else uses it.
        unsafe { slot.start().write(7) };
        drop(slot);
        assert!(first.take(2).is_some());
        drop(first);
        assert!(RingArea::received(one.try_clone().unwrap(), place + 4096, 3, 8192).is_err());
        assert!(RingArea::received(one, place, 4, 8192).is_err());
        let again = Arc::new(RingArea::received(other, place, 3, 8192).unwrap());
        // SAFETY: as before.
        assert_eq!(unsafe { again.take(2).unwrap().start().read() }, 7);
    }
}
