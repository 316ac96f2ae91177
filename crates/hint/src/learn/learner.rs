//! The learner: reports of files go in, a stream for a file that is first written
//! comes out.

use super::cluster::{Clusters, Joined};
use super::features::{Opening, Written, known};
use super::kind::{Kind, RememberedKind};
use super::shape::{pattern_of, shape_of};
use crate::profile::Task;
use braid_contract::{SplitMix, StreamId, WriteLife};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Figures that are learned at a time.
const BATCH: usize = 16;
/// Kinds that are remembered; those with the oldest last report go first.
const KINDS_MAX: usize = 4096;
/// Files that are followed at a time; the one that is followed for longest goes first.
const FOLLOWED_MAX: usize = 1 << 16;
/// Between a shape and its writer.
const WRITER: char = '\0';

/// Most streams that a volume learns: with two zones for the index and some for streams
/// by name, as many as the least devices have open.
pub const LEARNED_MAX: u16 = 8;
/// The same for the smallest devices: enough to distinguish short, middling and
/// long lives.
const LEARNED_MIN: u16 = 3;
/// Zones of a device for each stream: half of a stream's open zone is empty on average,
/// which takes room from all, and costs more than a finer distinction gains.
const ZONES_PER_STREAM: u32 = 12;
/// From which expected life on, in nanoseconds, data is of a level.
const LIVES: [(u64, WriteLife); 3] = [
    (86_400_000_000_000, WriteLife::Extreme),
    (3_600_000_000_000, WriteLife::Long),
    (60_000_000_000, WriteLife::Medium),
];

/// The name of a stream that was learned, by its number.
#[must_use]
pub fn learned_name(number: u16) -> String {
    format!("learned-{number}")
}

/// The number of a stream that was learned.
#[must_use]
pub fn learned_number(stream: StreamId) -> Option<u16> {
    (0..LEARNED_MAX).find(|number| StreamId::named(&learned_name(*number)) == stream)
}

/// Most streams that a volume learns whose smallest zoned tier has so many zones for
/// data.
#[must_use]
pub fn learned_most(zones: u32) -> u16 {
    u16::try_from(zones / ZONES_PER_STREAM).unwrap_or(LEARNED_MAX).clamp(LEARNED_MIN, LEARNED_MAX)
}

/// The level of a life that is expected to be so long: `short` below a minute, `medium`
/// below an hour, `long` below a day.
#[must_use]
pub fn life_of(life_ns: u64) -> WriteLife {
    LIVES.into_iter().find(|(from, _)| life_ns >= *from).map_or(WriteLife::Short, |(_, life)| life)
}

/// Learns streams.
#[derive(Clone, Debug)]
pub struct Learner {
    clusters: Clusters,
    kinds: HashMap<Arc<str>, Kind>,
    followed: HashMap<u64, Followed>,
    /// Files that are followed, by when that began.
    by_age: BTreeMap<u64, u64>,
    /// Kinds with a report that is not learned yet.
    batch: Vec<Arc<str>>,
    random: SplitMix,
    stories: u64,
}

/// A file that is followed until it is gone.
#[derive(Clone, Debug)]
struct Followed {
    kinds: Names,
    began: u64,
}

/// The names of a file's kinds.
#[derive(Clone, Debug)]
struct Names {
    /// By its path alone.
    shape: Arc<str>,
    /// With its writer, if that is known.
    full: Option<Arc<str>>,
}

/// A stream as it was learned.
#[derive(Clone, PartialEq, Debug)]
pub struct LearnedStream {
    /// Its number, from 0 on.
    pub number: u16,
    /// How long its files are expected to live, in nanoseconds.
    pub life_ns: u64,
    /// Its kinds of files, the most frequent first.
    pub kinds: Vec<LearnedKind>,
}

/// Files of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LearnedKind {
    /// A pattern of their paths.
    pub pattern: String,
    /// Number of files that were reported for it.
    pub files: u32,
}

/// The learner of a trace. Learning is deterministic.
impl Default for Learner {
    fn default() -> Self {
        Self::new(LEARNED_MAX, 1)
    }
}

impl Learner {
    /// Nothing is learned yet. There are at most so many streams, 1 to 1024.
    #[must_use]
    pub fn new(streams: u16, seed: u64) -> Self {
        Self {
            clusters: Clusters::new(usize::from(streams.clamp(1, 1024))),
            kinds: HashMap::new(),
            followed: HashMap::new(),
            by_age: BTreeMap::new(),
            batch: Vec::new(),
            random: SplitMix::new(seed),
            stories: 0,
        }
    }

    /// The number of the stream of a file that is first written; `None` as long as
    /// no similar files are known.
    #[must_use]
    pub fn stream_of(&self, opening: &Opening<'_>, now_ns: u64) -> Option<u16> {
        let names = Names::of(opening);
        let (shape, writer) = split(names.most_exact());
        let known = known(opening, shape, writer);
        let found = (self.centre_of(names.most_exact(), now_ns))
            .or_else(|| self.clusters.place_for(&known))
            .or_else(|| self.centre_of(&names.shape, now_ns))
            .or_else(|| self.clusters.like(&known));
        found.and_then(|at| u16::try_from(at).ok())
    }

    /// A file, by a number of its own, is followed from its first write on.
    pub fn begins(&mut self, file: u64, opening: &Opening<'_>, now_ns: u64) {
        self.leaves(file, false, now_ns);
        if self.followed.len() >= FOLLOWED_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.leaves(oldest, false, now_ns);
        }
        self.stories += 1;
        let kinds = Names::of(opening);
        for name in kinds.all() {
            self.kind_begins(name, name == kinds.most_exact(), opening, now_ns);
        }
        self.by_age.insert(self.stories, file);
        self.followed.insert(file, Followed { kinds, began: self.stories });
    }

    /// A file that is followed was written, and closed.
    pub fn closes(&mut self, file: u64, written: &Written, now_ns: u64) {
        let Some(followed) = self.followed.get(&file) else { return };
        let (kinds, new) = (followed.kinds.clone(), written.figures());
        for name in kinds.all() {
            if let Some(kind) = self.kinds.get_mut(name) {
                kind.was_written(&new);
            }
        }
        self.learn(&kinds, now_ns);
    }

    /// The data of a file is gone.
    pub fn ends(&mut self, file: u64, now_ns: u64) {
        let Some(followed) = self.followed.get(&file) else { return };
        let kinds = followed.kinds.clone();
        self.leaves(file, true, now_ns);
        self.learn(&kinds, now_ns);
    }

    /// The streams that were found so far.
    #[must_use]
    pub fn streams(&self) -> Vec<LearnedStream> {
        let mut streams: BTreeMap<usize, BTreeMap<&str, u32>> = BTreeMap::new();
        for (name, kind) in self.kinds.iter().filter(|(_, kind)| kind.told > 0) {
            // Others are only the shapes of kinds with writers.
            if let Some(centre) = kind.centre {
                let files = streams.entry(centre).or_default().entry(split(name).0).or_default();
                *files = files.saturating_add(kind.told);
            }
        }
        let lives: Vec<u64> = self.clusters.lives_ns().collect();
        let stream = |(at, shapes): (usize, BTreeMap<&str, u32>)| {
            let mut shapes: Vec<(&str, u32)> = shapes.into_iter().collect();
            shapes.sort_by_key(|(_, files)| u32::MAX - files);
            let kind = |(shape, files)| LearnedKind { pattern: pattern_of(shape), files };
            Some(LearnedStream {
                number: u16::try_from(at).ok()?,
                life_ns: *lives.get(at)?,
                kinds: shapes.into_iter().map(kind).collect(),
            })
        };
        streams.into_iter().filter_map(stream).collect()
    }

    /// The memory of kinds with reports, those with the latest first.
    #[must_use]
    pub fn remembered(&self, now_ns: u64) -> Vec<RememberedKind> {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_unstable_by_key(|(name, kind)| (u64::MAX - kind.last, *name));
        kinds.into_iter().filter_map(|(name, kind)| kind.remembered(name, now_ns)).collect()
    }

    /// Itself, which has learned nothing yet, with these remembered kinds, in that
    /// order. The files that were there then are not followed.
    #[must_use]
    pub fn with(mut self, kinds: &[RememberedKind], now_ns: u64) -> Self {
        for remembered in kinds.iter().take(KINDS_MAX).rev() {
            let (shape, writer) = split(&remembered.name);
            let opening = Opening { path: "", task: None, sync: remembered.sync, direct: remembered.direct };
            let mut kind = Kind::restored(remembered, known(&opening, shape, writer), now_ns);
            if let (Some(stream), Some(figures)) = (remembered.stream, kind.figures(now_ns)) {
                kind.centre = self.clusters.restore(stream.into(), &figures, kind.ended as f32);
            }
            self.stories += 1;
            kind.last = self.stories;
            self.kinds.insert(remembered.name.as_str().into(), kind);
        }
        self
    }

    /// How long the files of each stream are expected to live, in nanoseconds, in the
    /// order of their numbers.
    pub fn lives_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.clusters.lives_ns()
    }

    /// A file of a kind begins. The most exact of its kinds is of a stream from its first
    /// file on, if one is free.
    fn kind_begins(&mut self, name: &Arc<str>, is_most_exact: bool, opening: &Opening<'_>, now_ns: u64) {
        let (shape, writer) = split(name);
        let known = known(opening, shape, writer);
        let is_new = !self.kinds.contains_key(name);
        if is_new && self.kinds.len() >= KINDS_MAX {
            self.forget_oldest();
        }
        let kind = self.kinds.entry(Arc::clone(name)).or_insert_with(|| Kind::new(known, now_ns));
        kind.begins(known, now_ns);
        kind.last = self.stories;
        if is_new && is_most_exact {
            kind.centre = self.clusters.begins(&known);
        }
    }

    /// Learns from the most exact of a file's kinds.
    fn learn(&mut self, kinds: &Names, now_ns: u64) {
        self.stories += 1;
        for name in kinds.all() {
            if let Some(kind) = self.kinds.get_mut(name) {
                kind.last = self.stories;
            }
        }
        let exact = kinds.most_exact();
        let is_new = self.kinds.get(exact).is_some_and(|kind| kind.centre.is_none());
        self.batch.push(Arc::clone(exact));
        // The first ones are learned at once: a cold start should be short.
        if self.batch.len() >= BATCH || self.stories < 8 * BATCH as u64 || is_new {
            self.learn_batch(now_ns);
        }
    }

    /// Learns a batch in random order: the order must not matter more than it has to.
    fn learn_batch(&mut self, now_ns: u64) {
        for at in (1..self.batch.len()).rev() {
            let other = self.random.below(at as u64 + 1) as usize;
            self.batch.swap(at, other);
        }
        for name in std::mem::take(&mut self.batch) {
            let Some(kind) = self.kinds.get(&name) else { continue };
            let Some(figures) = kind.figures(now_ns) else { continue };
            let Joined { centre, merged } = self.clusters.learn(&figures, kind.ended as f32, kind.centre);
            self.are_one(merged);
            if let Some(kind) = self.kinds.get_mut(&name) {
                kind.centre = Some(centre);
            }
        }
        let merged = self.clusters.merge_near();
        self.are_one(merged);
    }

    /// The kinds of a centre that is gone are of another one.
    fn are_one(&mut self, merged: Option<(usize, usize)>) {
        let Some((from, into)) = merged else { return };
        let moved = self.kinds.values_mut().filter(|kind| kind.centre == Some(from));
        moved.for_each(|kind| kind.centre = Some(into));
    }

    /// The centre of a kind; `None` if it is not known.
    fn centre_of(&self, name: &Arc<str>, now_ns: u64) -> Option<usize> {
        let kind = self.kinds.get(name)?;
        kind.centre.or_else(|| kind.figures(now_ns).and_then(|figures| self.clusters.nearest(&figures)))
    }

    /// A file is not followed any more.
    fn leaves(&mut self, file: u64, ended: bool, now_ns: u64) {
        let Some(followed) = self.followed.remove(&file) else { return };
        self.by_age.remove(&followed.began);
        for name in followed.kinds.all() {
            if let Some(kind) = self.kinds.get_mut(name) {
                kind.leaves(ended, now_ns);
            }
        }
    }

    /// Forgets the half of the kinds with the oldest last reports.
    fn forget_oldest(&mut self) {
        let mut told: Vec<u64> = self.kinds.values().map(|kind| kind.last).collect();
        let middle = told.len() / 2;
        let (_, last, _) = told.select_nth_unstable(middle);
        let clusters = &mut self.clusters;
        self.kinds.retain(|_, kind| {
            let stays = kind.last > *last;
            if let Some(centre) = kind.centre.filter(|_| !stays) {
                clusters.leaves(centre);
            }
            stays
        });
    }
}

impl Names {
    fn of(opening: &Opening<'_>) -> Self {
        let shape = shape_of(opening.path);
        let full = opening.task.map(|Task { program, thread }| {
            format!("{shape}{WRITER}{}/{}", shape_of(program), shape_of(thread)).into()
        });
        Self { shape: shape.into(), full }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.shape).chain(&self.full)
    }

    fn most_exact(&self) -> &Arc<str> {
        self.full.as_ref().unwrap_or(&self.shape)
    }
}

/// The shape and the writer of a kind.
fn split(name: &str) -> (&str, &str) {
    name.split_once(WRITER).unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn opening<'a>(path: &'a str, task: Option<&'a Task>) -> Opening<'a> {
        Opening { path, task, sync: false, direct: false }
    }

    /// A file that is there for so many seconds, if it ends.
    fn live(learner: &mut Learner, file: u64, opening: &Opening<'_>, at: u64, seconds: Option<u64>) {
        learner.begins(file, opening, at);
        learner.closes(file, &Written { bytes: 1 << 20, ..Written::default() }, at);
        if let Some(seconds) = seconds {
            learner.ends(file, at + seconds * SECOND);
        }
    }

    #[test]
    fn writers_and_paths_make_kinds_and_what_is_like_them_is_of_their_stream() {
        let mut learner = Learner::new(8, 1);
        let task = |thread: &str| Task { program: "db".to_owned(), thread: thread.to_owned() };
        let (flush, compact) = (task("flush1"), task("compact1"));
        for number in 0..20 {
            let at = number * 10 * SECOND;
            let path = format!("db/{number}.sst");
            live(&mut learner, 2 * number, &opening(&path, Some(&flush)), at, Some(2));
            live(&mut learner, 2 * number + 1, &opening(&path, Some(&compact)), at, None);
        }
        let now = 200 * SECOND;
        let of = |path: &str, task: Option<&Task>| learner.stream_of(&opening(path, task), now);
        let (flushed, compacted) = (of("db/77.sst", Some(&flush)), of("db/77.sst", Some(&compact)));
        assert!(flushed.is_some() && compacted.is_some() && flushed != compacted);
        assert_eq!(of("db/77.sst", Some(&task("flush2"))), flushed, "threads with numbers are alike");
        assert!(of("db/77.sst", None).is_some() && of("db/new-7.sst", Some(&flush)).is_some());
        let other = of("elsewhere/x.txt", None);
        assert!(other.is_some() && other != flushed && other != compacted, "a stream is free for it");
        let lives: Vec<u64> = learner.lives_ns().collect();
        let life = |stream: Option<u16>| lives[usize::from(stream.unwrap())];
        assert!(life(compacted) > 10 * life(flushed), "{lives:?}");
        let streams = learner.streams();
        let kind = LearnedKind { pattern: "db/[0-9]*.sst".to_owned(), files: 20 };
        assert!(
            streams.len() == 2 && streams.iter().all(|stream| stream.kinds == std::slice::from_ref(&kind))
        );
    }

    #[test]
    fn a_kind_keeps_the_stream_that_its_first_file_got() {
        let mut learner = Learner::new(8, 1);
        let paths = ["store/seg-1.log", "store/old-1.log", "store/MANIFEST-1"];
        let mut given: Vec<Vec<Option<u16>>> = vec![Vec::new(); paths.len()];
        for number in 0..100 {
            let at = number * SECOND;
            for (kind, path) in paths.iter().enumerate() {
                let (file, opening) = (number * 3 + kind as u64, opening(path, None));
                given[kind].push(learner.stream_of(&opening, at));
                // The lives of the second kind are known late.
                let seconds = [Some(3), (number > 60).then_some(300), Some(1)][kind];
                live(&mut learner, file, &opening, at, seconds);
            }
        }
        let first: Vec<_> = given.iter().map(|given| given[0]).collect();
        assert_eq!(first, [Some(0), Some(1), Some(2)]);
        assert!(given.iter().zip(first).all(|(given, first)| given.iter().all(|stream| *stream == first)));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut learner = Learner::new(4, 1);
        for number in 0..2 * KINDS_MAX as u64 {
            // Letters only: numbers are no kinds.
            let name: String =
                number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
            live(&mut learner, number, &opening(&format!("{name}/x"), None), number, None);
            assert!(learner.kinds.len() <= KINDS_MAX);
        }
        assert!(learner.lives_ns().count() <= 4);
        assert_eq!(
            learner.stream_of(&opening("elsewhere/by/chance.txt", None), 0),
            None,
            "no stream is free"
        );
        for number in 0..2 * FOLLOWED_MAX as u64 {
            learner.begins(number, &opening("a/x", None), number);
        }
        assert!(learner.followed.len() == FOLLOWED_MAX && learner.by_age.len() == FOLLOWED_MAX);
    }

    #[test]
    fn what_is_remembered_is_known_after_a_mount() {
        let mut learner = Learner::default();
        for number in 0..20 {
            let at = number * SECOND;
            live(&mut learner, number * 2, &opening("store/seg-1.log", None), at, Some(2));
            live(&mut learner, number * 2 + 1, &opening("store/old-1.log", None), at, None);
        }
        let now = 20 * SECOND;
        let remembered = learner.remembered(now);
        assert_eq!(remembered.len(), 2);
        assert!(remembered[0].name.starts_with("store/old"), "the newest is first");
        // The clock begins anew.
        let again = Learner::default().with(&remembered, 5);
        for path in ["store/seg-7.log", "store/old-7.log", "new/x"] {
            assert_eq!(
                again.stream_of(&opening(path, None), 5),
                learner.stream_of(&opening(path, None), now)
            );
        }
        let seconds = |learner: &Learner| learner.lives_ns().map(|ns| ns / SECOND).collect::<Vec<_>>();
        assert_eq!(again.remembered(5), remembered);
        assert_eq!(seconds(&again).len(), 2);
        assert!(again.streams().iter().all(|stream| stream.kinds[0].files == 20));
        // Impossible values do no harm.
        let lie = RememberedKind {
            stream: Some(LEARNED_MAX),
            ended: f64::MAX,
            lived_ns: u64::MAX,
            told: u32::MAX,
            ..remembered[0].clone()
        };
        let mut again = Learner::default().with(&[lie], 5);
        assert!(again.lives_ns().next().is_none() && again.streams().is_empty());
        live(&mut again, 1, &opening("store/old-1.log", None), 6, Some(1));
        assert_eq!(again.streams().len(), 1);
    }

    #[test]
    fn names_and_levels_of_what_is_learned() {
        for number in 0..LEARNED_MAX {
            assert_eq!(learned_number(StreamId::named(&learned_name(number))), Some(number));
        }
        assert_eq!(learned_number(StreamId::named("learned-8")), None);
        let levels = [59, 60, 3600, 86_400].map(|seconds| life_of(seconds * SECOND));
        assert_eq!(levels, WriteLife::ALL);
    }
}
