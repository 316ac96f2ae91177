//! A session as the file system of another mount: the directory that it was shown is the root
//! there, and requests of all its users come from the one process that serves it.

use super::Session;
use super::calls::Files;
use braid_contract::rights::ACL;
use braid_contract::{Caller, Errno, FileSystem, InodeId, Operation, Served};
use braid_sdk::abi::{self, Answer, Capabilities, Entries, Failure, Listed, Message, Numbers, Target};
use std::ffi::OsStr;
use std::sync::Arc;

/// Finds the further groups of a thread, which waits for an answer meanwhile; `None` if it is
/// not visible.
pub type GroupsOf = fn(u32) -> Option<Arc<[u32]>>;

/// The bits of a mode by which a program runs with the rights of its group.
const RUNS_AS_GROUP: u32 = 0o2010;

impl Session {
    /// The session as a file system of its own whose root is the directory `root`, which it was
    /// shown. Where callers come without their groups and it acts for others, `groups_of` finds
    /// them.
    #[must_use]
    pub fn rooted(self: &Arc<Self>, root: InodeId, groups_of: GroupsOf) -> Arc<dyn FileSystem> {
        let files = Files(Arc::clone(self));
        let acl = self.file_system().getxattr(&Caller::root(), root, OsStr::new(ACL));
        let keeps_acls = !acl.is_err_and(|error| error.errno() == Errno::EOPNOTSUPP);
        let groups_of = self.link.for_others.then_some(groups_of);
        let rooted = Rooted { files, root: root.0, keeps_acls, groups_of };
        Arc::new(Served(braid_sdk::Served(rooted)))
    }
}

struct Rooted {
    files: Files,
    root: u64,
    keeps_acls: bool,
    groups_of: Option<GroupsOf>,
}

impl Target for Rooted {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let Message { mut numbers, groups, name, new_name, data, buffer, entries } = message;
        for ino in [&mut numbers.ino, &mut numbers.parent, &mut numbers.new_parent] {
            *ino = self.inward(*ino);
        }
        let operation = numbers.operation;
        let mut answer = match entries {
            Some(sink) => {
                let mut outward = Outward { rooted: self, sink };
                let entries = Some(&mut outward as &mut dyn Entries);
                self.files.call(Message { groups, name, new_name, data, buffer, entries, numbers })
            }
            None if buffer.is_empty() => self.ask(numbers, groups, (name, new_name), data),
            None => self.files.call(Message { groups, name, new_name, data, buffer, entries, numbers }),
        }?;
        let ino = &mut answer.answers.attributes.ino;
        *ino = self.outward(*ino);
        if operation == Operation::Path as u32 {
            answer.bytes = self.below_root(numbers, answer.bytes)?;
        }
        Ok(answer)
    }

    fn capabilities(&self) -> Capabilities {
        let can = self.files.capabilities();
        let acls = if self.keeps_acls { abi::CAN_KEEP_ACLS } else { 0 };
        Capabilities { flags: can.flags | acls, ..can }
    }
}

impl Rooted {
    /// The number in the session of an inode of the mount.
    fn inward(&self, ino: u64) -> u64 {
        if ino == InodeId::ROOT.0 { self.root } else { ino }
    }

    /// The number in the mount of an inode of the session.
    fn outward(&self, ino: u64) -> u64 {
        if ino == self.root { InodeId::ROOT.0 } else { ino }
    }

    /// Has a request carried out that reads and lists nothing. To find the caller's groups takes
    /// longer than most requests: it is done where they decide.
    fn ask(
        &self,
        numbers: Numbers,
        groups: &[u32],
        (name, new_name): (&[u8], &[u8]),
        data: &[u8],
    ) -> Result<Answer, Failure> {
        let call = |numbers: Numbers, groups: &[u32]| {
            self.files.call(Message { groups, name, new_name, data, ..Message::new(numbers) })
        };
        let is_known = numbers.flags & abi::KNOWS_GROUPS != 0;
        let Some(groups_of) = self.groups_of.filter(|_| !is_known && is_by_rights(numbers.operation)) else {
            return call(numbers, groups);
        };
        if !changes_by_groups(&numbers) {
            match call(numbers, groups) {
                Err(failure) if [Errno::EACCES.0, Errno::EPERM.0].contains(&failure.errno) => {}
                answered => return answered,
            }
        }
        match groups_of(numbers.tid) {
            Some(found) => call(Numbers { flags: numbers.flags | abi::KNOWS_GROUPS, ..numbers }, &found),
            None => call(numbers, groups),
        }
    }

    /// A path in the volume as one below the root.
    fn below_root(&self, numbers: Numbers, path: Vec<u8>) -> Result<Vec<u8>, Failure> {
        if self.root == InodeId::ROOT.0 {
            return Ok(path);
        }
        let root = self.files.call(Message::new(Numbers { ino: self.root, ..numbers }))?.bytes;
        let rest = path.strip_prefix(&root[..]).filter(|rest| rest.first().is_none_or(|byte| *byte == b'/'));
        let moved = || Failure { errno: Errno::ESTALE.0, why: "it was moved meanwhile".into() };
        let rest = rest.ok_or_else(moved)?;
        Ok(rest.strip_prefix(b"/").unwrap_or(rest).to_vec())
    }
}

/// Whether the caller's rights decide about the operation, and not those that it had when it
/// opened a file.
fn is_by_rights(operation: u32) -> bool {
    use Operation as Op;
    let by_rights = [
        Op::Create,
        Op::Getxattr,
        Op::Link,
        Op::Lookup,
        Op::Mkdir,
        Op::Mknod,
        Op::Open,
        Op::OpenDir,
        Op::Removexattr,
        Op::Rename,
        Op::Rmdir,
        Op::Setattr,
        Op::Setxattr,
        Op::Symlink,
        Op::Tmpfile,
        Op::Unlink,
    ];
    by_rights.iter().any(|one| *one as u32 == operation)
}

/// Whether it has another result by the caller's groups, and does not just fail without.
fn changes_by_groups(numbers: &Numbers) -> bool {
    let is = |one: Operation| numbers.operation == one as u32;
    if is(Operation::Setattr) {
        return numbers.set & (abi::SET_MODE | abi::SET_GID) != 0;
    }
    let makes = is(Operation::Create) || is(Operation::Mknod) || is(Operation::Tmpfile);
    makes && numbers.mode & RUNS_AS_GROUP == RUNS_AS_GROUP
}

/// Takes entries of the session as those of the mount.
struct Outward<'a, 'b> {
    rooted: &'a Rooted,
    sink: &'a mut (dyn Entries + 'b),
}

impl Entries for Outward<'_, '_> {
    fn add(&mut self, entry: &Listed<'_>) -> bool {
        let ino = self.rooted.outward(entry.ino);
        let outward = |attributes| abi::Attributes { ino: self.rooted.outward(entry.ino), ..attributes };
        self.sink.add(&Listed { ino, attributes: entry.attributes.map(outward), ..*entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_looked_for_where_a_set_group_id_bit_depends_on_them() {
        let numbers = |operation: Operation, mode, set| Numbers {
            operation: operation as u32,
            mode,
            set,
            ..Numbers::default()
        };
        assert!(changes_by_groups(&numbers(Operation::Setattr, 0, abi::SET_MODE)));
        assert!(!changes_by_groups(&numbers(Operation::Setattr, 0, abi::SET_SIZE)));
        assert!(changes_by_groups(&numbers(Operation::Create, 0o2755, 0)));
        assert!(!changes_by_groups(&numbers(Operation::Create, 0o755, 0)));
        assert!(!changes_by_groups(&numbers(Operation::Mkdir, 0o2755, 0)));
        assert!(is_by_rights(Operation::Lookup as u32) && !is_by_rights(Operation::Write as u32));
    }
}
