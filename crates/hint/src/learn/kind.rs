//! The expected life and figures of files of one kind.

use super::features::{Figures, Known, WRITING, Writing, figures, flags_of};

/// Weight of the newest file of a kind.
const FOLLOW: f32 = 0.25;
/// Ends of which older ones count less and less.
const ENDS_MAX: f64 = 64.0;

/// The files of a kind: how they were written, and how long they live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    known: Known,
    writing: Option<Writing>,
    /// Files that are followed and there.
    there: u32,
    /// Nanoseconds that all its files lived so far, until `since_ns`.
    lived_ns: f64,
    since_ns: u64,
    /// Files that ended.
    pub(super) ended: f64,
    /// Files that were reported.
    pub(super) told: u32,
    /// Number of its last report.
    pub(super) last: u64,
    /// Its centre, if it has one.
    pub(super) centre: Option<usize>,
}

/// A kind as it is remembered from mount to mount.
#[derive(Clone, PartialEq, Debug)]
pub struct RememberedKind {
    /// The shape of its files' paths, and of their writer's name.
    pub name: String,
    /// The number of its stream, if it has one.
    pub stream: Option<u16>,
    /// Each write is to be synced.
    pub sync: bool,
    /// Its files bypass the page cache.
    pub direct: bool,
    /// Files that were reported.
    pub told: u32,
    /// Nanoseconds that its files lived, all together.
    pub lived_ns: u64,
    /// Files that ended, of which older ones count less.
    pub ended: f64,
    /// Figures of how they are written, each from 0 to 1.
    pub writing: Writing,
}

impl Kind {
    pub(super) fn new(known: Known, now_ns: u64) -> Self {
        let (writing, since_ns, centre) = (None, now_ns, None);
        Self { known, writing, there: 0, lived_ns: 0.0, since_ns, ended: 0.0, told: 0, last: 0, centre }
    }

    /// As it was remembered; none of its files is followed.
    pub(super) fn restored(kind: &RememberedKind, known: Known, now_ns: u64) -> Self {
        Self {
            writing: Some(kind.writing.map(|figure| figure.clamp(0.0, 1.0))),
            lived_ns: kind.lived_ns as f64,
            ended: kind.ended.clamp(0.0, ENDS_MAX),
            told: kind.told,
            ..Self::new(known, now_ns)
        }
    }

    /// Its memory for the next mount, once a file was reported; its existing files,
    /// of which nothing is known later, count as they do for the
    /// [life](Self::life_ns) now.
    pub(super) fn remembered(&self, name: &str, now_ns: u64) -> Option<RememberedKind> {
        let [sync, direct] = flags_of(&self.known);
        Some(RememberedKind {
            name: name.to_owned(),
            stream: self.centre.and_then(|centre| u16::try_from(centre).ok()),
            sync,
            direct,
            told: self.told,
            lived_ns: self.lived_until_ns(now_ns) as u64,
            ended: self.ending(),
            writing: self.writing?,
        })
    }

    fn live_until(&mut self, now_ns: u64) {
        self.lived_ns += f64::from(self.there) * now_ns.saturating_sub(self.since_ns) as f64;
        self.since_ns = self.since_ns.max(now_ns);
    }

    /// A file began.
    pub(super) fn begins(&mut self, known: Known, now_ns: u64) {
        self.live_until(now_ns);
        self.known = known;
        self.there += 1;
    }

    /// A file was written.
    pub(super) fn was_written(&mut self, new: &Writing) {
        let writing = self.writing.get_or_insert(*new);
        for at in 0..WRITING {
            writing[at] += FOLLOW * (new[at] - writing[at]);
        }
        self.told = self.told.saturating_add(1);
    }

    /// A file is not followed any more; it may have ended.
    pub(super) fn leaves(&mut self, ended: bool, now_ns: u64) {
        self.live_until(now_ns);
        self.there = self.there.saturating_sub(1);
        if ended {
            self.ended += 1.0;
        }
        if self.ended > ENDS_MAX {
            (self.lived_ns, self.ended) = (self.lived_ns / 2.0, self.ended / 2.0);
        }
    }

    /// How long a file of the kind is expected to live: the lives of all, also existing
    /// ones, over the ends (as for lives of any length that end by chance). Before
    /// there are many ends, those that are there count as if half of them ended now.
    pub(super) fn life_ns(&self, now_ns: u64) -> f64 {
        self.lived_until_ns(now_ns) / self.ending()
    }

    fn lived_until_ns(&self, now_ns: u64) -> f64 {
        self.lived_ns + f64::from(self.there) * now_ns.saturating_sub(self.since_ns) as f64
    }

    /// The ends that its files are taken to have had.
    fn ending(&self) -> f64 {
        let ending = f64::from(self.there) / (2.0 * (1.0 + self.ended));
        (self.ended + ending).max(0.5)
    }

    /// Its figures, once a file was reported.
    pub(super) fn figures(&self, now_ns: u64) -> Option<Figures> {
        self.writing.as_ref().map(|writing| figures(self.life_ns(now_ns), writing, &self.known))
    }
}
