//! Faults for drills: set for a tier in the stack file or while the volume is
//! mounted, they make its store fail by rule. Every store is wrapped in a layer
//! for this; unarmed, it costs next to nothing.

use crate::refusal::Located;
use braid_contract::{Errno, Store};
use braid_ipc::protocol::{ArmedFault, Drill, DrillTier, ErrorReply};
use braid_stores::fault::{FaultControl, FaultStore};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use braid_stores::fault::FaultRule;

/// The form of a fault, for messages.
pub(crate) const FORM: &str = "a fault is OPERATION:ERROR, OPERATION:short or OPERATION:hang, then ,after=N ,every=N and ,count=N \
     or ,once as wanted: read:EIO,after=10";

/// The handles that control each tier's faults.
#[derive(Default)]
pub(crate) struct Drills {
    tiers: Mutex<Vec<(String, FaultControl)>>,
}

/// Wraps a store in a layer for faults.
pub(crate) fn put_before(
    store: Arc<dyn Store>,
    faults: &[Located<FaultRule>],
) -> (Arc<dyn Store>, FaultControl) {
    let rules = faults.iter().map(|fault| fault.value).collect();
    let store = FaultStore::new(store, rules);
    let control = store.control();
    (Arc::new(store), control)
}

impl Drills {
    /// Uses this handle for the tier's faults from now on. The faults of its
    /// previous store are lifted: a hanging operation there would keep the
    /// volume from being closed.
    pub(crate) fn enter(&self, tier: &str, control: FaultControl) {
        warn(tier, &control.rules().iter().map(|(rule, _)| *rule).collect::<Vec<_>>());
        let mut tiers = self.tiers();
        match tiers.iter_mut().find(|(name, _)| name == tier) {
            Some((_, old)) => std::mem::replace(old, control).clear(),
            None => tiers.push((tier.to_owned(), control)),
        }
    }

    /// Notes that the tier is not part of the volume any more.
    pub(crate) fn leave(&self, tier: &str) {
        let mut tiers = self.tiers();
        if let Some(at) = tiers.iter().position(|(name, _)| name == tier) {
            tiers.remove(at).1.clear();
        }
    }

    /// Replaces the faults of a tier by `rules`.
    pub(crate) fn arm(&self, tier: &str, rules: &[String]) -> Result<(), ErrorReply> {
        let parse = |rule: &String| {
            rule.parse().map_err(|error| refused(format!("fault {rule}: {error}\n  help: {FORM}")))
        };
        let rules = rules.iter().map(parse).collect::<Result<Vec<FaultRule>, ErrorReply>>()?;
        let tiers = self.tiers();
        let control = tiers.iter().find(|(name, _)| name == tier).map(|(_, control)| control);
        let control = control.ok_or_else(|| {
            refused(format!("no faults can be armed on tier {tier}: it is home, or absent"))
        })?;
        if rules.is_empty() {
            tracing::warn!(tier, "the drill is over: no fault is armed on the tier any more");
        }
        warn(tier, &rules);
        control.set(rules);
        Ok(())
    }

    /// The faults of one tier, or of all.
    pub(crate) fn list(&self, tier: Option<&str>) -> Drill {
        let tiers = self.tiers();
        let wanted = tiers.iter().filter(|(name, _)| tier.is_none_or(|tier| tier == name));
        let one = |(name, control): &(String, FaultControl)| DrillTier {
            tier: name.clone(),
            faults: control
                .rules()
                .iter()
                .map(|(rule, hits)| ArmedFault { rule: rule.to_string(), hits: *hits })
                .collect(),
            hanging: control.hanging() as u64,
        };
        Drill { tiers: wanted.map(one).collect() }
    }

    /// The armed rules of a tier.
    pub(crate) fn armed(&self, tier: &str) -> Vec<String> {
        let list = self.list(Some(tier)).tiers.into_iter();
        list.flat_map(|tier| tier.faults).map(|fault| fault.rule).collect()
    }

    /// Lifts all faults: hanging operations would keep the volume from being
    /// closed.
    pub(crate) fn lift(&self) {
        for (_, control) in self.tiers().iter() {
            control.clear();
        }
    }

    fn tiers(&self) -> MutexGuard<'_, Vec<(String, FaultControl)>> {
        // Each change is a single call.
        self.tiers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warn(tier: &str, rules: &[FaultRule]) {
    if !rules.is_empty() {
        let rules: Vec<String> = rules.iter().map(FaultRule::to_string).collect();
        tracing::warn!(tier, faults = rules.join(" "), "a drill: faults are armed on the tier");
    }
}

fn refused(message: String) -> ErrorReply {
    ErrorReply { errno: Some(Errno::EINVAL.0), message }
}
