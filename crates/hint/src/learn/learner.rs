//! The learner: stories of files in, a stream for a file that is opened out.

use super::cluster::Clusters;
use super::features::{BEHAVIOUR, Behaviour, Figures, FileFacts, FileStory, figures, kind_of};
use crate::streams::StreamNames;
use braid_contract::StreamId;
use std::collections::HashMap;

/// Stories that are learned at a time.
const BATCH: usize = 16;
/// Kinds that are remembered; those that told nothing for longest go first.
const KINDS_MAX: usize = 4096;
/// How far a kind has to be from all streams to become one of its own, squared.
const APART: f32 = 0.12;
/// Weight of the newest story of a kind.
const FOLLOW: f32 = 0.25;

/// Settings of a learner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LearnerSettings {
    /// Most streams, from 1 to 1024.
    pub streams: u16,
    /// The same seed and the same stories give the same streams.
    pub seed: u64,
}

impl Default for LearnerSettings {
    fn default() -> Self {
        Self { streams: 8, seed: 1 }
    }
}

/// Learns streams.
#[derive(Clone, Debug)]
pub struct Learner {
    clusters: Clusters,
    kinds: HashMap<String, Kind>,
    batch: Vec<Figures>,
    stories: u64,
}

/// What is expected of files of a kind.
#[derive(Clone, Copy, Debug)]
struct Kind {
    behaviour: Behaviour,
    /// Its last figures.
    figures: Figures,
    /// Number of the last story.
    last: u64,
    told: u32,
}

impl Learner {
    /// Nothing is learned yet.
    #[must_use]
    pub fn new(settings: LearnerSettings) -> Self {
        let streams = usize::from(settings.streams.clamp(1, 1024));
        Self {
            clusters: Clusters::new(streams, settings.seed),
            kinds: HashMap::new(),
            batch: Vec::new(),
            stories: 0,
        }
    }

    /// The stream of a file that is opened to be written; `None` as long as no file
    /// of its kind has told its story.
    #[must_use]
    pub fn stream_of(&self, facts: &FileFacts<'_>) -> Option<StreamId> {
        let kind = self.kinds.get(&kind_of(facts.path))?;
        let cluster = self.clusters.nearest(&kind.figures)?;
        Some(StreamNames::learned(cluster as u16))
    }

    /// A file was closed or removed: this is what it did.
    pub fn tell(&mut self, facts: &FileFacts<'_>, story: &FileStory) {
        if story.writes == 0 {
            return;
        }
        self.stories += 1;
        let name = kind_of(facts.path);
        let now = story.behaviour();
        let known = self.kinds.get(&name);
        let behaviour = known.map_or(now, |kind| {
            let mut behaviour = kind.behaviour;
            for at in 0..BEHAVIOUR {
                behaviour[at] += FOLLOW * (now[at] - behaviour[at]);
            }
            behaviour
        });
        let told = known.map_or(0, |kind| kind.told) + 1;
        let figures = figures(facts, &name, &behaviour);
        if known.is_none() && self.kinds.len() >= KINDS_MAX {
            self.forget_oldest();
        }
        self.kinds.insert(name, Kind { behaviour, figures, last: self.stories, told });
        self.batch.push(figures);
        // The first ones are learned at once: a cold start should be short.
        if self.batch.len() >= BATCH || self.stories < BATCH as u64 {
            self.clusters.learn(&self.batch, APART);
            self.batch.clear();
        }
    }

    /// Streams that were found so far.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.clusters.len()
    }

    /// The kinds of files that are known, each with its stream and the number of
    /// files that told of it, in the order of names.
    #[must_use]
    pub fn kinds(&self) -> Vec<(&str, StreamId, u32)> {
        let stream = |kind: &Kind| {
            let cluster = self.clusters.nearest(&kind.figures).unwrap_or(0);
            StreamNames::learned(cluster as u16)
        };
        let mut all: Vec<_> =
            self.kinds.iter().map(|(name, kind)| (name.as_str(), stream(kind), kind.told)).collect();
        all.sort_unstable();
        all
    }

    fn forget_oldest(&mut self) {
        let oldest = self.kinds.iter().min_by_key(|(_, kind)| kind.last).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest {
            self.kinds.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::SplitMix;

    fn facts(path: &str) -> FileFacts<'_> {
        FileFacts { path, append: false, sync: false, direct: false }
    }

    const SECOND: u64 = 1_000_000_000;

    /// What files of a store with a log do: it is synced and short-lived, tables are
    /// long and stay.
    fn tell(learner: &mut Learner, number: u64, random: &mut SplitMix) {
        let vary = |figure: u64, random: &mut SplitMix| figure * (75 + random.below(50)) / 100;
        let log = FileStory {
            writes: vary(2000, random),
            bytes: vary(200_000, random),
            in_order: vary(1500, random),
            syncs: vary(1500, random),
            lived_ns: Some(vary(5 * SECOND, random)),
            ..FileStory::default()
        };
        let table = FileStory {
            writes: vary(60, random),
            bytes: vary(30 << 20, random),
            in_order: vary(45, random),
            syncs: 1,
            lived_ns: Some(vary(3600 * SECOND, random)),
            ..FileStory::default()
        };
        learner.tell(&facts(&format!("db/{number:06}.wal")), &log);
        learner.tell(&facts(&format!("db/{number:06}.tbl")), &table);
    }

    #[test]
    fn the_streams_of_an_unknown_store_are_found() {
        let (mut learner, mut random) = (Learner::new(LearnerSettings::default()), SplitMix::new(2));
        assert_eq!(learner.stream_of(&facts("db/000001.wal")), None);
        for number in 0..4 {
            tell(&mut learner, number, &mut random);
        }
        let of = |learner: &Learner, path: &str| learner.stream_of(&facts(path)).unwrap();
        let (log, table) = (of(&learner, "db/000099.wal"), of(&learner, "db/1000099.tbl"));
        assert_ne!(log, table);
        for number in 4..200 {
            tell(&mut learner, number, &mut random);
            assert_eq!((of(&learner, "db/5.wal"), of(&learner, "db/6.tbl")), (log, table), "{number}");
        }
        assert_eq!(learner.streams(), 2);
        assert_eq!(learner.kinds().iter().map(|(_, _, told)| told).sum::<u32>(), 400);
    }

    #[test]
    fn the_same_stories_give_the_same_streams() {
        let run = || {
            let (mut learner, mut random) = (Learner::new(LearnerSettings::default()), SplitMix::new(5));
            (0..50).for_each(|number| tell(&mut learner, number, &mut random));
            learner
                .kinds()
                .into_iter()
                .map(|(name, stream, told)| (name.to_owned(), stream, told))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut learner = Learner::new(LearnerSettings { streams: 4, seed: 1 });
        let story = FileStory { writes: 1, bytes: 1, ..FileStory::default() };
        for number in 0..KINDS_MAX + 100 {
            // Letters only: numbers are no kinds.
            let name: String =
                number.to_string().bytes().map(|digit| (digit - b'0' + b'a') as char).collect();
            learner.tell(&facts(&format!("{name}/x")), &story);
        }
        assert_eq!(learner.kinds().len(), KINDS_MAX);
        assert!(learner.streams() <= 4);
        learner.tell(&facts("y"), &FileStory::default());
        assert_eq!(learner.stream_of(&facts("y")), None, "it wrote nothing");
    }
}
