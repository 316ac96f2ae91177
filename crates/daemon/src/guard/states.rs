//! Sends the guard the states of modules while they are in use: once a second, the changes.

use super::kept::{Origin, STATE_MAX};
use super::link::Link;
use super::wire::GuardMessage;
use crate::clock::now_ns;
use braid_contract::Errno;
use braid_modules::{Member, State};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often modules are asked.
const EVERY: Duration = Duration::from_secs(1);

/// Sends states to the guard, by a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct States {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Says that there are other modules now.
#[derive(Clone, Debug)]
pub(crate) struct Exchanged(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    link: Arc<Link>,
    known: Mutex<Known>,
    changed: Condvar,
}

/// The facts sent to the guard.
#[derive(Debug, Default)]
struct Known {
    /// How often modules were exchanged.
    exchanges: u64,
    /// The known facts about the module at each place.
    modules: BTreeMap<u32, OfModule>,
    over: bool,
}

#[derive(Debug, Default)]
struct OfModule {
    /// Its state, if the guard keeps that.
    state: Option<State>,
    /// The log says that it is not kept.
    is_said: bool,
    /// It did not come back, and is not asked any more.
    is_silent: bool,
}

impl States {
    /// Begins to ask the modules that `present` returns, from the top down.
    ///
    /// # Errors
    /// If there is no thread.
    pub(crate) fn begin(
        link: Arc<Link>,
        present: impl Fn() -> Vec<Arc<dyn Member>> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { link, known: Mutex::default(), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("states".into());
        let thread = thread.spawn(move || of_thread.run(&present))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The way to report that modules were exchanged.
    pub(crate) fn exchanged(&self) -> Exchanged {
        Exchanged(Arc::clone(&self.shared))
    }
}

impl Drop for States {
    fn drop(&mut self) {
        self.shared.known().over = true;
        self.shared.changed.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that asks modules for their states panicked");
        }
    }
}

impl Exchanged {
    /// There are other modules now: kept states count no more.
    pub(crate) fn now(&self) {
        let mut known = self.0.known();
        known.exchanges += 1;
        known.modules.clear();
        self.0.link.tell(&GuardMessage::NoState { place: None }, &[]);
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, present: &dyn Fn() -> Vec<Arc<dyn Member>>) {
        loop {
            let exchanges = self.known().exchanges;
            let has_states = self.ask(exchanges, &present());
            let known = self.known();
            let waits = |known: &mut Known| !known.over && known.exchanges == exchanges;
            let known = if has_states {
                let waited = self.changed.wait_timeout_while(known, EVERY, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                // Only other modules may have some.
                self.changed.wait_while(known, waits).unwrap_or_else(PoisonError::into_inner)
            };
            if known.over {
                return;
            }
        }
    }

    /// Asks all modules, and sends the guard their states. Returns whether one of them has a state.
    fn ask(&self, exchanges: u64, members: &[Arc<dyn Member>]) -> bool {
        let (mut has_states, mut still) = (false, Vec::new());
        let asked_ns = now_ns();
        for (place, member) in (1..).zip(members) {
            if self.known().modules.get(&place).is_some_and(|module| module.is_silent) {
                continue;
            }
            let at_ns = now_ns();
            let snapshot = member.snapshot().transpose();
            let Some(snapshot) = snapshot else { continue };
            has_states = true;
            // Sent under the lock of the exchanges, so that none comes in between.
            let mut known = self.known();
            if known.exchanges != exchanges || known.over {
                return true;
            }
            let module = known.modules.entry(place).or_default();
            match snapshot {
                Ok(state) if module.state.as_ref() == Some(&state) => still.push(place),
                Ok(state) => self.tell(Origin::of(place, &**member), state, at_ns, module),
                Err(error) => {
                    module.is_silent = error.errno() == Errno::EAGAIN;
                    if !std::mem::replace(&mut module.is_said, true) {
                        let module = member.name();
                        tracing::error!(module, %error, "after a crash, the module goes on with an older state, or anew");
                    }
                }
            }
        }
        let known = self.known();
        if !still.is_empty() && known.exchanges == exchanges {
            self.link.tell(&GuardMessage::SameStates { places: still, at_ns: asked_ns }, &[]);
        }
        has_states
    }

    fn tell(&self, origin: Origin, state: State, at_ns: u64, known: &mut OfModule) {
        let (place, len) = (origin.place, state.bytes.len());
        if state == State::default() || len > STATE_MAX {
            if len > STATE_MAX && !std::mem::replace(&mut known.is_said, true) {
                let module = origin.module;
                tracing::warn!(module, len, "after a crash, the module begins anew: its state is too long");
            }
            if known.state.take().is_some() {
                self.link.tell(&GuardMessage::NoState { place: Some(place) }, &[]);
            }
            return;
        }
        let message = GuardMessage::State { origin, version: state.version, len: len as u64, at_ns };
        self.link.tell_with(&message, &state.bytes);
        known.state = Some(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_member::Fake;
    use crate::peer::Peer;
    use std::os::unix::net::UnixStream;

    /// A message at the guard's side, and the bytes behind it.
    fn heard(peer: &mut Peer) -> (GuardMessage, Vec<u8>) {
        let message = peer.hear().unwrap();
        let bytes = if let GuardMessage::State { len, .. } = &message {
            peer.hear_bytes(*len).unwrap()
        } else {
            Vec::new()
        };
        (message, bytes)
    }

    /// The second of two modules, both, the side that asks them, and the guard.
    struct Bed {
        fake: Arc<Fake>,
        members: Vec<Arc<dyn Member>>,
        shared: Arc<Shared>,
        guard: Peer,
    }

    fn bed() -> Bed {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(ours).unwrap());
        let shared = Shared { link, known: Mutex::default(), changed: Condvar::new() };
        let fake = Arc::new(Fake::new("b"));
        let members: Vec<Arc<dyn Member>> = vec![Arc::new(Fake::new("a")), Arc::clone(&fake) as _];
        theirs.set_nonblocking(true).unwrap();
        Bed { fake, members, shared: Arc::new(shared), guard: Peer(theirs) }
    }

    #[test]
    fn the_guard_is_told_what_changed() {
        let Bed { fake, members, shared, mut guard } = bed();
        assert!(!shared.ask(0, &members), "none of them keeps anything");
        fake.has(Ok(b"one"));
        assert!(shared.ask(0, &members));
        let (GuardMessage::State { origin, version: 1, .. }, bytes) = heard(&mut guard) else { panic!() };
        assert_eq!((origin.place, origin.module.as_str(), &bytes[..]), (2, "b", &b"one"[..]));
        shared.ask(0, &members);
        let (GuardMessage::SameStates { places, .. }, _) = heard(&mut guard) else { panic!() };
        assert_eq!(places, [2]);
        // If a state can't be given, the one before stays.
        fake.has(Err(Errno::EIO));
        shared.ask(0, &members);
        fake.has(Ok(b"two"));
        shared.ask(0, &members);
        assert_eq!(heard(&mut guard).1, b"two");
        fake.has(Ok(&vec![0; STATE_MAX + 1]));
        shared.ask(0, &members);
        let (GuardMessage::NoState { place: Some(2) }, _) = heard(&mut guard) else { panic!() };
        shared.ask(0, &members);
        assert!(guard.hear::<GuardMessage>().is_err(), "there is nothing to say of it any more");
    }

    #[test]
    fn what_was_asked_before_an_exchange_is_not_told_after_it() {
        let Bed { fake, members, shared, mut guard } = bed();
        fake.has(Ok(b"one"));
        Exchanged(Arc::clone(&shared)).now();
        let (GuardMessage::NoState { place: None }, _) = heard(&mut guard) else { panic!() };
        shared.ask(0, &members);
        assert!(guard.hear::<GuardMessage>().is_err());
        shared.ask(1, &members);
        assert_eq!(heard(&mut guard).1, b"one");
    }

    #[test]
    fn who_does_not_come_back_is_not_asked_again() {
        let Bed { fake, members, shared, guard: _guard } = bed();
        fake.has(Err(Errno::EAGAIN));
        shared.ask(0, &members);
        shared.ask(0, &members);
        assert_eq!(fake.told.lock().unwrap().len(), 1);
    }
}
