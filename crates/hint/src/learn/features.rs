//! The known facts of a file, as figures that can be compared.

use super::shape::parts_of;
use crate::profile::Task;
use braid_contract::StreamId;

/// The facts known of a file when it is first written.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Its path below the volume's root.
    pub path: &'a str,
    /// Its writer, if known.
    pub task: Option<&'a Task>,
    /// Each write is to be synced.
    pub sync: bool,
    /// It bypasses the page cache.
    pub direct: bool,
}

/// The writes to a file until it was closed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Written {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Bytes of a write, on average, if known.
    pub each: Option<u64>,
    /// The share of writes that began where the one before ended, 0 to 1, if known.
    pub in_order: Option<f32>,
    /// The share of bytes that were written where some were before, 0 to 1, if known.
    pub overwritten: Option<f32>,
}

/// Figures of how a file was written, each from 0 to 1.
pub(super) const WRITING: usize = 4;
/// Figures of how it is opened.
const FLAGS: usize = 2;
/// Figures that are made of its path and writer.
const NAMES: usize = 12;
/// All figures of a kind of file.
pub(super) const FIGURES: usize = 1 + WRITING + FLAGS + NAMES;
/// How much the expected life counts: data that dies together should lie
/// together.
const LIFE_WEIGHT: f32 = 4.0;
/// The longest life that is distinguished, as a power of two of milliseconds.
const LIFE_MAX: u32 = 30;
/// How much a name counts, which is arbitrary: enough to keep kinds apart while there
/// are few.
const NAME_WEIGHT: f32 = 0.07;
const FLAG_WEIGHT: f32 = 0.1;
/// The figure where nothing is known.
const NEUTRAL: f32 = 0.5;
/// Of a kind of which no file was closed yet.
pub(super) const UNKNOWN: Writing = [NEUTRAL; WRITING];

pub(super) type Writing = [f32; WRITING];
pub(super) type Figures = [f32; FIGURES];
/// The figures that are known when a file is first written.
pub(super) type Known = [f32; FLAGS + NAMES];

impl Written {
    /// It as figures.
    pub(super) fn figures(&self) -> Writing {
        [
            log(self.bytes as f64, 8, 34),
            self.each.map_or(NEUTRAL, |each| log(each as f64, 4, 24)),
            self.in_order.map_or(NEUTRAL, |share| share.clamp(0.0, 1.0)),
            self.overwritten.map_or(NEUTRAL, |share| share.clamp(0.0, 1.0)),
        ]
    }
}

/// Whether each write is synced, and whether the page cache is bypassed, of files of
/// which so much is known.
pub(super) fn flags_of(known: &Known) -> [bool; FLAGS] {
    std::array::from_fn(|at| known[at] > 0.0)
}

/// The figure's place between two powers of two, 0 to 1.
fn log(figure: f64, least: u32, most: u32) -> f32 {
    let bits = figure.max(1.0).log2() as f32;
    ((bits - least as f32) / (most - least) as f32).clamp(0.0, 1.0)
}

/// The first known figures: flags, and the parts of shape and writer, each of which
/// adds to one of a few figures.
pub(super) fn known(opening: &Opening<'_>, shape: &str, writer: &str) -> Known {
    let mut known = [0.0; FLAGS + NAMES];
    let flags = [opening.sync, opening.direct].map(|flag| if flag { FLAG_WEIGHT } else { 0.0 });
    known[..FLAGS].copy_from_slice(&flags);
    let (dir, name, extension) = parts_of(shape);
    for (salt, token) in [dir, name, extension, writer].into_iter().enumerate() {
        let hash = StreamId::named(&format!("{salt}{token}")).0;
        let hash = hash ^ hash >> 16;
        let at = FLAGS + hash as usize % NAMES;
        known[at] += if hash & (1 << 14) == 0 { NAME_WEIGHT } else { -NAME_WEIGHT };
    }
    known
}

/// All figures of a kind whose files are expected to live so long.
pub(super) fn figures(life_ns: f64, writing: &Writing, known: &Known) -> Figures {
    let mut figures = [0.0; FIGURES];
    figures[0] = LIFE_WEIGHT * log(life_ns / 1e6, 0, LIFE_MAX);
    figures[1..=WRITING].copy_from_slice(writing);
    figures[1 + WRITING..].copy_from_slice(known);
    figures
}

/// How long a life these figures mean.
pub(super) fn life_ns(figures: &Figures) -> u64 {
    ((figures[0] / LIFE_WEIGHT * LIFE_MAX as f32).exp2() * 1e6) as u64
}

/// How far apart two files are by their first known figures, squared.
pub(super) fn known_distance(figures: &Figures, known: &Known) -> f32 {
    figures[1 + WRITING..].iter().zip(known).map(|(one, other)| (one - other).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_do_tells_them_apart() {
        let log = Written { bytes: 100_000, each: Some(100), in_order: Some(1.0), overwritten: None };
        let table = Written { bytes: 64 << 20, each: Some(1 << 20), in_order: Some(1.0), overwritten: None };
        let opening = Opening { path: "a/b.c", task: None, sync: false, direct: false };
        let known = known(&opening, "a/b.c", "");
        let one = figures(5e9, &log.figures(), &known);
        let other = figures(3600e9, &table.figures(), &known);
        let apart: f32 = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum();
        assert!(apart > 0.5, "{apart}");
        assert!(known_distance(&one, &known) < 1e-6);
        assert!(one.iter().chain(&other).all(|figure| (-2.0..=LIFE_WEIGHT).contains(figure)));
    }
}
