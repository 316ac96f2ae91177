//! The conversations with one process, each lent to one operation at a time.

use super::pipe::Pipe;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Conversations until one fails.
#[derive(Debug, Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Pipe>,
    is_closed: bool,
}

/// The reason why none is lent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// They have ended.
    Closed,
    /// All were lent to others for the whole time.
    Busy,
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, pipe: Pipe) {
        self.state().idle.push(pipe);
        self.changed.notify_one();
    }

    /// Lends one for an exchange, waiting for it at most this long. If that fails or panics, the
    /// state of the conversation is unknown, and all end.
    pub(super) fn with<T>(
        &self,
        patience: Duration,
        exchange: impl FnOnce(&Pipe) -> io::Result<T>,
    ) -> Result<io::Result<T>, Refusal> {
        let pipe = self.take(patience)?;
        let closes = Closes(self);
        let done = exchange(&pipe);
        if done.is_ok() {
            std::mem::forget(closes);
            self.add(pipe);
        }
        Ok(done)
    }

    fn take(&self, patience: Duration) -> Result<Pipe, Refusal> {
        let is_taken = |state: &mut State| state.idle.is_empty() && !state.is_closed;
        let waited = self.changed.wait_timeout_while(self.state(), patience, is_taken);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return Err(Refusal::Closed);
        }
        state.idle.pop().ok_or(Refusal::Busy)
    }

    /// Ends them: a thread that waits for one waits no more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}

struct Closes<'a>(&'a Pool);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    fn pool() -> Pool {
        let pool = Pool::default();
        pool.add(Pipe::new(UnixStream::pair().unwrap().0));
        pool
    }

    /// The result of another thread that waits while one does this.
    fn beside(pool: &Pool, this: impl FnOnce() -> io::Result<()> + Send) -> Result<(), Refusal> {
        std::thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            let one = scope.spawn(move || {
                let exchange = |_: &Pipe| {
                    begin.send(()).unwrap();
                    this()
                };
                pool.with(Duration::MAX, exchange)
            });
            begun.recv().unwrap();
            let other = scope.spawn(|| pool.with(Duration::MAX, |_| Ok(())).map(Result::unwrap));
            let _ = one.join();
            other.join().unwrap()
        })
    }

    #[test]
    fn who_waits_gets_one_or_hears_of_the_end() {
        let pool = pool();
        let busy = || {
            assert_eq!(pool.with(Duration::ZERO, |_| Ok(())).unwrap_err(), Refusal::Busy);
            Ok(())
        };
        assert_eq!(beside(&pool, busy), Ok(()));
        assert_eq!(beside(&pool, || Err(io::ErrorKind::InvalidData.into())), Err(Refusal::Closed));
        assert!(pool.is_closed());
    }

    #[test]
    fn a_panic_ends_them() {
        let pool = pool();
        assert_eq!(beside(&pool, || panic!("as the test wants")), Err(Refusal::Closed));
        assert!(pool.is_closed());
    }
}
