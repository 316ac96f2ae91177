//! Every call through the module reaches the child once, with the same
//! arguments, and its answer comes back.

use super::*;
use crate::State;
use braid_contract::{Errno, Operation, Served};
use braid_testkit::every_operation::{Recorder, call_everything};

#[test]
fn two_layers_change_nothing() {
    let bare = Served(Recorder::default());
    let wrapped = Arc::new(Served(Recorder::default()));
    let stack = Noop::new(&Settings {}, Arc::new(Noop::new(&Settings {}, wrapped.clone()).unwrap())).unwrap();

    assert_eq!(call_everything(&stack), call_everything(&bare));
    let calls = bare.0.calls();
    assert_eq!(wrapped.0.calls(), calls);
    for operation in Operation::ALL {
        let count = calls.iter().filter(|(called, _)| *called == Some(*operation)).count();
        assert_eq!(count, 1, "{operation}");
    }
    assert_eq!(calls.len(), Operation::ALL.len() + 1, "and the capabilities");
}

#[test]
fn there_is_no_state() {
    let stack = Noop::new(&Settings {}, Arc::new(Served(Recorder::default()))).unwrap();
    assert_eq!(Module::export(&stack), State::default());
    assert!(Module::import(&stack, &State::default()).is_ok());
    let later = State { version: 1, bytes: Vec::new() };
    assert_eq!(Module::import(&stack, &later).unwrap_err().errno(), Errno::EINVAL);
}
