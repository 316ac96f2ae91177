//! All streams of a volume: those that rules name, and those of profiles.

use crate::profile::{Profile, Task};
use braid_contract::{StreamId, WriteLife};
use std::collections::BTreeMap;

/// What a volume is to know of streams besides its rules. The default is nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HintConfig {
    /// Whether stores are told of streams.
    pub on: bool,
    /// The profiles, in the order in which they are asked; none if it is off.
    pub profiles: Vec<Profile>,
}

/// The streams of a volume. The default knows none, and says nothing to stores.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    on: bool,
    profiles: Vec<Profile>,
    known: BTreeMap<StreamId, KnownStream>,
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
}

impl Hints {
    /// The streams that rules name, in their order, and profiles, of which the first
    /// that knows a file counts. The kernel knows four levels of life: a stream of
    /// rules gets one by its number, so that the fifth shares that of the first.
    pub fn new<'a>(ruled: impl IntoIterator<Item = &'a str>, config: &HintConfig) -> Self {
        let profiles = if config.on { config.profiles.clone() } else { Vec::new() };
        let mut hints = Self { on: config.on, profiles: Vec::new(), known: BTreeMap::new() };
        for profile in &profiles {
            for stream in &profile.streams {
                let known = KnownStream {
                    name: stream.name.clone(),
                    life: stream.life,
                    profile: Some(profile.name.clone()),
                };
                hints.known.entry(StreamId::named(&stream.name)).or_insert(known);
            }
        }
        hints.profiles = profiles;
        let mut levels = WriteLife::ALL.into_iter().cycle();
        for name in ruled {
            let id = StreamId::named(name);
            // That of a profile is what that says.
            if !hints.known.contains_key(&id)
                && let Some(life) = levels.next()
            {
                hints.known.insert(id, KnownStream { name: name.to_owned(), life, profile: None });
            }
        }
        hints
    }

    /// Whether stores are told anything.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// The stream of a file by the profiles. `task` is asked only if it matters, and
    /// once at most.
    pub fn classify(&self, path: &str, task: &dyn Fn() -> Task) -> Option<StreamId> {
        let mut asked = None;
        let mut task = || asked.get_or_insert_with(task).clone();
        let found = self.profiles.iter().find_map(|profile| profile.find(path, &mut task));
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
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glob::Glob;
    use crate::profile::ProfileStream;
    use std::cell::Cell;

    fn globs(patterns: &[&str]) -> Vec<Glob> {
        patterns.iter().map(|pattern| Glob::new(pattern).unwrap()).collect()
    }

    fn stream(name: &str, files: &[&str], threads: &[&str]) -> ProfileStream {
        let (files, threads) = (globs(files), globs(threads));
        ProfileStream { name: name.to_owned(), files, programs: Vec::new(), threads, life: WriteLife::Long }
    }

    fn profile(name: &str, programs: &[&str], streams: Vec<ProfileStream>) -> Profile {
        Profile { name: name.to_owned(), about: String::new(), programs: globs(programs), streams }
    }

    fn hints() -> Hints {
        let tables = stream("db/flushed", &["*.sst"], &["db:high*"]);
        let all = stream("db/compacted", &["*.sst"], &[]);
        let own = stream("own/data", &["*.dat"], &[]);
        let profiles =
            vec![profile("db", &[], vec![tables, all]), profile("own", &["own", "own-*"], vec![own])];
        Hints::new(["wal", "own/data", "a", "b", "c", "d", "wal"], &HintConfig { on: true, profiles })
    }

    #[test]
    fn a_file_is_of_the_first_stream_that_fits() {
        let hints = hints();
        let asked = Cell::new(0);
        let by = |path: &str, program: &str, thread: &str| {
            let task = || {
                asked.set(asked.get() + 1);
                Task { program: program.to_owned(), thread: thread.to_owned() }
            };
            hints.classify(path, &task).map(|stream| hints.name(stream))
        };
        assert_eq!(by("x/1.sst", "db", "db:high1").as_deref(), Some("db/flushed"));
        assert_eq!(by("x/1.sst", "db", "main").as_deref(), Some("db/compacted"));
        assert_eq!(by("1.dat", "own-3", "").as_deref(), Some("own/data"));
        assert_eq!(asked.replace(0), 3);
        assert_eq!(by("1.dat", "other", ""), None);
        assert_eq!(by("1.txt", "own", ""), None);
        assert_eq!(asked.get(), 1, "a file of no stream asks for no thread");
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
        let off = Hints::new(["wal"], &HintConfig { on: false, profiles });
        assert!(!off.is_on() && off.name(StreamId::named("wal")) == "wal");
        assert!(off.classify("x.sst", &Task::default).is_none());
    }
}
