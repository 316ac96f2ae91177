//! A set of bytes of an object, as stretches.

use std::collections::BTreeMap;
use std::ops::Range;

/// Stretches that neither overlap nor touch, by their beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// Adds the bytes of a span.
    pub(super) fn insert(&mut self, span: Range<u64>) {
        if span.is_empty() {
            return;
        }
        let (mut start, mut end) = (span.start, span.end);
        while let Some((at, until)) = self.0.range(..=end).next_back().map(|(at, until)| (*at, *until))
            && until >= start
        {
            self.0.remove(&at);
            (start, end) = (start.min(at), end.max(until));
        }
        self.0.insert(start, end);
    }

    /// Removes the bytes of a span.
    pub(super) fn remove(&mut self, span: Range<u64>) {
        if span.is_empty() {
            return;
        }
        while let Some((at, until)) = self.0.range(..span.end).next_back().map(|(at, until)| (*at, *until))
            && until > span.start
        {
            self.0.remove(&at);
            if until > span.end {
                self.0.insert(span.end, until);
            }
            if at < span.start {
                self.0.insert(at, span.start);
            }
        }
    }

    /// Whether any byte of the span is in the set.
    pub(super) fn touches(&self, span: &Range<u64>) -> bool {
        !span.is_empty() && self.0.range(..span.end).next_back().is_some_and(|(_, until)| *until > span.start)
    }

    /// Whether all bytes of the span are in the set.
    pub(super) fn covers(&self, span: &Range<u64>) -> bool {
        span.is_empty()
            || self.0.range(..=span.start).next_back().is_some_and(|(_, until)| *until >= span.end)
    }

    /// The parts of the stretches within a span.
    pub(super) fn within(&self, span: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.0.range(..=span.start).next_back().filter(|(_, until)| **until > span.start);
        let first = first.map(|(_, until)| span.start..(*until).min(span.end));
        let rest = self.0.range(span.start.saturating_add(1)..span.end.max(span.start.saturating_add(1)));
        first.into_iter().chain(rest.map(move |(at, until)| *at..(*until).min(span.end)))
    }

    /// The parts of a span that are not in the set.
    pub(super) fn gaps_within(&self, span: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Self::default();
        gaps.insert(span.clone());
        self.within(span.clone()).for_each(|part| gaps.remove(part));
        gaps.within(span).collect()
    }

    /// The span from the first to the last byte within a span; `None` if there is
    /// none.
    pub(super) fn bounds_within(&self, span: Range<u64>) -> Option<Range<u64>> {
        let mut parts = self.within(span);
        let first = parts.next()?;
        Some(first.start..parts.last().map_or(first.end, |last| last.end))
    }

    /// Number of bytes in the set.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// The first stretch at or after `from`.
    pub(super) fn next(&self, from: u64) -> Option<Range<u64>> {
        self.within(from..u64::MAX).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::SplitMix;

    fn spans(all: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        all.iter().for_each(|(start, end)| spans.insert(*start..*end));
        spans
    }

    #[test]
    fn stretches_that_touch_are_one() {
        assert_eq!(spans(&[(5, 10), (0, 5), (20, 30), (9, 21)]), spans(&[(0, 30)]));
        assert_eq!(spans(&[(0, 5), (6, 10)]).within(0..20).collect::<Vec<_>>(), [0..5, 6..10]);
        assert_eq!(spans(&[(0, 5), (6, 10), (3, 3)]).bounds_within(1..9), Some(1..9));
        assert_eq!(spans(&[(0, 5)]).bounds_within(5..9), None);
    }

    #[test]
    fn it_is_what_a_set_of_bytes_is() {
        let (mut random, mut spans, mut bytes) = (SplitMix::new(3), Spans::default(), [false; 64]);
        for _ in 0..3000 {
            let (start, end) = (random.below(64), random.below(65));
            let span = start..end.max(start);
            let range = span.start as usize..span.end as usize;
            let inserts = random.below(2) == 0;
            match inserts {
                true => spans.insert(span),
                false => spans.remove(span),
            }
            bytes[range].fill(inserts);
            let probe = random.below(64)..random.below(65);
            if probe.start > probe.end {
                continue;
            }
            let part = &bytes[probe.start as usize..probe.end as usize];
            assert_eq!(spans.touches(&probe), part.contains(&true), "{probe:?} {spans:?}");
            assert_eq!(spans.covers(&probe), !part.contains(&false), "{probe:?} {spans:?}");
            let found: u64 = spans.within(probe.clone()).map(|part| part.end - part.start).sum();
            assert_eq!(found, part.iter().filter(|byte| **byte).count() as u64, "{probe:?} {spans:?}");
            let first =
                bytes[probe.start as usize..].iter().position(|byte| *byte).map(|at| at as u64 + probe.start);
            assert_eq!(spans.count(), bytes.iter().filter(|byte| **byte).count() as u64);
            assert_eq!(spans.next(probe.start).map(|span| span.start), first);
        }
    }
}
