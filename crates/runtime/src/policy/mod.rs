//! Which worker serves which queue (LabStor §III-C.4): pure functions of what was measured.
//!
//! The pool asks for a [`Plan`] when a session comes or goes, and from time to time.

mod dynamic;
mod round_robin;
mod sacks;

pub(crate) use dynamic::Dynamic;
pub(crate) use round_robin::RoundRobin;

use braid_contract::Class;

/// What is known of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// What its requests want; never [`Class::Auto`].
    pub(crate) class: Class,
    /// Workers that it keeps busy, as measured, with what waits in it: 0.5 is half of one.
    pub(crate) weight: f64,
    /// Several workers may serve it at the same time.
    pub(crate) free: bool,
}

/// What a worker serves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    /// Queues, by their places among the demands.
    pub(crate) queues: Vec<usize>,
    /// It serves only requests that want to be answered soon, and has a processor for
    /// itself, if there are enough.
    pub(crate) latency: bool,
}

/// What each worker serves; no worker is without a queue, if there are queues.
pub(crate) type Plan = Vec<Share>;

/// A way to give queues to workers.
pub(crate) trait Policy: Send {
    /// A plan with at most `workers`.
    fn plan(&self, demands: &[Demand], workers: usize) -> Plan;
}

/// The busiest worker's weight under a plan. A queue of several workers counts for each by
/// its part.
pub(crate) fn busiest(plan: &Plan, demands: &[Demand]) -> f64 {
    let servers = |queue: usize| plan.iter().filter(|share| share.queues.contains(&queue)).count().max(1);
    let weight =
        |queue: &usize| demands.get(*queue).map_or(0.0, |demand| demand.weight / servers(*queue) as f64);
    plan.iter().map(|share| share.queues.iter().map(weight).sum::<f64>()).fold(0.0, f64::max)
}

/// The places of the demands of a class.
fn of_class(demands: &[Demand], class: Class) -> Vec<usize> {
    (0..demands.len()).filter(|at| demands[*at].class == class).collect()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn demands() -> impl Strategy<Value = Vec<Demand>> {
        let class = prop_oneof![Just(Class::Latency), Just(Class::Throughput)];
        let demand = (class, 0.0..2.0f64, any::<bool>()).prop_map(|(class, weight, free)| Demand {
            class,
            weight,
            free,
        });
        prop::collection::vec(demand, 0..20)
    }

    /// Each queue has a worker, and only a free one has several; no worker is idle.
    pub(crate) fn check(plan: &Plan, demands: &[Demand], workers: usize) {
        assert!(plan.len() <= workers, "{} workers of {workers}", plan.len());
        assert!(plan.iter().all(|share| !share.queues.is_empty()), "a worker without a queue: {plan:?}");
        for (at, demand) in demands.iter().enumerate() {
            let servers = plan.iter().filter(|share| share.queues.contains(&at)).count();
            assert!(servers == 1 || servers > 1 && demand.free, "queue {at}: {servers} workers: {plan:?}");
        }
    }
}
