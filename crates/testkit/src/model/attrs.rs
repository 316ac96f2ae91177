//! Operations on attributes.

use super::{Inode, Model};
use crate::op::{Op, Room, SetTime, Target, XattrMode, XattrName};
use crate::outcome::{Answer, Bytes, Kind, Time};
use rustix::io::Errno;

const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: u32 = 65536;

impl Model {
    pub(super) fn attributes(&mut self, op: &Op) -> Result<Answer, Errno> {
        if let Op::SetXattr { target: Target::Slot(slot), .. }
        | Op::GetXattr { target: Target::Slot(slot), .. }
        | Op::RemoveXattr { target: Target::Slot(slot), .. } = op
        {
            // A slot without a file is not even asked about.
            self.slot(*slot)?;
        }
        match op {
            Op::Chmod { target, mode } => self.chmod(target, *mode),
            Op::Chown { target, uid, gid } => self.chown(target, *uid, *gid),
            Op::SetTimes { target, atime, mtime } => self.set_times(target, *atime, *mtime),
            Op::Stat { target } => Ok(Answer::Stat(self.stat_of(self.inode(self.target(target)?)?))),
            _ if !self.common.xattrs => Ok(Answer::Skipped),
            Op::SetXattr { target, name, data, mode } => {
                if data.len > XATTR_SIZE_MAX {
                    xattr_name(*name)?;
                    return Err(Errno::TOOBIG);
                }
                self.set_xattr(target, *name, data.bytes(), *mode)
            }
            Op::GetXattr { target, name, room } => self.get_xattr(target, *name, *room),
            Op::ListXattr { target } => {
                let inode = self.inode(self.target(target)?)?;
                Ok(Answer::Xattrs(inode.xattrs.keys().cloned().collect()))
            }
            Op::RemoveXattr { target, name } => {
                let name = xattr_name(*name)?;
                let ino = self.target(target)?;
                let inode = self.inode_mut(ino)?;
                inode.check_xattrs(true)?;
                inode.xattrs.remove(&name).map(|_| Answer::Unit).ok_or(Errno::NODATA)
            }
            _ => Ok(Answer::Skipped),
        }
    }

    fn chmod(&mut self, target: &Target, mode: u16) -> Result<Answer, Errno> {
        let ino = match target {
            Target::NoFollow(path) => self.find(path, true)?,
            target => self.target(target)?,
        };
        self.inode_mut(ino)?.mode = mode & 0o7777;
        Ok(Answer::Unit)
    }

    fn chown(&mut self, target: &Target, uid: Option<u32>, gid: Option<u32>) -> Result<Answer, Errno> {
        if !self.common.superuser {
            return Ok(Answer::Skipped);
        }
        let ino = self.target(target)?;
        let inode = self.inode_mut(ino)?;
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        // Even the superuser's chown takes the set-id bits off; the set-group-id
        // bit without group execution means mandatory locking and stays.
        if matches!(inode.kind, Kind::File | Kind::Fifo) {
            inode.mode &= !0o4000;
            if inode.mode & 0o010 != 0 {
                inode.mode &= !0o2000;
            }
        }
        Ok(Answer::Unit)
    }

    fn set_times(&mut self, target: &Target, atime: SetTime, mtime: SetTime) -> Result<Answer, Errno> {
        if atime == SetTime::Omit && mtime == SetTime::Omit {
            if let Target::Slot(slot) = target {
                self.slot(*slot)?;
            }
            return Ok(Answer::Unit);
        }
        let ino = self.target(target)?;
        let inode = self.inode_mut(ino)?;
        if let Some(time) = time(mtime) {
            inode.mtime = time;
        }
        let mut stat = self.stat_of(self.inode(ino)?);
        if let Some(time) = time(atime) {
            stat.atime = time;
        }
        Ok(Answer::Stat(stat))
    }

    fn set_xattr(
        &mut self,
        target: &Target,
        name: XattrName,
        value: Vec<u8>,
        mode: XattrMode,
    ) -> Result<Answer, Errno> {
        let name = xattr_name(name)?;
        let ino = self.target(target)?;
        let inode = self.inode_mut(ino)?;
        inode.check_xattrs(true)?;
        match (mode, inode.xattrs.contains_key(&name)) {
            (XattrMode::Create, true) => return Err(Errno::EXIST),
            (XattrMode::Replace, false) => return Err(Errno::NODATA),
            _ => {}
        }
        inode.xattrs.insert(name, Bytes(value));
        Ok(Answer::Unit)
    }

    fn get_xattr(&self, target: &Target, name: XattrName, room: Room) -> Result<Answer, Errno> {
        let name = xattr_name(name)?;
        let inode = self.inode(self.target(target)?)?;
        inode.check_xattrs(false)?;
        let value = inode.xattrs.get(&name).ok_or(Errno::NODATA)?;
        match room {
            Room::Query => Ok(Answer::Count(value.0.len() as u64)),
            Room::Bytes(room) if value.0.len() > usize::from(room.max(1)) => Err(Errno::RANGE),
            _ => Ok(Answer::Bytes(value.clone())),
        }
    }
}

impl Inode {
    /// Only files and directories have attributes of users.
    fn check_xattrs(&self, write: bool) -> Result<(), Errno> {
        match self.kind {
            Kind::File | Kind::Dir => Ok(()),
            _ if write => Err(Errno::PERM),
            _ => Err(Errno::NODATA),
        }
    }
}

fn xattr_name(name: XattrName) -> Result<String, Errno> {
    let name = name.bytes();
    if name.len() > XATTR_NAME_MAX {
        return Err(Errno::RANGE);
    }
    Ok(String::from_utf8_lossy(&name).into_owned())
}

fn time(time: SetTime) -> Option<Time> {
    match time {
        SetTime::Omit => None,
        SetTime::Now => Some(Time::Recent),
        SetTime::At(secs, nanos) => Some(Time::Explicit(secs, nanos)),
    }
}
