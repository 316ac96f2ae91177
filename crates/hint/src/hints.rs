//! All streams of a volume: those that rules name, and those of profiles.

use crate::learn::{LEARNED_MAX, learned_name};
use crate::profile::{Profile, Writer};
use braid_contract::{StreamId, WriteLife};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The settings of streams besides rules. The default is none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HintConfig {
    /// Whether stores get streams.
    pub on: bool,
    /// The profiles, in the order in which they are asked; none if it is off.
    pub profiles: Vec<Arc<Profile>>,
    /// Whether streams of other files are learned; never if it is off.
    pub learned: LearnWhere,
}

/// Where streams are learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LearnWhere {
    /// Nowhere.
    Never,
    /// In any volume.
    Always,
    /// In one with a tier that keeps streams apart.
    #[default]
    WhereApart,
}

/// The streams of a volume. The default knows none, and gives stores no hints.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    on: bool,
    profiles: Vec<Arc<Profile>>,
    known: BTreeMap<StreamId, KnownStream>,
    learned: LearnWhere,
}

/// A stream with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownStream {
    /// Its name.
    pub name: String,
    /// How long its data is expected to live.
    pub life: WriteLife,
    /// The profile that it is from; `None` if only a rule names it.
    pub profile: Option<String>,
    /// Its number, if it is learned; the learner knows its life then.
    pub learned: Option<u16>,
}

impl Hints {
    /// The streams that rules name, in their order, and profiles, of which the first
    /// that knows a file counts. The kernel knows four levels of life: a stream of
    /// rules gets one by its number, so that the fifth shares that of the first.
    pub fn new<'a>(ruled: impl IntoIterator<Item = &'a str>, config: &HintConfig) -> Self {
        let profiles = if config.on { config.profiles.clone() } else { Vec::new() };
        let learned = if config.on { config.learned } else { LearnWhere::Never };
        let mut hints = Self { on: config.on, profiles: Vec::new(), known: BTreeMap::new(), learned };
        for profile in &profiles {
            for stream in &profile.streams {
                let known = KnownStream {
                    name: stream.name.clone(),
                    life: stream.life,
                    profile: Some(profile.name.clone()),
                    learned: None,
                };
                hints.known.entry(StreamId::named(&stream.name)).or_insert(known);
            }
        }
        hints.profiles = profiles;
        let mut levels = WriteLife::ALL.into_iter().cycle();
        for name in ruled {
            let id = StreamId::named(name);
            // A profile's stream has the life of the profile.
            if !hints.known.contains_key(&id)
                && let Some(life) = levels.next()
            {
                let name = name.to_owned();
                hints.known.insert(id, KnownStream { name, life, profile: None, learned: None });
            }
        }
        let numbers = if learned == LearnWhere::Never { 0..0 } else { 0..LEARNED_MAX };
        for (number, name) in numbers.map(|number| (number, learned_name(number))) {
            let (life, profile, learned) = (WriteLife::Short, None, Some(number));
            let known = KnownStream { name, life, profile, learned };
            hints.known.entry(StreamId::named(&known.name)).or_insert(known);
        }
        hints
    }

    /// Whether stores get any hints.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Whether streams of files are learned that no rule and no profile knows;
    /// `keeps_apart` says whether a tier keeps streams apart.
    pub fn learns(&self, keeps_apart: impl FnOnce() -> bool) -> bool {
        match self.learned {
            LearnWhere::Never => false,
            LearnWhere::Always => true,
            LearnWhere::WhereApart => keeps_apart(),
        }
    }

    /// The stream of a file by the profiles.
    #[must_use]
    pub fn classify(&self, path: &str, writer: &Writer<'_>) -> Option<StreamId> {
        let found = self.profiles.iter().find_map(|profile| profile.find(path, writer));
        found.map(|stream| StreamId::named(&stream.name))
    }

    /// A stream with a name.
    #[must_use]
    pub fn stream(&self, stream: StreamId) -> Option<&KnownStream> {
        self.known.get(&stream)
    }

    /// The stream as people know it.
    #[must_use]
    pub fn name(&self, stream: StreamId) -> String {
        self.stream(stream).map_or_else(|| format!("stream {:08x}", stream.0), |known| known.name.clone())
    }

    /// The profiles, in the order in which they are asked.
    #[must_use]
    pub fn profiles(&self) -> &[Arc<Profile>] {
        &self.profiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glob::Glob;
    use crate::learn::learned_number;
    use crate::profile::{ProfileStream, Task};
    use std::sync::atomic::{AtomicU32, Ordering};

    fn globs(patterns: &[&str]) -> Vec<Glob> {
        patterns.iter().map(|pattern| Glob::new(pattern).unwrap()).collect()
    }

    fn stream(name: &str, files: &[&str], threads: &[&str]) -> ProfileStream {
        let (files, threads) = (globs(files), globs(threads));
        ProfileStream { name: name.to_owned(), files, programs: Vec::new(), threads, life: WriteLife::Long }
    }

    fn profile(name: &str, programs: &[&str], streams: Vec<ProfileStream>) -> Arc<Profile> {
        Arc::new(Profile { name: name.to_owned(), about: String::new(), programs: globs(programs), streams })
    }

    fn hints() -> Hints {
        let tables = stream("db/flushed", &["*.sst"], &["db:high*"]);
        let all = stream("db/compacted", &["*.sst"], &[]);
        let own = stream("own/data", &["*.dat"], &[]);
        let profiles =
            vec![profile("db", &[], vec![tables, all]), profile("own", &["own", "own-*"], vec![own])];
        Hints::new(
            ["wal", "own/data", "a", "b", "c", "d", "wal"],
            &HintConfig { on: true, profiles, ..HintConfig::default() },
        )
    }

    #[test]
    fn a_file_is_of_the_first_stream_that_fits() {
        let hints = hints();
        let asked = AtomicU32::new(0);
        let by = |path: &str, program: &str, thread: &str| {
            let task = || {
                asked.fetch_add(1, Ordering::Relaxed);
                Some(Task { program: program.to_owned(), thread: thread.to_owned() })
            };
            hints.classify(path, &Writer::new(&task)).map(|stream| hints.name(stream))
        };
        assert_eq!(by("x/1.sst", "db", "db:high1").as_deref(), Some("db/flushed"));
        assert_eq!(by("x/1.sst", "db", "main").as_deref(), Some("db/compacted"));
        assert_eq!(by("1.dat", "own-3", "").as_deref(), Some("own/data"));
        assert_eq!(asked.swap(0, Ordering::Relaxed), 3);
        assert_eq!(by("1.dat", "other", ""), None);
        assert_eq!(by("1.txt", "own", ""), None);
        let unknown = || None;
        for (path, missed) in [("x/1.sst", true), ("1.txt", false)] {
            let writer = Writer::new(&unknown);
            let found = hints.classify(path, &writer).map(|stream| hints.name(stream));
            assert_eq!((found.is_some(), writer.is_missed()), (missed, missed), "{found:?}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "a file of no stream asks for no thread");
    }

    #[test]
    fn streams_are_known_by_name_and_share_four_levels() {
        let hints = hints();
        let life = |name: &str| hints.stream(StreamId::named(name)).map(|stream| stream.life);
        let lives: Vec<_> = ["wal", "a", "b", "c", "d"].map(life).into_iter().flatten().collect();
        assert_eq!(lives[..4], WriteLife::ALL);
        assert_eq!(lives[4], WriteLife::ALL[0]);
        assert_eq!(life("db/flushed"), Some(WriteLife::Long));
        assert_eq!(life("own/data"), Some(WriteLife::Long), "a rule names it too");
        assert_eq!(hints.name(StreamId::named("own/data")), "own/data");
        assert_eq!(hints.name(StreamId(26)), "stream 0000001a");
        let profiles = hints.profiles().to_vec();
        let off = Hints::new(["wal"], &HintConfig { on: false, profiles, learned: LearnWhere::Always });
        assert!(!off.learns(|| true) && hints.learns(|| true) && !hints.learns(|| false));
        let learned = hints.stream(StreamId::named("learned-3")).unwrap();
        assert_eq!((learned.learned, learned_number(StreamId::named("learned-3"))), (Some(3), Some(3)));
        assert!(!off.is_on() && off.name(StreamId::named("wal")) == "wal");
        assert!(off.classify("x.sst", &Writer::new(&|| None)).is_none());
    }
}
