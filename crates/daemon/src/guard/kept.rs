//! The states of modules and of the file system at the bottom, as a guard keeps them for the next
//! process.

use braid_modules::{Member, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The longest state that is kept of a module, in bytes.
pub(crate) const STATE_MAX: usize = 1 << 20;

/// Which module a state is of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Its place in the stack, from 1 at the top.
    pub(crate) place: u32,
    pub(crate) module: String,
    /// The mark of its code, which other versions don't have: [`Member::origin`].
    pub(crate) code: String,
}

impl Origin {
    pub(crate) fn of(place: u32, member: &dyn Member) -> Self {
        Self { place, module: member.name().to_owned(), code: member.origin() }
    }
}

/// The state of a module, as it was at a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KeptState {
    pub(crate) origin: Origin,
    /// [`State::version`]
    pub(crate) version: u32,
    pub(crate) bytes: Vec<u8>,
    /// When, as time since the machine began.
    pub(crate) at_ns: u64,
}

impl KeptState {
    pub(crate) fn state(&self) -> State {
        State { version: self.version, bytes: self.bytes.clone() }
    }
}

/// What another process would need of the file system at the bottom.
#[derive(Debug, Default)]
pub(crate) struct KeptBottom {
    pub(crate) state: Value,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// The states of all modules, by their places.
#[derive(Debug, Default)]
pub(crate) struct KeptStates(BTreeMap<u32, KeptState>);

impl KeptStates {
    /// A module has this state now.
    pub(crate) fn put(&mut self, state: KeptState) {
        self.0.insert(state.origin.place, state);
    }

    /// The modules at these places have the same state still.
    pub(crate) fn are_still(&mut self, places: &[u32], at_ns: u64) {
        for place in places {
            if let Some(state) = self.0.get_mut(place) {
                state.at_ns = at_ns;
            }
        }
    }

    /// The module at this place has no state any more that can be kept; `None`: none has.
    pub(crate) fn drop(&mut self, place: Option<u32>) {
        match place {
            Some(place) => _ = self.0.remove(&place),
            None => self.0.clear(),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<KeptState> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_has_the_last_state_of_each_place() {
        let state = |place, at_ns| KeptState {
            origin: Origin { place, module: "m".into(), code: "1".into() },
            version: 1,
            bytes: vec![1],
            at_ns,
        };
        let mut kept = KeptStates::default();
        kept.put(state(1, 10));
        kept.put(state(2, 10));
        kept.put(state(2, 20));
        kept.are_still(&[1, 7], 30);
        assert_eq!(kept.all(), [state(1, 30), state(2, 20)]);
        kept.drop(Some(1));
        assert_eq!(kept.all(), [state(2, 20)]);
        kept.drop(None);
        assert!(kept.all().is_empty());
    }
}
