//! Which blocks of the device a file's blocks are in.

use std::collections::BTreeMap;

/// Blocks of the device that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The first of them.
    pub(crate) start: u64,
    /// How many they are.
    pub(crate) len: u64,
}

impl Run {
    pub(crate) fn end(self) -> u64 {
        self.start + self.len
    }
}

/// Blocks of a file, from block `at` on, and where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) at: u64,
    pub(crate) run: Run,
    /// Whether they were written. If not, they are reserved and read as zeros, whatever
    /// is on the device.
    pub(crate) is_written: bool,
}

impl Piece {
    pub(crate) fn end(self) -> u64 {
        self.at + self.run.len
    }

    /// The part of it within these blocks of the file.
    fn within(self, from: u64, to: u64) -> Self {
        let (at, end) = (self.at.max(from), self.end().min(to));
        let run = Run { start: self.run.start + (at - self.at), len: end - at };
        Self { at, run, ..self }
    }

    /// Whether `next` goes on where this one ends, in the file and on the device.
    fn joins(self, next: Self) -> bool {
        self.end() == next.at && self.run.end() == next.run.start && self.is_written == next.is_written
    }
}

/// The holes that pieces leave in these blocks of a file: from one block up to another.
pub(crate) fn holes(
    pieces: impl IntoIterator<Item = Piece>,
    (from, to): (u64, u64),
) -> impl Iterator<Item = (u64, u64)> {
    let mut at = from;
    let ends = pieces.into_iter().map(|piece| (piece.at, piece.end())).chain([(to, to)]);
    ends.map(move |(hole_end, next)| (std::mem::replace(&mut at, next), hole_end))
        .filter(|(from, to)| from < to)
}

/// Blocks that holes have.
pub(crate) fn blocks_of(holes: &[(u64, u64)]) -> u64 {
    holes.iter().map(|(from, to)| to - from).sum()
}

/// Fills holes of a file with runs of as many blocks, each in the order given; a run is split
/// where a hole ends.
pub(crate) fn fill(holes: &[(u64, u64)], runs: &[Run], is_written: bool) -> Vec<Piece> {
    let (mut runs, mut rest) = (runs.iter().copied(), None);
    let mut pieces = Vec::new();
    for &(mut at, to) in holes {
        while at < to {
            let Some(Run { start, len: whole }) = rest.take().or_else(|| runs.next()) else { break };
            let len = whole.min(to - at);
            rest = (len < whole).then(|| Run { start: start + len, len: whole - len });
            pieces.push(Piece { at, run: Run { start, len }, is_written });
            at += len;
        }
    }
    pieces
}

/// The blocks of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    /// By the first block in the file.
    pieces: BTreeMap<u64, Piece>,
    blocks: u64,
}

impl Extents {
    /// Blocks of the device that it has.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Pieces that it is made of.
    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// All of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Piece> + '_ {
        self.pieces.values().copied()
    }

    /// The pieces that exist of these blocks of the file, in order.
    pub(crate) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Piece> + '_ {
        let before = self.pieces.range(..from).next_back().map(|(_, piece)| *piece);
        let before = before.filter(|piece| piece.end() > from);
        let others = self.pieces.range(from..to.max(from)).map(|(_, piece)| *piece);
        before.into_iter().chain(others).map(move |piece| piece.within(from, to))
    }

    /// The piece that has this block.
    pub(crate) fn find(&self, block: u64) -> Option<Piece> {
        self.within(block, block + 1).next()
    }

    /// How many pieces more there are once these blocks are taken out.
    pub(crate) fn growth(&self, from: u64, to: u64) -> i64 {
        let first = self.pieces.range(..from).next_back().map(|(_, piece)| *piece);
        let first = first.filter(|piece| piece.end() > from);
        let within = self.pieces.range(from..to.max(from));
        let last = within.clone().next_back().map(|(_, piece)| *piece).or(first);
        // What is left before, and behind.
        let left = i64::from(first.is_some()) + i64::from(last.is_some_and(|piece| piece.end() > to));
        left - i64::from(first.is_some()) - within.count() as i64
    }

    /// Takes blocks out; hands `freed` where they were.
    pub(crate) fn unmap(&mut self, from: u64, to: u64, freed: &mut Vec<Run>) {
        let gone: Vec<Piece> = self.within(from, to).collect();
        for piece in gone {
            let Some((_, whole)) =
                self.pieces.range(..=piece.at).next_back().map(|(at, piece)| (*at, *piece))
            else {
                continue;
            };
            self.pieces.remove(&whole.at);
            for left in [whole.within(whole.at, piece.at), whole.within(piece.end(), whole.end())] {
                if left.run.len > 0 {
                    self.pieces.insert(left.at, left);
                }
            }
            self.blocks -= piece.run.len;
            freed.push(piece.run);
        }
    }

    /// Puts a piece in the place of older ones.
    pub(crate) fn map(&mut self, piece: Piece, freed: &mut Vec<Run>) {
        let begun = freed.len();
        self.unmap(piece.at, piece.end(), freed);
        self.blocks += piece.run.len;
        // Blocks that were reserved and are written now stay where they are.
        let mut kept = freed.split_off(begun);
        kept.retain(|run| run.start >= piece.run.end() || run.end() <= piece.run.start);
        freed.append(&mut kept);
        let mut piece = piece;
        if let Some((_, before)) = self.pieces.range(..piece.at).next_back()
            && before.joins(piece)
        {
            let before = *before;
            self.pieces.remove(&before.at);
            let run = Run { start: before.run.start, len: before.run.len + piece.run.len };
            piece = Piece { at: before.at, run, ..piece };
        }
        if let Some(next) = self.pieces.get(&piece.end()).copied()
            && piece.joins(next)
        {
            self.pieces.remove(&next.at);
            piece.run.len += next.run.len;
        }
        self.pieces.insert(piece.at, piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: u64, start: u64, len: u64) -> Piece {
        Piece { at, run: Run { start, len }, is_written: true }
    }

    #[test]
    fn pieces_join_and_split() {
        let (mut extents, mut freed) = (Extents::default(), Vec::new());
        extents.map(piece(0, 100, 4), &mut freed);
        extents.map(piece(8, 108, 4), &mut freed);
        extents.map(piece(4, 104, 4), &mut freed);
        assert_eq!((extents.count(), extents.blocks(), freed.len()), (1, 12, 0));
        extents.map(piece(2, 500, 3), &mut freed);
        assert_eq!(freed, [Run { start: 102, len: 3 }]);
        let found: Vec<Piece> = extents.within(1, 6).collect();
        assert_eq!(found, [piece(1, 101, 1), piece(2, 500, 3), piece(5, 105, 1)]);
        freed.clear();
        extents.unmap(0, 3, &mut freed);
        assert_eq!(freed, [Run { start: 100, len: 2 }, Run { start: 500, len: 1 }]);
        assert_eq!((extents.find(2), extents.find(3)), (None, Some(piece(3, 501, 1))));
        assert_eq!(extents.blocks(), 9);
    }

    #[test]
    fn the_pieces_that_come_and_go_are_counted_before() {
        let whole = [piece(0, 100, 10), piece(10, 500, 1), piece(11, 700, 1), piece(20, 900, 5)];
        for (from, to) in (0..27).flat_map(|from| (from..27).map(move |to| (from, to))) {
            let (mut extents, mut freed) = (Extents::default(), Vec::new());
            whole.iter().for_each(|piece| extents.map(*piece, &mut freed));
            let growth = extents.growth(from, to);
            let before = extents.count() as i64;
            extents.unmap(from, to, &mut freed);
            assert_eq!(extents.count() as i64 - before, growth, "{from} to {to}");
        }
    }

    #[test]
    fn runs_fill_the_holes_between_pieces() {
        let left: Vec<_> = holes([piece(2, 50, 1), piece(3, 60, 2), piece(9, 70, 1)], (2, 10)).collect();
        assert_eq!((&left[..], blocks_of(&left)), (&[(5, 9)][..], 4));
        let left: Vec<_> = holes([piece(4, 50, 2)], (1, 10)).collect();
        assert_eq!((&left[..], blocks_of(&left)), (&[(1, 4), (6, 10)][..], 7));
        let runs = [Run { start: 100, len: 2 }, Run { start: 200, len: 4 }, Run { start: 300, len: 1 }];
        let filled = [piece(1, 100, 2), piece(3, 200, 1), piece(6, 201, 3), piece(9, 300, 1)];
        assert_eq!(fill(&left, &runs, true), filled);
    }

    #[test]
    fn reserved_blocks_stay_where_they_are_written() {
        let (mut extents, mut freed) = (Extents::default(), Vec::new());
        extents.map(Piece { is_written: false, ..piece(0, 100, 8) }, &mut freed);
        extents.map(piece(2, 102, 2), &mut freed);
        assert_eq!((freed.len(), extents.count(), extents.blocks()), (0, 3, 8));
    }
}
