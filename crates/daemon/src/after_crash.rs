//! How modules go on after a crash of the process before (LabStor §3.3, `StateRepair`).

use crate::clock::now_ns;
use crate::guard::{KeptState, Origin};
use braid_contract::{AfterCrash, Crash, Errno, Result};
use braid_modules::Member;
use std::sync::Arc;
use std::time::Duration;

/// Has modules, from the top down, take over their kept states, then repair the leftovers of the
/// crash of this number, the lowest first. No operation has come yet. Returns how each went on.
///
/// # Errors
/// If a module says that going on would be wrong.
pub(crate) fn go_on(members: &[Arc<dyn Member>], kept: &[KeptState], count: u64) -> Result<Vec<AfterCrash>> {
    let placed = (1..).zip(members);
    let mut taken: Vec<_> = placed.map(|(place, member)| take_over(place, &**member, kept)).collect();
    for (member, (state_age, after)) in members.iter().zip(&mut taken).rev() {
        let Err(error) = member.repair(Crash { count, state_age: *state_age }) else { continue };
        tracing::error!(module = member.name(), %error, "what a crash has left could not be repaired");
        if error.errno() == Errno::ENOTRECOVERABLE {
            return Err(error.context(format!("module {} can't go on after the crash", member.name())));
        }
        let said = format!("it could not repair what the crash left: {error}");
        after.error = Some(match after.error.take() {
            Some(first) => format!("{first}; {said}"),
            None => said,
        });
    }
    Ok(taken.into_iter().map(|(_, after)| after).collect())
}

/// Has a module take over its kept state, which must be its own. Returns the state's age, and a
/// text for people.
fn take_over(place: u32, member: &dyn Member, kept: &[KeptState]) -> (Option<Duration>, AfterCrash) {
    let Some(state) = kept.iter().find(|state| state.origin.place == place) else {
        return (None, AfterCrash::default());
    };
    let (origin, of) = (Origin::of(place, member), &state.origin);
    if *of != origin {
        tracing::warn!(
            module = origin.module,
            code = origin.code,
            kept_of = of.module,
            kept_code = of.code,
            "the module begins anew: what was kept is of another one"
        );
        return (None, AfterCrash::default());
    }
    if let Err(error) = member.import(&state.state()) {
        tracing::error!(module = member.name(), %error, "what the module had gathered is lost");
        let error = format!("it begins anew, since it did not take its state over: {error}");
        return (None, AfterCrash { state_age_seconds: None, error: Some(error) });
    }
    let age = Duration::from_nanos(now_ns().saturating_sub(state.at_ns));
    (Some(age), AfterCrash { state_age_seconds: Some(age.as_secs_f64()), error: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_member::Fake;
    use std::sync::Mutex;

    fn kept(member: &dyn Member, place: u32, bytes: &[u8]) -> KeptState {
        let origin = Origin::of(place, member);
        KeptState { origin, version: 1, bytes: bytes.to_vec(), at_ns: now_ns() }
    }

    #[test]
    fn states_come_before_repairs_and_the_lowest_repairs_first() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let fake = |name| Fake { told: Arc::clone(&told), ..Fake::new(name) };
        let members: [Arc<dyn Member>; 3] = [Arc::new(fake("a")), Arc::new(fake("b")), Arc::new(fake("c"))];
        let other = KeptState {
            origin: Origin { code: "another".into(), ..Origin::of(2, &*members[1]) },
            ..kept(&*members[1], 2, b"b")
        };
        let kept = [kept(&*members[0], 1, b"x"), other, kept(&*members[2], 3, b"refused")];
        let after = go_on(&members, &kept, 4).unwrap();
        let told = told.lock().unwrap();
        assert_eq!(
            **told,
            ["a takes x", "c takes refused", "c repairs 4 anew", "b repairs 4 anew", "a repairs 4"]
        );
        assert!(after[0].state_age_seconds.is_some() && after[0].error.is_none());
        assert_eq!(after[1], AfterCrash::default());
        assert!(after[2].error.as_ref().unwrap().contains("did not take its state over"));
    }

    #[test]
    fn a_repair_that_fails_is_told_and_one_that_says_so_ends_all() {
        let failing = |errno| Arc::new(Fake { repair: Err(errno), ..Fake::new("a") });
        let after = go_on(&[failing(Errno::EIO)], &[], 1).unwrap();
        assert!(after[0].error.as_ref().unwrap().contains("could not repair"), "{after:?}");
        let error = go_on(&[failing(Errno::ENOTRECOVERABLE)], &[], 1).unwrap_err();
        assert!(error.to_string().contains("module a can't go on"), "{error}");
    }
}
