//! Learning the streams of a recorded trace: `braid hints learn`. The result is a
//! profile, as of [`hints`](crate::hints), for a stack file.

use crate::hints;
use crate::refusal::{Located, Place, Refusal};
use crate::stack_text::{entry, write};
use crate::trace::Trace;
use crate::yaml::{Entry, Node, Value};
use braid_contract::Shown;
use braid_hint::{HintConfig, Hints, LearnWhere, Learner, Opening, Writer, Written};
use braid_hint::{learned_name, life_of};
use braid_placement::{TraceOp, TraceOpKind};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Patterns of a stream: the most frequent ones are written.
const PATTERNS_MAX: usize = 256;
/// The profile's name where no file gives it one.
const NAME: &str = "learned";

/// The results of learning from a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct FromTrace {
    /// The profile, as the text of a file.
    pub profile: String,
    /// Its streams.
    pub streams: usize,
    /// Files that were written in the trace.
    pub files: u64,
    /// Those of them that the profile gives the stream that they were learned in.
    pub fitting: u64,
    /// Patterns that were left out, since a stream has many.
    pub left_out: usize,
}

/// The writes to a file so far.
#[derive(Default)]
struct Story {
    bytes: u64,
    writes: u64,
    written: u64,
    in_order: u64,
    overwritten: u64,
    end: u64,
}

/// Learns the streams of `trace`, which is called `file` in messages. The profile is
/// called as the file `out`, if that is given.
///
/// # Errors
/// If nothing was written in the trace, or the name of `out` can't be that of a
/// profile.
pub fn learn(trace: &Trace, file: &Path, out: Option<&Path>) -> Result<FromTrace, Refusal> {
    let place = Place::file(&file.to_string_lossy());
    let name = out.and_then(Path::file_stem).map_or_else(|| NAME.into(), |stem| stem.to_string_lossy());
    let out_place = Place::file(&out.unwrap_or(file).to_string_lossy());
    hints::check_word(&Located::new(name.clone().into_owned(), out_place))?;
    let mut learning = Learning::default();
    for op in &trace.ops {
        learning.take(op, trace);
    }
    let end_ns = trace.ops.last().map_or(0, |op| op.at_ns);
    for number in learning.stories.keys().copied().collect::<Vec<_>>() {
        learning.close(number, end_ns);
    }
    let streams = learning.learner.streams();
    if streams.is_empty() {
        return Err(place.refuse("no file is written in it", "record while files are made and written"));
    }
    let left_out = streams.iter().map(|stream| stream.kinds.len().saturating_sub(PATTERNS_MAX)).sum();
    let about = format!("learned from {}", file.shown());
    let listed = streams.iter().map(|stream| {
        let patterns = stream.kinds.iter().take(PATTERNS_MAX).map(|kind| kind.pattern.clone());
        let files = patterns.map(|pattern| Node::new(Value::Scalar(pattern))).collect();
        let life = life_of(stream.life_ns).name().to_owned();
        let keys = vec![entry("files", Value::List(files)), entry("life", Value::Scalar(life))];
        entry(&learned_name(stream.number), Value::Map(keys))
    });
    let keys: Vec<Entry> = vec![
        entry("name", Value::Scalar(name.clone().into_owned())),
        entry("about", Value::Scalar(about)),
        entry("streams", Value::Map(listed.collect())),
    ];
    let profile = write(&Node::new(Value::Map(keys)));
    let (files, fitting) = learning.fitting(&profile, &name, end_ns)?;
    Ok(FromTrace { profile, streams: streams.len(), files, fitting, left_out })
}

/// A learner, and the files that it follows.
#[derive(Default)]
struct Learning {
    learner: Learner,
    stories: BTreeMap<u64, Story>,
    /// All paths that were written.
    paths: Vec<String>,
}

impl Learning {
    fn take(&mut self, op: &TraceOp, trace: &Trace) {
        let Some(file) = trace.files.get(op.file) else { return };
        let number = file.number;
        match op.kind {
            TraceOpKind::Write => {
                if !self.stories.contains_key(&number) {
                    self.learner.begins(number, &opening(&file.path, op), op.at_ns);
                    self.paths.push(file.path.clone());
                    self.stories.insert(number, Story { end: op.offset, ..Story::default() });
                }
                if let Some(story) = self.stories.get_mut(&number) {
                    story.wrote(op);
                }
            }
            // Its data goes.
            TraceOpKind::Remove => self.end(number, op.at_ns),
            TraceOpKind::Truncate if op.size == 0 => self.end(number, op.at_ns),
            // It was perhaps closed before that.
            TraceOpKind::Create | TraceOpKind::Open => self.close(number, op.at_ns),
            _ => {}
        }
    }

    fn close(&mut self, number: u64, now_ns: u64) {
        if let Some(story) = self.stories.get(&number) {
            self.learner.closes(number, &story.written(), now_ns);
        }
    }

    fn end(&mut self, number: u64, now_ns: u64) {
        self.close(number, now_ns);
        if self.stories.remove(&number).is_some() {
            self.learner.ends(number, now_ns);
        }
    }

    /// The files that were written, and those that the profile places as the learner
    /// would.
    fn fitting(&self, profile: &str, name: &str, end_ns: u64) -> Result<(u64, u64), Refusal> {
        let profiles = vec![Arc::new(hints::parse(profile, name)?)];
        let hints = Hints::new([], &HintConfig { on: true, profiles, learned: LearnWhere::Never });
        let fits = |path: &&String| {
            let writer = Writer::new(&|| None);
            let found = hints.classify(path, &writer).map(|stream| hints.name(stream));
            let opening = Opening { path, task: None, sync: false, direct: false };
            let learned = self.learner.stream_of(&opening, end_ns);
            found == learned.map(|number| format!("{name}/{}", learned_name(number)))
        };
        Ok((self.paths.len() as u64, self.paths.iter().filter(fits).count() as u64))
    }
}

impl Story {
    fn wrote(&mut self, op: &TraceOp) {
        self.writes += 1;
        self.written += op.len;
        self.in_order += u64::from(op.offset == self.end);
        self.overwritten += self.bytes.saturating_sub(op.offset).min(op.len);
        self.end = op.offset + op.len;
        self.bytes = self.bytes.max(self.end);
    }

    fn written(&self) -> Written {
        let share = |part: u64, of: u64| (of > 0).then(|| part as f32 / of as f32);
        Written {
            bytes: self.bytes,
            each: self.written.checked_div(self.writes),
            in_order: share(self.in_order, self.writes),
            overwritten: share(self.overwritten, self.written),
        }
    }
}

fn opening<'a>(path: &'a str, op: &TraceOp) -> Opening<'a> {
    Opening { path, task: None, sync: op.sync, direct: op.direct }
}
