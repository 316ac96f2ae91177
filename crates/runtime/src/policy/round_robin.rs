//! A fixed number of workers, and queues dealt to them in turn.

use super::{Demand, Plan, Policy, Share, of_class};
use braid_contract::Class;

/// Deals queues in turn, regardless of their class.
#[derive(Debug)]
pub(crate) struct RoundRobin {
    /// Workers for requests that want to be answered soon, and workers for the others, are
    /// different ones, if there are at least two.
    pub(crate) apart: bool,
}

impl Policy for RoundRobin {
    fn plan(&self, demands: &[Demand], workers: usize) -> Plan {
        let (soon, many) = (of_class(demands, Class::Latency), of_class(demands, Class::Throughput));
        if self.apart && workers > 1 && !soon.is_empty() && !many.is_empty() {
            let few = (workers / 2).min(soon.len());
            return [deal(&soon, few, true), deal(&many, workers - few, false)].concat();
        }
        let all: Vec<usize> = (0..demands.len()).collect();
        deal(&all, workers, false)
    }
}

fn deal(queues: &[usize], workers: usize, latency: bool) -> Plan {
    let mut plan = vec![Share { queues: Vec::new(), latency }; workers.min(queues.len())];
    let count = plan.len();
    for (at, queue) in queues.iter().enumerate() {
        plan[at % count].queues.push(*queue);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, demands};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_queue_has_a_worker(demands in demands(), workers in 1usize..10, apart: bool) {
            check(&RoundRobin { apart }.plan(&demands, workers), &demands, workers);
        }
    }

    #[test]
    fn classes_are_kept_apart_where_asked() {
        let demand = |class| Demand { class, weight: 1.0, free: false };
        let demands = [demand(Class::Throughput), demand(Class::Latency), demand(Class::Throughput)];
        let plan = RoundRobin { apart: true }.plan(&demands, 2);
        assert_eq!(plan[0], Share { queues: vec![1], latency: true });
        assert_eq!(plan[1], Share { queues: vec![0, 2], latency: false });
        let mixed = RoundRobin { apart: false }.plan(&demands, 2);
        assert_eq!(mixed[0].queues, [0, 2]);
    }
}
