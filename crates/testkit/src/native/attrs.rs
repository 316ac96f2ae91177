//! Operations on attributes.

use super::{Native, no_follow};
use crate::op::{Op, Room, SetTime, Target, XattrMode, XattrName};
use crate::outcome::{Answer, Bytes, Kind, Stat, Time};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::collections::BTreeSet;

impl Native {
    pub(super) fn chmod(&self, target: &Target, mode: u16) -> Result<Answer, Errno> {
        let mode = Mode::from(u32::from(mode));
        match target {
            Target::Slot(slot) => rustix::fs::fchmod(self.fd(*slot)?, mode)?,
            Target::Path(path) | Target::NoFollow(path) => {
                rustix::fs::chmodat(&self.dir, path.bytes(), mode, AtFlags::empty())?;
            }
        }
        Ok(Answer::Unit)
    }

    pub(super) fn chown(&self, target: &Target, uid: Option<u32>, gid: Option<u32>) -> Result<Answer, Errno> {
        if !self.common.superuser {
            return Ok(Answer::Skipped);
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match target {
            Target::Slot(slot) => rustix::fs::fchown(self.fd(*slot)?, uid, gid)?,
            Target::Path(path) | Target::NoFollow(path) => {
                rustix::fs::chownat(&self.dir, path.bytes(), uid, gid, no_follow(target))?;
            }
        }
        Ok(Answer::Unit)
    }

    /// Sets times and answers the attributes after it, since a time of access
    /// can be compared only before anything reads the file.
    pub(super) fn set_times(
        &mut self,
        target: &Target,
        atime: SetTime,
        mtime: SetTime,
    ) -> Result<Answer, Errno> {
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        match target {
            Target::Slot(slot) => rustix::fs::futimens(self.fd(*slot)?, &times)?,
            Target::Path(path) | Target::NoFollow(path) => {
                rustix::fs::utimensat(&self.dir, path.bytes(), &times, no_follow(target))?;
            }
        }
        if atime == SetTime::Omit && mtime == SetTime::Omit {
            // The kernel does not even look at the path then.
            return Ok(Answer::Unit);
        }
        let raw = self.raw_stat(target)?;
        let mut stat = self.normal(&raw);
        if atime != SetTime::Omit {
            stat.atime = Time::of(raw.st_atime, u32::try_from(raw.st_atime_nsec).unwrap_or(u32::MAX));
        }
        Ok(Answer::Stat(stat))
    }

    pub(super) fn stat(&mut self, target: &Target) -> Result<Stat, Errno> {
        let raw = self.raw_stat(target)?;
        Ok(self.normal(&raw))
    }

    fn raw_stat(&self, target: &Target) -> Result<rustix::fs::Stat, Errno> {
        match target {
            Target::Slot(slot) => rustix::fs::fstat(self.fd(*slot)?),
            Target::Path(path) | Target::NoFollow(path) => {
                rustix::fs::statat(&self.dir, path.bytes(), no_follow(target))
            }
        }
    }

    /// The attributes as two sides can be compared in them.
    pub(super) fn normal(&mut self, raw: &rustix::fs::Stat) -> Stat {
        let kind = Kind::from(FileType::from_raw_mode(raw.st_mode));
        let ctime = (raw.st_ctime, raw.st_ctime_nsec);
        let before = self.ctimes.insert(raw.st_ino, ctime);
        let wrong = before
            .filter(|before| *before > ctime)
            .map(|before| format!("change time went back from {before:?} to {ctime:?}"));
        let dir = kind == Kind::Dir;
        Stat {
            kind,
            mode: (raw.st_mode & 0o7777) as u16,
            nlink: if dir && !self.common.dir_links { 0 } else { raw.st_nlink },
            uid: raw.st_uid,
            gid: raw.st_gid,
            size: if dir { 0 } else { u64::try_from(raw.st_size).unwrap_or(u64::MAX) },
            mtime: Time::of(raw.st_mtime, u32::try_from(raw.st_mtime_nsec).unwrap_or(u32::MAX)),
            atime: Time::Any,
            wrong,
        }
    }

    pub(super) fn xattr(&self, op: &Op) -> Result<Answer, Errno> {
        if !self.common.xattrs {
            return Ok(Answer::Skipped);
        }
        match op {
            Op::SetXattr { target, name, data, mode } => {
                let flags = match mode {
                    XattrMode::Set => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                self.set_xattr(target, *name, &data.bytes(), flags)?;
                Ok(Answer::Unit)
            }
            Op::GetXattr { target, name, room } => self.get_xattr(target, *name, *room),
            Op::ListXattr { target } => {
                let mut buf = vec![0; 65536];
                let count = match target {
                    Target::Slot(slot) => rustix::fs::flistxattr(self.fd(*slot)?, &mut buf[..])?,
                    Target::Path(path) => rustix::fs::listxattr(self.full(path), &mut buf[..])?,
                    Target::NoFollow(path) => rustix::fs::llistxattr(self.full(path), &mut buf[..])?,
                };
                Ok(Answer::Xattrs(xattr_names(&buf[..count])))
            }
            Op::RemoveXattr { target, name } => {
                let name = name.bytes();
                match target {
                    Target::Slot(slot) => rustix::fs::fremovexattr(self.fd(*slot)?, name)?,
                    Target::Path(path) => rustix::fs::removexattr(self.full(path), name)?,
                    Target::NoFollow(path) => rustix::fs::lremovexattr(self.full(path), name)?,
                }
                Ok(Answer::Unit)
            }
            _ => Ok(Answer::Skipped),
        }
    }

    fn set_xattr(
        &self,
        target: &Target,
        name: XattrName,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let name = name.bytes();
        match target {
            Target::Slot(slot) => rustix::fs::fsetxattr(self.fd(*slot)?, name, value, flags),
            Target::Path(path) => rustix::fs::setxattr(self.full(path), name, value, flags),
            Target::NoFollow(path) => rustix::fs::lsetxattr(self.full(path), name, value, flags),
        }
    }

    fn get_xattr(&self, target: &Target, name: XattrName, room: Room) -> Result<Answer, Errno> {
        let room = match room {
            Room::Query => 0,
            Room::Ample => 65536,
            Room::Bytes(room) => usize::from(room.max(1)),
        };
        let name = name.bytes();
        // An empty buffer asks for the length alone, as in the system call.
        let mut buf = vec![0; room];
        let count = match (target, room) {
            (Target::Slot(slot), 0) => rustix::fs::fgetxattr_query(self.fd(*slot)?, name)?,
            (Target::Path(path), 0) => rustix::fs::getxattr_query(self.full(path), name)?,
            (Target::NoFollow(path), 0) => rustix::fs::lgetxattr_query(self.full(path), name)?,
            (Target::Slot(slot), _) => rustix::fs::fgetxattr(self.fd(*slot)?, name, &mut buf[..])?,
            (Target::Path(path), _) => rustix::fs::getxattr(self.full(path), name, &mut buf[..])?,
            (Target::NoFollow(path), _) => rustix::fs::lgetxattr(self.full(path), name, &mut buf[..])?,
        };
        if room == 0 {
            return Ok(Answer::Count(count as u64));
        }
        buf.truncate(count);
        Ok(Answer::Bytes(Bytes(buf)))
    }
}

/// Splits a list of attribute names, without those that a security module adds.
pub(crate) fn xattr_names(list: &[u8]) -> BTreeSet<String> {
    list.split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && !name.starts_with(b"security."))
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

fn timespec(time: SetTime) -> Timespec {
    match time {
        SetTime::Omit => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::At(tv_sec, nanos) => Timespec { tv_sec, tv_nsec: nanos.into() },
    }
}
