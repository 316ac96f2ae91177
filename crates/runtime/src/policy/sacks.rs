//! Items of some weight into sacks that are to weigh the same: the longest first, each into
//! the lightest sack, which is at most a third above the best.

use super::Demand;
use crate::policy::Share;

/// Puts these queues into `sacks` sacks, or fewer, if there are fewer queues. A free queue
/// that weighs more than a sack should goes into several.
pub(super) fn fill(demands: &[Demand], queues: &[usize], sacks: usize, latency: bool) -> Vec<Share> {
    let total: f64 = queues.iter().map(|queue| demands[*queue].weight).sum();
    let mean = total / sacks.max(1) as f64;
    let mut items: Vec<(usize, f64, usize)> = Vec::new();
    for queue in queues {
        let Demand { weight, free, .. } = demands[*queue];
        let pieces =
            if free && mean > 0.0 { (weight / mean).ceil().clamp(1.0, sacks as f64) as usize } else { 1 };
        items.push((*queue, weight / pieces as f64, pieces));
    }
    items.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut filled = vec![(Share { queues: Vec::new(), latency }, 0.0_f64); sacks];
    for (queue, weight, pieces) in items {
        for _ in 0..pieces {
            // A sack that has a piece of it has nothing behind that yet.
            let others = filled.iter_mut().filter(|(share, _)| share.queues.last() != Some(&queue));
            let lightest = others.min_by(|one, other| {
                one.1.total_cmp(&other.1).then(one.0.queues.len().cmp(&other.0.queues.len()))
            });
            if let Some((share, sum)) = lightest {
                share.queues.push(queue);
                *sum += weight;
            }
        }
    }
    filled.into_iter().map(|(share, _)| share).filter(|share| !share.queues.is_empty()).collect()
}
