//! Assigns queues to workers (LabStor §III-C.4): pure functions of measurements.
//!
//! The pool asks for a [`Plan`] when a session comes or goes, and from time to time.

mod dynamic;
mod round_robin;
mod sacks;

pub(crate) use dynamic::Dynamic;
pub(crate) use round_robin::RoundRobin;

use braid_contract::Class;
use std::cmp::Ordering;

/// The demand of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The class of its requests; never [`Class::Auto`].
    pub(crate) class: Class,
    /// Workers that it keeps busy, as measured, with waiting requests: 0.5 is half of one.
    pub(crate) weight: f64,
    /// Several workers may serve it at the same time.
    pub(crate) free: bool,
}

/// The share of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    /// Queues, by their places among the demands.
    pub(crate) queues: Vec<usize>,
    /// It serves only requests that want to be answered soon, and has a processor for
    /// itself, if there are enough.
    pub(crate) latency: bool,
}

/// The share of each worker; no worker is without a queue, if there are queues.
pub(crate) type Plan = Vec<Share>;

/// A way to give queues to workers.
pub(crate) trait Policy: Send {
    /// A plan with at most `workers`.
    fn plan(&self, demands: &[Demand], workers: usize) -> Plan;
}

/// The busiest worker's weight under a plan. A queue of several workers counts for each by
/// its part.
pub(crate) fn busiest(plan: &Plan, demands: &[Demand]) -> f64 {
    let mut servers = vec![0_u32; demands.len()];
    for queue in plan.iter().flat_map(|share| &share.queues) {
        servers.get_mut(*queue).into_iter().for_each(|count| *count += 1);
    }
    let part = |queue: &usize| {
        let servers = servers.get(*queue).copied().unwrap_or(1);
        demands.get(*queue).map_or(0.0, |demand| demand.weight / f64::from(servers.max(1)))
    };
    plan.iter().map(|share| share.queues.iter().map(part).sum::<f64>()).fold(0.0, f64::max)
}

/// A plan that is lighter by this factor is worth filling caches anew.
const WORTH: f64 = 1.25;

/// Workers go only if the load of those that stay is below this part of their limit: else they
/// would come back at once.
const ROOM: f64 = 0.75;

/// Whether to change from one plan to another, for the same queues. Up to the weight
/// `busy_max`, a worker is not too busy.
pub(crate) fn is_worth_it(from: &Plan, to: &Plan, demands: &[Demand], busy_max: f64) -> bool {
    let (before, after) = (busiest(from, demands), busiest(to, demands));
    if !suits(from, demands) || is_split(from) != is_split(to) {
        return true;
    }
    match from.len().cmp(&to.len()) {
        Ordering::Less => true,
        Ordering::Greater => after <= busy_max * ROOM || before > busy_max,
        Ordering::Equal => before > busy_max.max(after * WORTH),
    }
}

/// Whether there are workers for requests that want to be answered soon, and others for the
/// others.
fn is_split(plan: &Plan) -> bool {
    plan.iter().any(|share| share.latency) && plan.iter().any(|share| !share.latency)
}

/// Whether queues of both kinds are still apart, if they were to be.
fn suits(plan: &Plan, demands: &[Demand]) -> bool {
    let kind = |latency| if latency { Class::Latency } else { Class::Throughput };
    let suits = |share: &Share| {
        share
            .queues
            .iter()
            .all(|at| demands.get(*at).is_some_and(|demand| demand.class == kind(share.latency)))
    };
    !is_split(plan) || plan.iter().all(suits)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(class: Class, weight: f64) -> Demand {
        Demand { class, weight, free: false }
    }

    fn share(latency: bool, queues: &[usize]) -> Share {
        Share { queues: queues.to_vec(), latency }
    }

    #[test]
    fn a_queue_that_becomes_slow_leaves_those_that_want_to_be_answered_soon() {
        let from = vec![share(true, &[0, 1]), share(false, &[2])];
        let to = vec![share(true, &[0]), share(false, &[1, 2])];
        let mut demands = [Class::Latency, Class::Latency, Class::Throughput].map(|class| demand(class, 0.1));
        assert!(!is_worth_it(&from, &from.clone(), &demands, 0.85));
        demands[1].class = Class::Throughput;
        assert!(is_worth_it(&from, &to, &demands, 0.85));
    }

    #[test]
    fn workers_go_only_if_they_do_not_come_back_at_once() {
        let many = vec![share(false, &[0]), share(false, &[1])];
        let one = vec![share(false, &[0, 1])];
        for (weight, goes) in [(0.1, true), (0.3, true), (0.41, false), (0.9, true)] {
            let demands = [demand(Class::Throughput, weight); 2];
            assert_eq!(is_worth_it(&many, &one, &demands, 0.85), goes, "{weight}");
            assert!(is_worth_it(&one, &many, &demands, 0.85));
        }
    }
}
