//! The history of a workload, as far as it matters for the result of a crash:
//! the versions of each file, the changes of names, and the times at which they
//! became durable.
//!
//! Everything is tagged with the step that did it. A crash is after `done`
//! steps, with or without one more in flight, and looks at that much of the
//! history.

use super::content::Content;
use super::op::{Dir, Name};
use braid_contract::InodeId;

/// A file of the workload, by number: in the order in which they were made.
pub(crate) type FileId = u8;

/// The file that each name leads to.
pub(crate) type Names = [Option<FileId>; Name::ALL.len()];

/// When the power went: after `done` steps, and in the middle of the next one
/// if one is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    pub(crate) done: usize,
    pub(crate) in_flight: bool,
    pub(crate) clock_ns: i64,
}

impl Moment {
    /// Whether the request of `step` may have happened.
    fn reaches(&self, step: usize) -> bool {
        step < self.done || self.in_flight && step == self.done
    }
}

/// The state of a file after a step.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) step: usize,
    pub(crate) content: Content,
    /// The modification time is not before this.
    pub(crate) mtime_min_ns: i64,
    /// Whether this is the requested result of the step, which had another one:
    /// it counts only while the step is in flight.
    asked: bool,
    /// A tier failed in this step or an earlier one: any part of the previous
    /// state may remain.
    in_doubt: bool,
}

/// The attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    /// User and group.
    pub(crate) owner: (u32, u32),
    /// The value of [`XATTR`](super::tree::XATTR).
    pub(crate) xattr: Option<u64>,
}

impl Attributes {
    /// Those of a file that was just made.
    pub(crate) const NEW: Self = Self { mode: 0o644, owner: (0, 0), xattr: None };
}

/// A file's life.
#[derive(Clone, Debug)]
pub(crate) struct FileHistory {
    pub(crate) ino: InodeId,
    versions: Vec<Version>,
    /// Since when (step) which version's contents are durable, and its times.
    durable: Vec<(usize, usize)>,
    durable_times: Vec<(usize, usize)>,
    /// Its attributes after each step, and the steps from which on they are
    /// durable.
    attributes: Vec<(usize, Attributes)>,
    durable_attributes: Vec<(usize, usize)>,
}

impl FileHistory {
    /// The current contents of the file.
    pub(crate) fn now(&self) -> &Content {
        &self.last().content
    }

    fn last(&self) -> &Version {
        // A file begins with a version, and none is ever taken away.
        self.versions.last().expect("a file has a version")
    }

    /// The last version for certain at a moment, by its number.
    fn settled(&self, moment: Moment) -> usize {
        let done = |version: &Version| version.step < moment.done && !version.asked;
        self.versions.iter().rposition(done).unwrap_or(0)
    }

    fn durable_at(marks: &[(usize, usize)], moment: Moment) -> usize {
        marks.iter().rev().find(|(step, _)| *step < moment.done).map_or(0, |(_, version)| *version)
    }

    /// The versions that a crash may leave parts of; the first one is certain
    /// unless a later one changed it.
    pub(crate) fn window(&self, moment: Moment, loses_power: bool) -> impl Iterator<Item = &Version> {
        let mut first = match loses_power {
            true => Self::durable_at(&self.durable, moment),
            false => self.settled(moment),
        };
        while first > 0 && (self.versions[first].in_doubt || self.versions[first].asked) {
            first -= 1;
        }
        self.versions[first..].iter().enumerate().filter_map(move |(at, version)| {
            let counts = moment.reaches(version.step) && (!version.asked || version.step == moment.done);
            (at == 0 || counts).then_some(version)
        })
    }

    /// Whether a tier failed in one of the steps of the window.
    pub(crate) fn is_in_doubt(&self, moment: Moment, loses_power: bool) -> bool {
        self.window(moment, loses_power).any(|version| version.in_doubt)
    }

    /// Its present attributes.
    pub(crate) fn attributes_now(&self) -> Attributes {
        self.attributes.last().map_or(Attributes::NEW, |(_, attributes)| *attributes)
    }

    /// The attributes that a crash may leave.
    pub(crate) fn legal_attributes(&self, moment: Moment, loses_power: bool) -> Vec<Attributes> {
        let first = match loses_power {
            true => Self::durable_at(&self.durable_attributes, moment),
            false => self.attributes.iter().rposition(|(step, _)| *step < moment.done).unwrap_or(0),
        };
        let later = self.attributes[first..].iter().enumerate();
        let later = later.filter(|(at, (step, _))| *at == 0 || moment.reaches(*step));
        later.map(|(_, (_, attributes))| *attributes).collect()
    }

    /// The earliest modification time that a crash may leave.
    pub(crate) fn mtime_min_ns(&self, moment: Moment, loses_power: bool) -> i64 {
        let first = match loses_power {
            true => Self::durable_at(&self.durable_times, moment),
            false => self.settled(moment),
        };
        self.versions[first].mtime_min_ns
    }
}

/// A change of names, which happens as a whole.
#[derive(Clone, Debug)]
struct NameChange {
    step: usize,
    names: Vec<(Name, Option<FileId>)>,
    /// It did not come about; it counts only as long as it is in flight.
    asked: bool,
}

/// The operations that make changes of names durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settling {
    Dir(Dir),
    File(FileId),
    All,
}

/// The history of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) files: Vec<FileHistory>,
    names: Names,
    changes: Vec<NameChange>,
    settlings: Vec<(usize, Settling)>,
}

impl History {
    /// The file that a name leads to now.
    pub(crate) fn file_of(&self, name: Name) -> Option<FileId> {
        self.names[name.at()]
    }

    /// The file now.
    pub(crate) fn content(&self, file: FileId) -> &Content {
        self.files[usize::from(file)].now()
    }

    /// The number that the next file gets.
    pub(crate) fn next_file(&self) -> FileId {
        // Workloads are a few dozen steps long.
        self.files.len() as FileId
    }

    /// A file is made.
    pub(crate) fn born(&mut self, step: usize, ino: InodeId, clock_ns: i64) -> FileId {
        let born = Version {
            step,
            content: Content::default(),
            mtime_min_ns: clock_ns,
            asked: false,
            in_doubt: false,
        };
        self.files.push(FileHistory {
            ino,
            versions: vec![born],
            durable: Vec::new(),
            durable_times: Vec::new(),
            attributes: vec![(step, Attributes::NEW)],
            durable_attributes: Vec::new(),
        });
        self.next_file() - 1
    }

    /// Notes that a step changed a file to `content`. The requested result
    /// differs if the step failed midway.
    pub(crate) fn changed(
        &mut self,
        step: usize,
        file: FileId,
        content: Content,
        asked: Option<Content>,
        mtime_min_ns: Option<i64>,
    ) {
        let versions = &mut self.files[usize::from(file)].versions;
        let before = versions.last().map_or(i64::MIN, |version| version.mtime_min_ns);
        // Nothing of the previous state is left.
        let in_doubt = content.size > 0 && versions.last().is_some_and(|version| version.in_doubt);
        if let Some(content) = asked {
            versions.push(Version { step, content, mtime_min_ns: before, asked: true, in_doubt });
        }
        let mtime_min_ns = mtime_min_ns.unwrap_or(before);
        versions.push(Version { step, content, mtime_min_ns, asked: false, in_doubt });
    }

    /// A step was to change a file to `content`, and a tier failed: any part of
    /// it may have come about.
    pub(crate) fn failed(&mut self, step: usize, file: FileId, content: Content) {
        let versions = &mut self.files[usize::from(file)].versions;
        let mtime_min_ns = versions.last().map_or(i64::MIN, |version| version.mtime_min_ns);
        versions.push(Version { step, content, mtime_min_ns, asked: false, in_doubt: true });
    }

    /// A step changed a file's attributes.
    pub(crate) fn attributes_set(&mut self, step: usize, file: FileId, attributes: Attributes) {
        self.files[usize::from(file)].attributes.push((step, attributes));
    }

    /// A step changed names, all at once; or failed to, if not `done`.
    pub(crate) fn renamed(&mut self, step: usize, names: Vec<(Name, Option<FileId>)>, done: bool) {
        if done {
            names.iter().for_each(|(name, file)| self.names[name.at()] = *file);
        }
        self.changes.push(NameChange { step, names, asked: !done });
    }

    /// Whether a file has had names, and lost the last.
    pub(crate) fn lost_its_name(&self, file: FileId) -> bool {
        let mut named = self.changes.iter().filter(|change| !change.asked).flat_map(|change| &change.names);
        named.any(|(_, named)| *named == Some(file)) && !self.names.contains(&Some(file))
    }

    /// A file is durable; with `times`, as a whole.
    pub(crate) fn synced(&mut self, step: usize, file: FileId, times: bool) {
        let history = &mut self.files[usize::from(file)];
        let version = history.versions.len() - 1;
        history.durable.push((step, version));
        if times {
            history.durable_times.push((step, version));
            history.durable_attributes.push((step, history.attributes.len() - 1));
            self.settlings.push((step, Settling::File(file)));
        }
    }

    /// A directory's names are durable.
    pub(crate) fn dir_synced(&mut self, step: usize, dir: Dir) {
        self.settlings.push((step, Settling::Dir(dir)));
    }

    /// Everything is durable.
    pub(crate) fn all_synced(&mut self, step: usize) {
        for file in 0..self.next_file() {
            self.synced(step, file, true);
        }
        self.settlings.push((step, Settling::All));
    }

    /// Whether a change is durable for certain. One in two directories is when
    /// both are.
    fn is_settled(&self, change: &NameChange, moment: Moment, fsync_names: bool) -> bool {
        let synced = |wanted: Settling, before: usize| {
            let within = |step: usize| step > change.step && step < before.min(moment.done);
            self.settlings.iter().any(|(step, settling)| *settling == wanted && within(*step))
        };
        let by = |wanted: Settling| synced(wanted, usize::MAX);
        // A sync covers the names that the file has then. One that was given and
        // taken away before is durable if its going is: else it may never have
        // been.
        let by_file = |name: Name, file: FileId| match self.next_change(change, name) {
            Some(next) if !synced(Settling::File(file), next.step) => {
                by(Settling::File(file)) && self.is_settled(next, moment, fsync_names)
            }
            _ => by(Settling::File(file)),
        };
        by(Settling::All)
            || change.names.iter().all(|(name, _)| by(Settling::Dir(name.dir())))
            || fsync_names
                && change.names.iter().any(|(name, file)| file.is_some_and(|file| by_file(*name, file)))
    }

    /// The next change of a name after this one.
    fn next_change(&self, change: &NameChange, name: Name) -> Option<&NameChange> {
        let later = self.changes.iter().filter(|later| later.step > change.step && !later.asked);
        later.into_iter().find(|later| later.names.iter().any(|(other, _)| *other == name))
    }

    /// All states in which a crash may leave the names.
    pub(crate) fn legal_names(&self, moment: Moment, rules: Rules) -> Vec<Names> {
        let mut names = Names::default();
        let apply = |names: &mut Names, change: &NameChange| {
            change.names.iter().for_each(|(name, file)| names[name.at()] = *file);
        };
        let changes: Vec<(&NameChange, bool)> = self
            .changes
            .iter()
            .filter(|change| moment.reaches(change.step) && (!change.asked || change.step == moment.done))
            .map(|change| {
                let certain = match rules {
                    Rules::PowerLoss { fsync_names, .. } => self.is_settled(change, moment, fsync_names),
                    Rules::ProcessCrash => change.step < moment.done,
                };
                (change, certain)
            })
            .collect();
        let first = match rules {
            // In order: everything before a durable change is durable too.
            Rules::PowerLoss { ordered: true, .. } | Rules::ProcessCrash => {
                changes.iter().rposition(|(_, certain)| *certain).map_or(0, |at| at + 1)
            }
            Rules::PowerLoss { .. } => changes.iter().take_while(|(_, certain)| *certain).count(),
        };
        changes[..first].iter().for_each(|(change, _)| apply(&mut names, change));
        let mut legal = vec![names];
        let ordered = !matches!(rules, Rules::PowerLoss { ordered: false, .. });
        for (change, certain) in &changes[first..] {
            if ordered {
                // In order, a change persists only after all earlier ones.
                apply(&mut names, change);
                legal.push(names);
                continue;
            }
            let lost = if *certain { Vec::new() } else { legal.clone() };
            legal.iter_mut().for_each(|names| apply(names, change));
            legal.extend(lost);
            legal.sort_unstable();
            legal.dedup();
        }
        legal
    }
}

/// The effects of a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rules {
    /// The process dies: answered operations stay.
    ProcessCrash,
    /// The power goes.
    PowerLoss {
        /// Changes of the namespace are durable in their order.
        ordered: bool,
        /// `fsync` of a file makes its names durable.
        fsync_names: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERED: Rules = Rules::PowerLoss { ordered: true, fsync_names: false };
    const LOOSE: Rules = Rules::PowerLoss { ordered: false, fsync_names: true };

    fn after(done: usize) -> Moment {
        Moment { done, in_flight: false, clock_ns: 0 }
    }

    fn names(a: Option<FileId>, b: Option<FileId>) -> Names {
        [a, b, None, None]
    }

    /// Step 0 makes `a`, step 1 makes `b`, step 2 renames `a` over `b`.
    fn rename_over() -> History {
        let mut history = History::default();
        for (step, name) in [(0, Name::A), (1, Name::B)] {
            let file = history.born(step, InodeId(10 + step as u64), 0);
            history.renamed(step, vec![(name, Some(file))], true);
        }
        history.renamed(2, vec![(Name::A, None), (Name::B, Some(0))], true);
        history
    }

    #[test]
    fn in_order_names_are_those_after_some_step() {
        let legal = rename_over().legal_names(after(3), ORDERED);
        assert_eq!(
            legal,
            [names(None, None), names(Some(0), None), names(Some(0), Some(1)), names(None, Some(0))]
        );
    }

    #[test]
    fn without_order_each_change_is_there_or_not_and_a_rename_as_a_whole() {
        let legal = rename_over().legal_names(after(3), LOOSE);
        assert!(legal.contains(&names(None, Some(1))) && legal.contains(&names(None, Some(0))));
        assert!(!legal.contains(&names(Some(0), Some(0))));
        assert_eq!(legal.len(), 5);
    }

    #[test]
    fn a_synced_directory_keeps_its_names() {
        let mut history = rename_over();
        history.dir_synced(3, Dir::Root);
        for rules in [ORDERED, LOOSE] {
            assert_eq!(history.legal_names(after(4), rules), [names(None, Some(0))]);
            assert!(history.legal_names(after(3), rules).len() > 1, "not before it returned");
        }
    }

    #[test]
    fn a_synced_file_keeps_its_names_where_that_is_promised() {
        let mut history = rename_over();
        history.synced(3, 0, true);
        let legal = history.legal_names(after(4), LOOSE);
        assert_eq!(legal, [names(None, Some(0))]);
        assert_eq!(history.legal_names(after(4), ORDERED).len(), 4);
    }

    #[test]
    fn a_process_crash_loses_no_name_and_may_keep_the_one_in_flight() {
        let history = rename_over();
        assert_eq!(history.legal_names(after(2), Rules::ProcessCrash), [names(Some(0), Some(1))]);
        let moment = Moment { in_flight: true, ..after(2) };
        let legal = history.legal_names(moment, Rules::ProcessCrash);
        assert_eq!(legal, [names(Some(0), Some(1)), names(None, Some(0))]);
    }

    #[test]
    fn a_name_that_was_gone_before_its_file_was_synced_may_never_have_been() {
        // Step 0 makes `a`, step 1 gives its file the name `b`, step 2 takes it.
        let mut history = History::default();
        let file = history.born(0, InodeId(10), 0);
        history.renamed(0, vec![(Name::A, Some(file))], true);
        history.renamed(1, vec![(Name::B, Some(0))], true);
        history.renamed(2, vec![(Name::B, None)], true);
        history.synced(3, 0, true);
        let legal = history.legal_names(after(4), LOOSE);
        assert!(legal.contains(&names(Some(0), None)) && legal.contains(&names(Some(0), Some(0))));
        assert!(!legal.contains(&names(None, None)), "the name that it had");
        // A rename back and forth is there: its last name is.
        let mut history = rename_over();
        history.renamed(3, vec![(Name::B, None), (Name::A, Some(0))], true);
        history.synced(4, 0, true);
        assert!(history.legal_names(after(5), LOOSE).iter().all(|names| names[Name::A.at()] == Some(0)));
    }

    #[test]
    fn the_window_begins_with_what_was_synced() {
        let mut history = rename_over();
        let mut content = Content::default();
        for step in 3..6 {
            content.write(0, 8 * step as u64, step as u16);
            history.changed(step, 0, content.clone(), None, Some(step as i64));
        }
        history.synced(6, 0, false);
        let file = &history.files[0];
        let steps = |moment, power| -> Vec<usize> {
            file.window(moment, power).map(|version| version.step).collect()
        };
        assert_eq!(steps(after(5), true), [0, 3, 4]);
        assert_eq!(steps(after(7), true), [5]);
        assert_eq!(steps(after(5), false), [4]);
        assert_eq!(steps(Moment { in_flight: true, ..after(5) }, false), [4, 5]);
        assert_eq!(file.mtime_min_ns(after(7), true), 0, "times were not synced");
    }
}
