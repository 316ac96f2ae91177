//! Decides whether a file is trusted, by the users who may have put it there.

use braid_sys::{check_owner, check_trusted};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatfs, fstatvfs, openat, readlinkat};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Most links on the way to a file, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// File systems whose files are as another user or another machine wants them, by their numbers in
/// `statfs`.
const OF_OTHERS: [(u32, &str); 10] = [
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
];

/// A file with code.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: File,
    /// Its user.
    pub(crate) owner: u32,
    /// Why its code must not have the rights of this process: another user could have put
    /// it there, who owns it or may write it, or a directory or a link on the way, or controls the
    /// contents of their file systems.
    pub(crate) distrust: Option<String>,
}

/// Opens a file with code. Every step on the way is checked, and the next one starts from the
/// checked one: only users who are found on the way can lead elsewhere.
///
/// # Errors
/// If it can't be opened, or no user may run it.
pub(crate) fn find(path: &Path) -> Result<Found, String> {
    let walk = std::path::absolute(path).and_then(|path| Walk::begin(&path)).and_then(Walk::finish);
    let (file, metadata, distrust) = walk.map_err(|error| error.to_string())?;
    let mount = fstatvfs(&file).map_err(|error| error.to_string())?;
    // The copy in memory could be run.
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("its file system is mounted 'noexec': nothing on it is to be run".into());
    }
    Ok(Found { file, owner: metadata.uid(), distrust })
}

/// The way to a file.
struct Walk {
    /// Where it has come to.
    dir: File,
    /// The same for people.
    at: PathBuf,
    /// The names that it still has to go.
    left: VecDeque<OsString>,
    links: usize,
    distrust: Option<String>,
}

impl Walk {
    fn begin(path: &Path) -> io::Result<Self> {
        let dir = root()?;
        let mut walk = Self { dir, at: "/".into(), left: names(path).collect(), links: 0, distrust: None };
        walk.judge_dir()?;
        Ok(walk)
    }

    /// Goes to the end, where a regular file is.
    fn finish(mut self) -> io::Result<(File, Metadata, Option<String>)> {
        while let Some(name) = self.left.pop_front() {
            let next = step(&self.dir, &name, OFlags::PATH)?;
            let metadata = next.metadata()?;
            if metadata.is_symlink() {
                self.follow(&next, &metadata, &name)?;
            } else if metadata.is_dir() {
                (self.dir, self.at) = (next, self.at.join(&name));
                self.judge_dir()?;
            } else if metadata.is_file() && self.left.is_empty() {
                return self.open(&name);
            } else {
                break;
            }
        }
        Err(io::Error::other("it is not a regular file"))
    }

    /// Opens the file of this name where the walk has come to.
    fn open(mut self, name: &OsStr) -> io::Result<(File, Metadata, Option<String>)> {
        // A pipe put in its place meanwhile would wait for a writer.
        let file = step(&self.dir, name, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        self.judge(&file, &metadata, "it")?;
        Ok((file, metadata, self.distrust))
    }

    fn follow(&mut self, link: &File, metadata: &Metadata, name: &OsStr) -> io::Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(rustix::io::Errno::LOOP.into());
        }
        // In a directory for all, such as /tmp, it may be another's. Its mode means nothing.
        let path = self.at.join(name);
        let why = check_owner(metadata).err().map(|why| format!("the link {} {why}", path.to_string_lossy()));
        self.distrust = self.distrust.take().or(why);
        let target = readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            (self.dir, self.at) = (root()?, "/".into());
        }
        names(&target).rev().for_each(|name| self.left.push_front(name));
        Ok(())
    }

    fn judge_dir(&mut self) -> io::Result<()> {
        let (dir, what) = (self.dir.try_clone()?, format!("the directory {}", self.at.to_string_lossy()));
        self.judge(&dir, &dir.metadata()?, &what)
    }

    fn judge(&mut self, file: &File, metadata: &Metadata, what: &str) -> io::Result<()> {
        let on = of_file_system(file)?.map(|why| format!("{what} is on a file system that {why}"));
        let why = check_trusted(metadata).err().map(|why| format!("{what} {why}"));
        self.distrust = self.distrust.take().or(why).or(on);
        Ok(())
    }
}

fn root() -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/", flags, Mode::empty())?.into())
}

/// Opens the file of this name in a directory; it may be a link itself.
fn step(dir: &File, name: &OsStr, flags: OFlags) -> io::Result<File> {
    Ok(openat(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// The names of a path, without its root.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let is_step = |step: &Component<'_>| matches!(step, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_step).map(|step| step.as_os_str().to_owned())
}

/// The reason not to trust a file system's facts about its files.
fn of_file_system(file: &File) -> io::Result<Option<String>> {
    let number = fstatfs(file)?.f_type as u32;
    let kind = OF_OTHERS.iter().find(|(known, _)| *known == number);
    // Its files may have been made by the user who mounted it.
    let is_nosuid = fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::NOSUID);
    let nosuid = is_nosuid.then(|| "is mounted 'nosuid'".to_owned());
    Ok(kind.map(|(_, name)| format!("is {name}")).or(nosuid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use rustix::process::geteuid;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    #[test]
    fn what_others_could_have_put_there_is_not_trusted() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (below, path) = (dir.path().join("below"), dir.path().join("below/x.so"));
        fs::create_dir(&below).unwrap();
        fs::write(&path, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let why = || find(&path).unwrap().distrust.unwrap_or_default();
        mode(dir.path(), 0o755);
        mode(&path, 0o644);
        mode(&below, 0o755);
        assert_eq!(why(), "");
        mode(&path, 0o664);
        assert_eq!(why(), "it may be written by other users");
        mode(&path, 0o644);
        mode(&below, 0o777);
        assert!(why().starts_with("the directory "), "{}", why());
        mode(&below, 0o1777);
        assert_eq!(why(), "", "as in /tmp, others can't replace it");
        mode(&below, 0o755);
        if geteuid().is_root() {
            chown(&path, Some(1234), None).unwrap();
            assert_eq!(why(), "it belongs to user 1234");
            assert_eq!(find(&path).unwrap().owner, 1234);
        }
        assert!(find(&below).is_err());
        let pipe = dir.path().join("pipe.so");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(find(&pipe).err().unwrap(), "it is not a regular file");
    }

    #[test]
    fn links_are_trusted_where_others_can_not_change_them() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = |name: &str| dir.path().join(name);
        let (open, real) = (path("open"), path("real.so"));
        fs::create_dir(&open).unwrap();
        fs::write(&real, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(dir.path(), 0o755);
        mode(&real, 0o644);
        mode(&open, 0o755);
        let links = [open.join("absolute.so"), open.join("relative.so"), open.join("twice.so")];
        symlink(&real, &links[0]).unwrap();
        symlink("../real.so", &links[1]).unwrap();
        symlink("../open/relative.so", &links[2]).unwrap();
        let why = |path: &Path| find(path).unwrap().distrust.unwrap_or_default();
        links.iter().for_each(|link| assert_eq!(why(link), "", "{link:?}"));
        assert_eq!(why(&open.join("../open/./twice.so")), "");
        mode(&open, 0o777);
        let said = format!("the directory {} may be written by other users", open.to_string_lossy());
        links.iter().for_each(|link| assert_eq!(why(link), said));
        mode(&open, 0o1777);
        links.iter().for_each(|link| assert_eq!(why(link), "", "{link:?}"));
        if geteuid().is_root() {
            lchown(&links[1], Some(1234), None).unwrap();
            links[1..].iter().for_each(|link| assert!(why(link).ends_with("belongs to user 1234")));
            chown(&open, Some(1234), None).unwrap();
            links.iter().for_each(|link| assert!(why(link).contains("open belongs to user 1234")));
        }
        symlink("loop.so", path("loop.so")).unwrap();
        assert!(find(&path("loop.so")).unwrap_err().contains("symbolic links"));
    }
}
