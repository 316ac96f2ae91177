//! The io_urings of a driver, each used by one thread at a time.

use parking_lot::{Condvar, Mutex};
use std::io;

/// Most rings of a device: further operations wait for one.
const RINGS_MAX: usize = 64;

/// Rings that are made as they are needed.
#[derive(Debug)]
pub(crate) struct Rings<R> {
    make: fn() -> io::Result<R>,
    is_usable: fn(&R) -> bool,
    state: Mutex<State<R>>,
    returned: Condvar,
}

#[derive(Debug)]
struct State<R> {
    free: Vec<R>,
    /// Free and in use.
    all: usize,
}

impl<R> Rings<R> {
    /// With a first one.
    ///
    /// # Errors
    /// It can't be made.
    pub(crate) fn new(make: fn() -> io::Result<R>, is_usable: fn(&R) -> bool) -> io::Result<Self> {
        let state = Mutex::new(State { free: vec![make()?], all: 1 });
        Ok(Self { make, is_usable, state, returned: Condvar::new() })
    }

    /// Runs `work` with a ring; waits for one where no more can be made.
    ///
    /// # Errors
    /// That of `work`; that of making a ring if there is none.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut R) -> io::Result<T>) -> io::Result<T> {
        let mut ring = self.take()?;
        let result = work(&mut ring);
        let mut state = self.state.lock();
        match (self.is_usable)(&ring) {
            true => state.free.push(ring),
            false => state.all -= 1,
        }
        self.returned.notify_one();
        result
    }

    fn take(&self) -> io::Result<R> {
        let mut state = self.state.lock();
        loop {
            if let Some(ring) = state.free.pop() {
                return Ok(ring);
            }
            let made = if state.all < RINGS_MAX { (self.make)() } else { Err(io::ErrorKind::Other.into()) };
            match made {
                Ok(ring) => {
                    state.all += 1;
                    return Ok(ring);
                }
                Err(error) if state.all == 0 => {
                    // Nor will there be one for others that wait.
                    self.returned.notify_all();
                    return Err(error);
                }
                Err(_) => self.returned.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_get_a_ring_where_few_can_be_made_and_broken_ones_are_replaced() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let make = || match MADE.fetch_add(1, Ordering::Relaxed) % 3 {
            2 => Err(io::ErrorKind::OutOfMemory.into()),
            number => Ok(number),
        };
        let rings = Rings::new(make, |ring| *ring < 10).unwrap();
        let served = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for turn in 0..200 {
                let (rings, served) = (&rings, &served);
                scope.spawn(move || {
                    let done = rings.with(|ring| {
                        *ring += if turn % 7 == 0 { 10 } else { 0 };
                        Ok(())
                    });
                    served.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
                });
            }
        });
        // It fails only if there is none, and none can be made.
        assert!(served.into_inner() > 100);
        let state = rings.state.lock();
        assert_eq!(state.free.len(), state.all);
    }
}
