//! Knowledge of streams, for `braid hints`: nothing is mounted for it.

use crate::config::{Rule, VolumeSettings};
use crate::hints;
use crate::refusal::Refusal;
use braid_contract::{StreamId, TierId};
use braid_hint::{Glob, HintConfig, Hints, Task};
use braid_placement::{Facts, Origin, Rules, WriteSpan};
use serde::Serialize;

/// A stream that a volume knows.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// Its name.
    pub stream: String,
    /// The profile that it is from; `None` for one of a rule.
    pub profile: Option<String>,
    /// The purpose of the profile.
    pub about: String,
    /// Patterns of its files; the condition of a rule.
    pub files: Vec<String>,
    /// Patterns of the programs that write them; any if there is none.
    pub programs: Vec<String>,
    /// Patterns of their threads; any if there is none.
    pub threads: Vec<String>,
    /// How long its data is expected to live, as passed to devices behind directories.
    pub life: String,
}

/// The file of a question.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Its path below the mount.
    pub path: String,
    /// The program that writes it.
    pub program: String,
    /// The thread that writes it.
    pub thread: String,
}

/// The streams of a volume with these settings, or of one without any: those of
/// rules, then those of profiles, in the order in which they are asked.
///
/// # Errors
/// If a profile of Braid's can't be read, which would be a fault of Braid.
pub fn list(volume: Option<&VolumeSettings>) -> Result<Vec<Listed>, Refusal> {
    let config = config(volume)?;
    let rules = volume.map_or(&[][..], |volume| &volume.rules);
    let named = || rules.iter().filter_map(|rule| Some((rule.stream.as_ref()?.value.as_str(), rule)));
    let hints = Hints::new(named().map(|(name, _)| name), &config);
    let mut listed: Vec<Listed> = named()
        .map(|(name, rule)| Listed {
            stream: name.to_owned(),
            profile: None,
            about: String::new(),
            files: vec![rule.when.value.text().to_owned()],
            programs: Vec::new(),
            threads: Vec::new(),
            life: life(&hints, name),
        })
        .collect();
    let texts = |globs: &[Glob]| globs.iter().map(|glob| glob.pattern().to_owned()).collect::<Vec<_>>();
    for profile in hints.profiles() {
        listed.extend(profile.streams.iter().map(|stream| Listed {
            stream: stream.name.clone(),
            profile: Some(profile.name.clone()),
            about: profile.about.clone(),
            files: texts(&stream.files),
            programs: texts(&[&profile.programs[..], &stream.programs].concat()),
            threads: texts(&stream.threads),
            life: life(&hints, &stream.name),
        }));
    }
    Ok(listed)
}

/// The stream that an empty file would belong to; `None` if none is known.
///
/// # Errors
/// As of [`list`].
pub fn explain(volume: Option<&VolumeSettings>, question: &Question) -> Result<Option<Listed>, Refusal> {
    let config = config(volume)?;
    let rules: Vec<_> =
        volume.map_or_else(Vec::new, |volume| volume.rules.iter().map(Rule::config).collect());
    // The tiers do not matter.
    let Some(rules) = Rules::make(&rules, &config, |_| Some(TierId(0))) else { return Ok(None) };
    let origin = Origin { thread: 1, ..Origin::default() };
    let found = rules.stream_of(question, origin, WriteSpan::default()).stream;
    let Some(stream) = found else { return Ok(None) };
    let name = rules.hints().name(stream);
    Ok(list(volume)?.into_iter().find(|listed| listed.stream == name))
}

/// Whether one of these patterns matches the path; an invalid pattern does not.
#[must_use]
pub fn is_one_of(patterns: &[String], path: &str) -> bool {
    patterns.iter().filter_map(|pattern| Glob::new(pattern).ok()).any(|glob| glob.matches(path))
}

fn config(volume: Option<&VolumeSettings>) -> Result<HintConfig, Refusal> {
    volume.map_or_else(hints::usual, |volume| Ok(volume.hints.clone()))
}

fn life(hints: &Hints, name: &str) -> String {
    let known = hints.stream(StreamId::named(name)).filter(|_| hints.is_on());
    known.map_or_else(|| "-".to_owned(), |known| known.life.name().to_owned())
}

impl Facts for Question {
    fn path(&self) -> &str {
        &self.path
    }

    fn owner(&self) -> i64 {
        0
    }

    fn age_ns(&self) -> i64 {
        0
    }

    fn task(&self, _thread: u32) -> Option<Task> {
        Some(Task { program: self.program.clone(), thread: self.thread.clone() })
    }
}
