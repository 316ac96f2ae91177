//! As few workers as the load allows (LabStor §III-C.4): queues of short requests and queues
//! of long ones have workers of their own, and those of each kind are to weigh the same.
//!
//! LabStor asks modules how long a request will take. Here it is measured by queue, which
//! counts the device, the cache and all modules at once.

use super::{Demand, Plan, Policy, busiest, of_class, sacks};
use braid_contract::Class;

/// As few workers as the load allows.
#[derive(Debug)]
pub(crate) struct Dynamic {
    /// Up to this weight, a worker is not too busy.
    pub(crate) busy_max: f64,
    /// Where all are too busy: how much busier than with all workers the busiest may be.
    pub(crate) loss_max: f64,
}

/// From this weight on, a queue is in use.
const IN_USE: f64 = 0.01;

impl Policy for Dynamic {
    fn plan(&self, demands: &[Demand], workers: usize) -> Plan {
        if demands.is_empty() || workers == 0 {
            return Plan::new();
        }
        let uses = |class| demands.iter().any(|demand| demand.class == class && demand.weight >= IN_USE);
        // One worker for both would have short requests wait for long ones.
        let apart = workers > 1 && uses(Class::Latency) && uses(Class::Throughput);
        let all: Vec<usize> = (0..demands.len()).collect();
        let latency = uses(Class::Latency);
        let weighed = |count| {
            let plan = match apart {
                true => lightest_split(demands, count),
                false => sacks::fill(demands, &all, count, latency),
            };
            let weight = busiest(&plan, demands);
            (plan, weight)
        };
        let mut plans = Vec::new();
        for count in 1 + usize::from(apart)..=workers {
            let (plan, weight) = weighed(count);
            if weight <= self.busy_max {
                return plan;
            }
            plans.push((plan, weight));
        }
        // All are too busy.
        let best = plans.iter().map(|(_, weight)| *weight).fold(f64::INFINITY, f64::min);
        let few = plans.into_iter().find(|(_, weight)| *weight <= best * (1.0 + self.loss_max));
        few.map(|(plan, _)| plan).unwrap_or_default()
    }
}

/// The division of `workers` workers among the two kinds whose busiest worker is the lightest.
fn lightest_split(demands: &[Demand], workers: usize) -> Plan {
    let (soon, many) = (of_class(demands, Class::Latency), of_class(demands, Class::Throughput));
    let split = |few: usize| {
        let plan =
            [sacks::fill(demands, &soon, few, true), sacks::fill(demands, &many, workers - few, false)]
                .concat();
        let weight = busiest(&plan, demands);
        (plan, weight)
    };
    let lightest = (1..workers).map(split).min_by(|one, other| one.1.total_cmp(&other.1));
    lightest.map(|(plan, _)| plan).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, demands};
    use super::*;
    use proptest::prelude::*;

    const POLICY: Dynamic = Dynamic { busy_max: 0.85, loss_max: 0.05 };

    fn of(class: Class, weights: &[f64]) -> Vec<Demand> {
        weights.iter().map(|weight| Demand { class, weight: *weight, free: false }).collect()
    }

    proptest! {
        #[test]
        fn every_queue_has_a_worker(demands in demands(), workers in 1usize..10) {
            check(&POLICY.plan(&demands, workers), &demands, workers);
        }

        #[test]
        fn fewer_workers_would_lose_more(demands in demands(), workers in 1usize..8) {
            // The lightest plan that there is for this number of workers.
            let lightest = |workers| {
                let plan = Dynamic { busy_max: 0.0, loss_max: 0.0 }.plan(&demands, workers);
                busiest(&plan, &demands)
            };
            let plan = POLICY.plan(&demands, workers);
            // A loss is allowed only where all are too busy.
            let enough = match lightest(workers) {
                weight if weight <= POLICY.busy_max => POLICY.busy_max,
                weight => weight * (1.0 + POLICY.loss_max),
            };
            prop_assert!(busiest(&plan, &demands) <= enough + 1e-9);
            // One alone would not keep both kinds apart.
            let apart = plan.iter().any(|share| share.latency) && plan.iter().any(|share| !share.latency);
            for fewer in 1 + usize::from(apart)..plan.len() {
                prop_assert!(lightest(fewer) > enough, "{fewer} would do: {plan:?}");
            }
        }
    }

    #[test]
    fn a_worker_more_that_keeps_all_from_being_too_busy_is_used() {
        let mut demands = of(Class::Throughput, &[0.837]);
        demands.push(Demand { class: Class::Latency, weight: 1.735, free: true });
        let plan = POLICY.plan(&demands, 4);
        assert_eq!(plan.len(), 4, "three would be busier by less than the loss: {plan:?}");
    }

    #[test]
    fn workers_come_with_the_load() {
        for (weights, workers) in [
            (vec![0.1, 0.1, 0.1], 1),
            (vec![0.4, 0.4, 0.4], 2),
            (vec![0.9, 0.9, 0.9, 0.9], 4),
            // More than there are: all of them.
            (vec![1.0; 16], 8),
        ] {
            let plan = POLICY.plan(&of(Class::Throughput, &weights), 8);
            assert_eq!(plan.len(), workers, "{weights:?}: {plan:?}");
        }
    }

    #[test]
    fn short_requests_have_workers_of_their_own_while_there_are_long_ones() {
        let both = [of(Class::Latency, &[0.1, 0.1]), of(Class::Throughput, &[0.9, 0.9])].concat();
        let plan = POLICY.plan(&both, 4);
        assert_eq!(plan.len(), 3, "{plan:?}");
        assert!(plan[0].latency && plan[0].queues.len() == 2, "{plan:?}");
        assert!(plan[1..].iter().all(|share| !share.latency));
        // With one worker there is no choice.
        assert_eq!(POLICY.plan(&both, 1).len(), 1);
        let idle = [of(Class::Latency, &[0.1, 0.1]), of(Class::Throughput, &[0.0])].concat();
        assert_eq!(POLICY.plan(&idle, 4).len(), 1);
    }

    #[test]
    fn a_heavy_queue_that_keeps_no_order_has_several_workers() {
        let heavy = [Demand { class: Class::Throughput, weight: 3.0, free: true }];
        assert_eq!(POLICY.plan(&heavy, 8).len(), 4);
        let ordered = [Demand { free: false, ..heavy[0] }];
        assert_eq!(POLICY.plan(&ordered, 8).len(), 1);
    }
}
