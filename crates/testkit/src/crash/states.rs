//! Selecting the states after power loss to examine: all if they are few;
//! otherwise the extremes, their neighbours, and a sample.

use crate::sim::Scripted;
use braid_contract::SplitMix;
use std::collections::HashSet;

/// Outcomes that were visited.
pub(crate) type Visited = HashSet<Vec<usize>>;

/// Builds the state of a chooser and returns the chooser. States visited before
/// need not be examined again.
pub(crate) type Visit<'a, E> = dyn FnMut(Scripted, &mut Visited) -> Result<Scripted, E> + 'a;

/// Hands choosers for about `limit` states to `visit`, each with another
/// outcome.
pub(crate) fn for_each_state<E>(limit: usize, seed: u64, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let mut seen = Visited::new();
    let kept = visit(Scripted::keeping(), &mut seen)?;
    if kept.asked().is_empty() {
        return Ok(());
    }
    let mut outcomes: usize = 1;
    kept.asked().iter().for_each(|asked| outcomes = outcomes.saturating_mul(*asked));
    if outcomes <= limit {
        return for_all(limit, &mut seen, visit);
    }
    let lost = visit(Scripted::new(), &mut seen)?;
    let mut neighbours = [neighbours(&kept), neighbours(&lost)].concat();
    let mut random = SplitMix::new(seed);
    // A part of the budget is for states further in.
    while seen.len() < limit * 3 / 4 && !neighbours.is_empty() {
        let at = random.below(neighbours.len() as u64) as usize;
        visit(neighbours.swap_remove(at), &mut seen)?;
    }
    for _ in 0..limit {
        if seen.len() >= limit {
            break;
        }
        visit(Scripted::sampling(random.next_u64()), &mut seen)?;
    }
    Ok(())
}

/// All outcomes in turn.
fn for_all<E>(limit: usize, seen: &mut Visited, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let mut script = Scripted::new();
    // Questions may depend on answers, so that there are more than reckoned.
    for _ in 0..limit * 2 {
        script = visit(script, seen)?;
        if !script.advance() {
            break;
        }
    }
    Ok(())
}

/// Choosers that answer like this one except for one question: the first or the
/// last alternative, or the next one.
fn neighbours(of: &Scripted) -> Vec<Scripted> {
    let mut neighbours = Vec::new();
    for (at, (answer, asked)) in of.answers().iter().zip(of.asked()).enumerate() {
        let mut others = vec![0, asked - 1, answer.saturating_sub(1), (answer + 1).min(asked - 1)];
        others.sort_unstable();
        others.dedup();
        let others = others.into_iter().filter(|other| other != answer);
        neighbours.extend(others.map(|other| of.but_for(at, other)));
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Chooser;

    /// Goes through states with these numbers of alternatives.
    fn visited(alternatives: &[usize], limit: usize) -> Vec<Vec<usize>> {
        let mut visited = Vec::new();
        for_each_state(limit, 1, &mut |mut chooser, seen| {
            alternatives.iter().for_each(|alternatives| {
                chooser.choose(*alternatives);
            });
            if seen.insert(chooser.answers().to_vec()) {
                visited.push(chooser.answers().to_vec());
            }
            Ok::<_, ()>(chooser)
        })
        .unwrap();
        visited
    }

    #[test]
    fn few_states_are_all_visited() {
        let mut states = visited(&[2, 3, 2], 12);
        states.sort();
        assert_eq!(states.len(), 12);
        assert_eq!(states[5], [0, 2, 1]);
        assert_eq!(visited(&[], 12), [Vec::<usize>::new()]);
    }

    #[test]
    fn of_many_states_the_outermost_and_those_next_to_them_are_visited() {
        let states = visited(&[2; 20], 80);
        assert_eq!(states.len(), 80);
        let kept: Vec<usize> = states.iter().map(|state| state.iter().sum()).collect();
        assert_eq!(kept.iter().filter(|kept| **kept == 20).count(), 1);
        assert_eq!(kept.iter().filter(|kept| **kept == 19).count(), 20);
        assert_eq!(kept.iter().filter(|kept| **kept == 0).count(), 1);
        assert_eq!(kept.iter().filter(|kept| **kept == 1).count(), 20);
    }

    #[test]
    fn a_sample_is_the_same_each_time() {
        assert_eq!(visited(&[3; 50], 30), visited(&[3; 50], 30));
    }
}
