//! Makes inodes agree with one another: every name leads to an inode, every inode has a name
//! and the number of links that it says, and no block belongs to two.

use super::blocks;
use super::gather::Gathered;
use super::report::{Salvaged, Trouble};
use crate::actor::Actor;
use crate::directory::{Directory, kind_bits};
use crate::inode::{Content, State};
use crate::ops::xattrs::is_name;
use crate::record::{Begin, Change, Name};
use braid_contract::{FileKind, InodeId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROOT: u64 = InodeId::ROOT.0;
/// The directory for what has no name.
const LOST_AND_FOUND: &str = "lost+found";
/// Inode numbers are lower, as in records.
const INO_MAX: u64 = 1 << 62;

/// Mends all inodes. `blocks` are those of the device.
pub(super) fn mend(found: &mut Gathered, blocks: u64, now: Timestamp, salvaged: &mut Salvaged) {
    drop_senseless(found, salvaged);
    ensure_root(found, now, salvaged);
    let mut mending = Mending { inodes: &mut found.inodes, above: BTreeMap::new(), links: BTreeMap::new() };
    mending.drop_names(salvaged);
    mending.drop_orphans();
    mending.attach(now, salvaged);
    mending.count_links(salvaged);
    blocks::mend(found, blocks, salvaged);
}

/// Drops inodes that never began, and of others what there can't be.
fn drop_senseless(found: &mut Gathered, salvaged: &mut Salvaged) {
    found.inodes.retain(|ino, state| {
        let makes_sense = state.is_live() && FileKind::from_mode(state.mode).is_some();
        if !makes_sense {
            salvaged.note(Trouble::Inode, || format!("inode {ino}"));
        }
        makes_sense
    });
    for (ino, state) in &mut found.inodes {
        if drop_attributes(state) | drop_content(state) {
            found.lacking.insert(*ino);
        }
    }
}

/// Drops extended attributes whose names can't be asked for; returns whether there were any.
fn drop_attributes(state: &mut State) -> bool {
    let odd = state.xattrs.keys().filter(|name| !is_name(name)).cloned();
    let drops: Vec<Change> = odd.map(Change::DropXattr).collect();
    let has_odd = !drops.is_empty();
    state.apply(state.version, drops, &mut Vec::new());
    has_odd
}

/// Drops a content that does not go with the type; returns whether it was one.
fn drop_content(state: &mut State) -> bool {
    let kind = state.kind();
    let fits = match &state.content {
        Content::Names(_) => kind == FileKind::Directory,
        Content::Inline(_) | Content::Blocks(_) => kind == FileKind::Regular,
        Content::Target(_) => kind == FileKind::Symlink,
        Content::None => !matches!(kind, FileKind::Directory | FileKind::Regular | FileKind::Symlink),
    };
    if !fits {
        state.content = match kind {
            FileKind::Directory => Content::Names(Directory::default()),
            FileKind::Regular => Content::Inline(Vec::new()),
            FileKind::Symlink => Content::Target(Vec::new()),
            _ => Content::None,
        };
    }
    !fits
}

/// A directory of the file system's own.
fn directory(mode: u32, parent: u64, owner: (u32, u32), now: Timestamp) -> State {
    let begin = Begin {
        mode: FileKind::Directory.mode() | mode,
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        nlink: 2,
        parent,
        generation: 0,
        time: now,
        actor: Arc::new(Actor::default()),
    };
    let mut state = State::default();
    state.apply(1, vec![Change::Begin(Box::new(begin))], &mut Vec::new());
    state
}

fn ensure_root(found: &mut Gathered, now: Timestamp, salvaged: &mut Salvaged) {
    if found.inodes.get(&ROOT).is_some_and(State::is_dir) {
        return;
    }
    salvaged.note(Trouble::Inode, || "the root directory: it is lost, and another is in its place".into());
    found.inodes.insert(ROOT, directory(0o700, ROOT, (0, 0), now));
}

/// Inodes on their way to agree.
struct Mending<'a> {
    inodes: &'a mut BTreeMap<u64, State>,
    /// The directory that each directory is in.
    above: BTreeMap<u64, u64>,
    /// The names of each other inode: how many, and the first directory that has one.
    links: BTreeMap<u64, (u32, u64)>,
}

/// A name that leads nowhere.
struct Bad {
    dir: u64,
    name: Name,
    ino: u64,
}

impl Mending<'_> {
    /// Drops names that lead to nothing, to another type, or to a directory that has a name.
    fn drop_names(&mut self, salvaged: &mut Salvaged) {
        let mut bad = Vec::new();
        for (dir, state) in self.inodes.iter() {
            for (_, named) in state.names().into_iter().flat_map(|names| names.after(0)) {
                let target = self.inodes.get(&named.ino);
                let is_right = named.ino != ROOT
                    && named.ino != *dir
                    && target.is_some_and(|target| target.kind_bits() == named.kind);
                if is_right && !named.is_dir() {
                    let links = self.links.entry(named.ino).or_insert((0, *dir));
                    links.0 = links.0.saturating_add(1);
                    continue;
                }
                // Of several names of a directory, that where it says it is counts.
                let is_home = target.is_some_and(|target| target.parent == *dir);
                let has_one = self.above.get(&named.ino).copied();
                let lost = match has_one {
                    _ if !is_right => Some((*dir, Name::clone(&named.name))),
                    None => None,
                    Some(other) if is_home && other != *dir => {
                        self.name_in(other, named.ino).map(|name| (other, name))
                    }
                    Some(_) => Some((*dir, Name::clone(&named.name))),
                };
                if is_right && (has_one.is_none() || is_home) {
                    self.above.insert(named.ino, *dir);
                }
                bad.extend(lost.map(|(dir, name)| Bad { dir, name, ino: named.ino }));
            }
        }
        for Bad { dir, name, ino } in bad {
            salvaged.note(Trouble::Name, || {
                let shown = String::from_utf8_lossy(&name).escape_debug().to_string();
                format!("'{shown}' in directory {dir}, to inode {ino}")
            });
            self.leave(dir, &name);
        }
    }

    fn name_in(&self, dir: u64, ino: u64) -> Option<Name> {
        let names = self.inodes.get(&dir)?.names()?;
        names.after(0).find(|(_, named)| named.ino == ino).map(|(_, named)| Name::clone(&named.name))
    }

    fn leave(&mut self, dir: u64, name: &[u8]) {
        if let Some(Content::Names(names)) = self.inodes.get_mut(&dir).map(|state| &mut state.content) {
            names.leave(name);
        }
    }

    /// Drops files that had no name any more and were open, as recovery does.
    fn drop_orphans(&mut self) {
        let links = &self.links;
        self.inodes.retain(|ino, state| state.is_dir() || state.nlink > 0 || links.contains_key(ino));
    }

    /// Gives a name to everything that can't be reached from the root.
    fn attach(&mut self, now: Timestamp, salvaged: &mut Salvaged) {
        let mut below: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (ino, dir) in &self.above {
            below.entry(*dir).or_default().push(*ino);
        }
        let mut reached = BTreeSet::new();
        reach(ROOT, &below, &mut reached);
        let dirs: Vec<u64> =
            self.inodes.iter().filter(|(_, state)| state.is_dir()).map(|(ino, _)| *ino).collect();
        let mut lost = Vec::new();
        for dir in dirs {
            if !reached.contains(&dir) {
                let top = self.top_of(dir);
                lost.push(top);
                reach(top, &below, &mut reached);
            }
        }
        let files =
            self.inodes.iter().filter(|(ino, state)| !state.is_dir() && !self.links.contains_key(ino));
        lost.extend(files.map(|(ino, _)| *ino).collect::<Vec<_>>());
        if !lost.is_empty() {
            self.name_lost(lost, now, salvaged);
        }
    }

    /// The directory above this one that has no name, or where a circle closes.
    fn top_of(&self, dir: u64) -> u64 {
        let (mut top, mut seen) = (dir, BTreeSet::from([dir]));
        while let Some(above) = self.above.get(&top) {
            top = *above;
            if !seen.insert(top) {
                break;
            }
        }
        top
    }

    fn name_lost(&mut self, lost: Vec<u64>, now: Timestamp, salvaged: &mut Salvaged) {
        let Some(at) = self.free_number() else { return };
        let mut names = Directory::default();
        for ino in lost {
            if let Some(above) = self.above.get(&ino).copied()
                && let Some(name) = self.name_in(above, ino)
            {
                self.leave(above, &name);
            }
            let Some(state) = self.inodes.get(&ino) else { continue };
            names.enter(Name::from(ino.to_string().as_bytes()), ino, state.kind_bits());
            if state.is_dir() {
                self.above.insert(ino, at);
            } else {
                self.links.insert(ino, (1, at));
            }
            salvaged.note(Trouble::Unnamed, || format!("inode {ino}, a {}", kind_text(state.kind())));
        }
        let owner = self.inodes.get(&ROOT).map_or((0, 0), |root| (root.uid, root.gid));
        let mut state = directory(0o700, ROOT, owner, now);
        state.content = Content::Names(names);
        let kind = kind_bits(state.mode);
        self.inodes.insert(at, state);
        self.above.insert(at, ROOT);
        if let Some(Content::Names(names)) = self.inodes.get_mut(&ROOT).map(|root| &mut root.content) {
            let mut name = LOST_AND_FOUND.to_owned();
            while names.find(name.as_bytes()).is_some() {
                name.push('~');
            }
            names.enter(Name::from(name.as_bytes()), at, kind);
            salvaged.lost_and_found = Some(name);
        }
    }

    /// A number that no inode has.
    fn free_number(&self) -> Option<u64> {
        let next = self.inodes.keys().next_back().map_or(ROOT + 1, |last| last + 1);
        if next < INO_MAX {
            Some(next)
        } else {
            (ROOT + 1..INO_MAX).find(|ino| !self.inodes.contains_key(ino))
        }
    }

    /// Sets the numbers of links, and the directories above.
    fn count_links(&mut self, salvaged: &mut Salvaged) {
        let mut below: BTreeMap<u64, u32> = BTreeMap::new();
        for dir in self.above.values() {
            *below.entry(*dir).or_default() += 1;
        }
        let (named, lost) = (self.homes(), salvaged.lost_and_found.is_some());
        for (ino, state) in self.inodes.iter_mut() {
            let (links, parent) = if state.is_dir() {
                let links = below.get(ino).copied().unwrap_or(0).saturating_add(2);
                (links, self.above.get(ino).copied().unwrap_or(ROOT))
            } else {
                let (links, first) = self.links.get(ino).copied().unwrap_or((0, ROOT));
                // A file need not be any more where it was made.
                let is_home = named.contains(&(*ino, state.parent));
                (links, if is_home { state.parent } else { first })
            };
            // The root has one more if what was lost got a directory, which is no error of its own.
            if state.nlink != links && !(lost && *ino == ROOT) {
                salvaged.note(Trouble::Links, || format!("inode {ino}"));
            }
            (state.nlink, state.parent) = (links, parent);
        }
    }

    /// The files that have a name in the directory where they say they are.
    fn homes(&self) -> BTreeSet<(u64, u64)> {
        let mut homes = BTreeSet::new();
        for (dir, state) in self.inodes.iter() {
            for (_, named) in state.names().into_iter().flat_map(|names| names.after(0)) {
                let is_home = self.inodes.get(&named.ino).is_some_and(|target| target.parent == *dir);
                if is_home {
                    homes.insert((named.ino, *dir));
                }
            }
        }
        homes
    }
}

/// Adds a directory and all below it.
fn reach(from: u64, below: &BTreeMap<u64, Vec<u64>>, reached: &mut BTreeSet<u64>) {
    let mut next = vec![from];
    while let Some(dir) = next.pop() {
        if reached.insert(dir) {
            next.extend(below.get(&dir).into_iter().flatten());
        }
    }
}

fn kind_text(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "directory",
        FileKind::Regular => "file",
        FileKind::Symlink => "symbolic link",
        _ => "special file",
    }
}
