//! The files of the namespace, and what their id attributes say.

use super::Check;
use super::file::Subject;
use super::findings::ProblemRef;
use super::raw_index::RawIndex;
use super::report::Problem;
use braid_contract::{Errno, Error, Fd, NativeFd, ObjectId, Result, Shown};
use braid_format::{FormatError, IdAttr, Proof};
use braid_home::{Identity, Seen};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A file whose attribute can't be believed.
pub(super) struct Doubt {
    pub(super) ino: u64,
    pub(super) path: PathBuf,
    /// Where in the report it is told.
    pub(super) problem: ProblemRef,
    /// A later version of Braid may have written it.
    pub(super) newer: bool,
}

/// What an inode says of its id.
pub(super) enum AttrFound {
    /// It is a plain file.
    None,
    /// Its own.
    Own(IdAttr),
    /// Copied from another inode: ignored.
    Copied(IdAttr),
    /// It is damaged.
    Damaged(FormatError),
    /// It is whole, and Braid did not write it on this volume: why that is
    /// known.
    Foreign(String),
    /// It can't be read.
    Failed(Error),
}

impl Check<'_> {
    /// Looks at all files, or at those that were asked for.
    pub(super) fn files(&mut self) -> Result<()> {
        self.progress.phase("files", None)?;
        let home = braid_home::Home::open(self.target.home.root())?;
        let mut strangers = Vec::new();
        let options = self.options;
        home.walk_below(&options.paths, &mut |seen| {
            match seen {
                Seen::Failed(path, error) => self.not_looked_at(path, &error),
                Seen::File(path, fd, identity) => {
                    self.report.files += 1;
                    self.progress.step()?;
                    match self.target.mounted {
                        Some(core) => self.visit_beside_users(core, path, fd, identity, &mut strangers)?,
                        None => self.visit(path, fd, identity, &mut strangers)?,
                    }
                }
            }
            Ok(())
        })?;
        for stranger in strangers {
            self.stranger(stranger)?;
        }
        Ok(())
    }

    fn not_looked_at(&mut self, path: &Path, error: &Error) {
        self.incomplete = true;
        let problem = Problem::damage("not-readable", format!("it can't be looked at: {error}")).path(path);
        self.found(problem.repair("nothing is done, and nothing that may belong to it is removed"));
    }

    /// Looks at one file. Files whose index names another inode are put aside,
    /// for when that one is known.
    pub(super) fn visit(
        &mut self,
        path: &Path,
        fd: &Fd,
        identity: &Identity,
        strangers: &mut Vec<Subject>,
    ) -> Result<()> {
        match self.attr_of(&**fd, identity) {
            AttrFound::None => Ok(()),
            AttrFound::Own(attr) => {
                let id = attr.id;
                let looked_at = self.spread_file(Subject::new(path, fd, identity, attr), strangers);
                looked_at.or_else(|error| self.not_compared(path, id, error))
            }
            AttrFound::Copied(attr) => {
                // Data that it names may be all that is left of its file.
                self.spared.insert(attr.id);
                let what = "its id attribute was copied from another file, and is ignored";
                self.found(Problem::legal("id-copied", what).path(path).id(attr.id));
                Ok(())
            }
            // Another name of it was told of.
            AttrFound::Damaged(_) | AttrFound::Foreign(_)
                if self.doubts.iter().any(|doubt| doubt.ino == identity.ino()) =>
            {
                Ok(())
            }
            AttrFound::Damaged(error) => {
                let newer = matches!(error, FormatError::Newer(_));
                let repair = if newer {
                    "nothing is done: use the newer Braid"
                } else {
                    "makes it anew, if an index names this file"
                };
                let problem = Problem::damage("id-damaged", format!("{error}")).path(path).repair(repair);
                let problem = self.found(problem);
                self.doubts.push(Doubt { ino: identity.ino(), path: path.to_owned(), problem, newer });
                Ok(())
            }
            AttrFound::Foreign(why) => {
                let what = format!("its id attribute is not to be believed: {why}; it can't be used");
                let problem = Problem::damage("id-foreign", what).path(path);
                let problem = self.found(problem.repair("makes it anew, if an index names this file"));
                let path = path.to_owned();
                self.doubts.push(Doubt { ino: identity.ino(), path, problem, newer: false });
                Ok(())
            }
            AttrFound::Failed(error) => {
                self.not_looked_at(path, &error);
                Ok(())
            }
        }
    }

    /// An index, or the home file, can't be read to the end: that is damage of
    /// one file, and not the end of the check.
    fn not_compared(&mut self, path: &Path, id: ObjectId, error: Error) -> Result<()> {
        if error.errno() == Errno::EINTR {
            return Err(error);
        }
        let problem =
            Problem::damage("index-unusable", format!("it can't be compared with its index: {error}"));
        self.found(problem.path(path).id(id).repair("nothing is done: what can't be read can't be checked"));
        Ok(())
    }

    /// Reads an inode's id attribute; changes nothing to be able to.
    pub(super) fn attr_of(&self, fd: &dyn NativeFd, identity: &Identity) -> AttrFound {
        let mut value = [0; 2 * IdAttr::LEN_MAX];
        let len = match fd.get_xattr(OsStr::new(self.target.attr_name()), &mut value) {
            Ok(len) => len,
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => {
                return AttrFound::None;
            }
            Err(error) if error.errno() == Errno::ERANGE => 0,
            Err(error) => return AttrFound::Failed(error.context("reading its id attribute")),
        };
        match IdAttr::decode(&value[..len], self.target.home.seal()) {
            Ok((attr, _)) if !identity.is(attr.ino, attr.btime_ns) => AttrFound::Copied(attr),
            Ok((attr, proof)) => match proof.check() {
                Ok(()) => AttrFound::Own(attr),
                Err(why) => AttrFound::Foreign(why),
            },
            Err(error) => AttrFound::Damaged(error),
        }
    }

    /// Whether a file's attribute may have been written by its owner: it is of
    /// version 1, in `user.`, on a volume that has a key.
    pub(super) fn is_unproven(&self, subject: &Subject) -> bool {
        let name = OsStr::new(self.target.attr_name());
        let mut value = [0; 2 * IdAttr::LEN_MAX];
        let len = subject.fd.get_xattr(name, &mut value).unwrap_or(0);
        let old = IdAttr::decode(&value[..len], self.target.home.seal());
        self.target.user_xattr
            && self.target.home.seal().secret.is_some()
            && !matches!(old, Ok((_, Proof::Sealed)))
    }

    /// A file whose index names another inode: if that one has the same id, it
    /// owns the data.
    fn stranger(&mut self, subject: Subject) -> Result<()> {
        let Some(index) = RawIndex::open(&*self.target.braid, subject.attr.id)? else { return Ok(()) };
        let owner =
            index.header.as_ref().ok().and_then(|header| self.shared_with(subject.attr.id, header.ino));
        match owner {
            Some(owner) => {
                self.id_shared(&subject.path, &subject.attr, &owner);
                Ok(())
            }
            None if self.names_somebody(&index, &subject) => {
                let what = "its index names another file, which exists and does not carry its id";
                let repair = "nothing is done: whose data it is is not known";
                let problem = subject.of(Problem::damage("index-of-other-file", what)).repair(repair);
                self.found(problem);
                Ok(())
            }
            None => match &index.header {
                Ok(header) => self.other_inode(&subject, &index, header),
                // It was sound when the file was put aside.
                Err(_) => Ok(()),
            },
        }
    }

    /// Whether the inode that an index names exists, and is not this file's.
    fn names_somebody(&self, index: &RawIndex, subject: &Subject) -> bool {
        let Ok(header) = &index.header else { return false };
        let Some(handle) = &header.handle else {
            return self.doubts.iter().any(|doubt| doubt.ino == header.ino);
        };
        let opened = self.target.home.open_handle(handle);
        let identity = opened.ok().flatten().and_then(|fd| self.target.home.identify(&*fd).ok());
        identity.is_some_and(|other| other.ino() != subject.identity.ino() && other.attr.nlink > 0)
    }

    pub(super) fn id_shared(&mut self, path: &Path, attr: &IdAttr, owner: &Path) {
        let what = format!("it has the id of {}, whose data it shows in place of its own", owner.shown());
        let repair =
            "nothing is done: which data it should have is not known; copy what you need and remove it";
        self.found(Problem::damage("id-shared", what).path(path).id(attr.id).repair(repair));
    }
}
