//! Operations on attributes.

use super::{Direct, kind_of, os};
use crate::native::xattr_names;
use crate::op::{Op, Room, SetTime, Target, XattrMode, XattrName};
use crate::outcome::{Answer, Bytes, Kind, Time};
use braid_contract::{Attr, InodeId, SetAttr, Timestamp};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: u32 = 65536;

impl Direct {
    pub(super) fn attributes(&mut self, op: &Op) -> Result<Answer, Errno> {
        match op {
            Op::Chmod { target, mode } => {
                // There is no form of chmod(2) that does not follow links.
                let target = match target {
                    Target::NoFollow(path) => &Target::Path(path.clone()),
                    target => target,
                };
                self.set(target, SetAttr { mode: Some(u32::from(*mode) & 0o7777), ..SetAttr::default() })?;
                Ok(Answer::Unit)
            }
            Op::Chown { target, uid, gid } => self.chown(target, *uid, *gid),
            Op::SetTimes { target, atime, mtime } => self.set_times(target, *atime, *mtime),
            Op::Stat { target } => {
                let (ino, handle) = self.target(target)?;
                let attr = os(self.fs.getattr(&self.caller, ino, handle))?;
                Ok(Answer::Stat(self.normal(&attr)))
            }
            _ => Ok(Answer::Skipped),
        }
    }

    fn set(&mut self, target: &Target, changes: SetAttr) -> Result<Attr, Errno> {
        let (ino, handle) = self.target(target)?;
        os(self.fs.setattr(&self.caller, ino, handle, &changes))
    }

    /// Changes owners, and takes the set-id bits of a file as the kernel does,
    /// also from the superuser's: the set-group-id bit without group execution
    /// means mandatory locking and stays.
    fn chown(&mut self, target: &Target, uid: Option<u32>, gid: Option<u32>) -> Result<Answer, Errno> {
        if !self.common.superuser {
            return Ok(Answer::Skipped);
        }
        let attr = self.set(target, SetAttr { uid, gid, ..SetAttr::default() })?;
        if matches!(kind_of(attr.kind), Kind::File | Kind::Fifo) {
            let group = if attr.mode & 0o010 != 0 { 0o2000 } else { 0 };
            let mode = u32::from(attr.mode) & !(0o4000 | group);
            self.set(target, SetAttr { mode: Some(mode), ..SetAttr::default() })?;
        }
        Ok(Answer::Unit)
    }

    fn set_times(&mut self, target: &Target, atime: SetTime, mtime: SetTime) -> Result<Answer, Errno> {
        if atime == SetTime::Omit && mtime == SetTime::Omit {
            if let Target::Slot(slot) = target {
                self.slot(*slot)?;
            }
            // The kernel does not even look at the path then.
            return Ok(Answer::Unit);
        }
        let changes = SetAttr { atime: time(atime), mtime: time(mtime), ..SetAttr::default() };
        let attr = self.set(target, changes)?;
        let mut stat = self.normal(&attr);
        if atime != SetTime::Omit {
            stat.atime = Time::of(attr.atime.secs, attr.atime.nanos);
        }
        Ok(Answer::Stat(stat))
    }

    pub(super) fn xattr(&mut self, op: &Op) -> Result<Answer, Errno> {
        if let Op::SetXattr { target: Target::Slot(slot), .. }
        | Op::GetXattr { target: Target::Slot(slot), .. }
        | Op::RemoveXattr { target: Target::Slot(slot), .. } = op
        {
            // A slot without a file is not even asked about.
            self.slot(*slot)?;
        }
        if !self.common.xattrs {
            return Ok(Answer::Skipped);
        }
        match op {
            Op::SetXattr { target, name, data, mode } => {
                let name = xattr_name(*name)?;
                if data.len > XATTR_SIZE_MAX {
                    return Err(Errno::TOOBIG);
                }
                let ino = self.xattr_target(target, Errno::PERM)?;
                let mode = match mode {
                    XattrMode::Set => braid_contract::XattrMode::Set,
                    XattrMode::Create => braid_contract::XattrMode::Create,
                    XattrMode::Replace => braid_contract::XattrMode::Replace,
                };
                os(self.fs.setxattr(&self.caller, ino, &name, &data.bytes(), mode))?;
                Ok(Answer::Unit)
            }
            Op::GetXattr { target, name, room } => {
                let name = xattr_name(*name)?;
                let ino = self.xattr_target(target, Errno::NODATA)?;
                let value = os(self.fs.getxattr(&self.caller, ino, &name))?;
                match room {
                    Room::Query => Ok(Answer::Count(value.len() as u64)),
                    Room::Bytes(room) if value.len() > usize::from((*room).max(1)) => Err(Errno::RANGE),
                    _ => Ok(Answer::Bytes(Bytes(value))),
                }
            }
            Op::ListXattr { target } => {
                let (ino, _) = self.target(target)?;
                Ok(Answer::Xattrs(xattr_names(&os(self.fs.listxattr(&self.caller, ino))?)))
            }
            Op::RemoveXattr { target, name } => {
                let name = xattr_name(*name)?;
                let ino = self.xattr_target(target, Errno::PERM)?;
                os(self.fs.removexattr(&self.caller, ino, &name))?;
                Ok(Answer::Unit)
            }
            _ => Ok(Answer::Skipped),
        }
    }

    /// The inode, which has to be of a kind that has attributes of users.
    fn xattr_target(&mut self, target: &Target, otherwise: Errno) -> Result<InodeId, Errno> {
        let (ino, handle) = self.target(target)?;
        match kind_of(os(self.fs.getattr(&self.caller, ino, handle))?.kind) {
            Kind::File | Kind::Dir => Ok(ino),
            _ => Err(otherwise),
        }
    }
}

fn xattr_name(name: XattrName) -> Result<OsString, Errno> {
    let name = OsString::from_vec(name.bytes());
    if OsStr::len(&name) > XATTR_NAME_MAX { Err(Errno::RANGE) } else { Ok(name) }
}

fn time(time: SetTime) -> Option<braid_contract::SetTime> {
    match time {
        SetTime::Omit => None,
        SetTime::Now => Some(braid_contract::SetTime::Now),
        SetTime::At(secs, nanos) => Some(braid_contract::SetTime::At(Timestamp { secs, nanos })),
    }
}
