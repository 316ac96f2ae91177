//! The directories in which modules are looked for: a list of each user's own.

use braid_sys::check_trusted;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where packages put modules.
const PACKAGED: &str = "/usr/lib/braid/modules";

/// Most directories of a user.
pub const REPOSITORIES_MAX: usize = 16;

/// The first line of the list.
const HEAD: &str = "# Directories with modules: braid module repo changes them.\n";

/// The list of a user's directories.
#[derive(Clone, Debug)]
pub struct Repositories {
    file: PathBuf,
    dirs: Vec<PathBuf>,
}

impl Repositories {
    /// Those of the user whom this process acts for.
    ///
    /// # Errors
    /// If the list can't be read, or is none.
    pub fn read() -> Result<Self, String> {
        Self::of(file()?)
    }

    fn of(file: PathBuf) -> Result<Self, String> {
        let text = contents(&file).map_err(|error| format!("{}: {error}", file.to_string_lossy()))?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#');
        let dirs: Vec<PathBuf> = lines.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))).collect();
        if let Some(wrong) = dirs.iter().find(|dir| !dir.is_absolute()) {
            let (file, wrong) = (file.to_string_lossy(), wrong.to_string_lossy());
            return Err(format!("{file}: {wrong} is not an absolute path"));
        }
        Ok(Self { file, dirs })
    }

    /// The user's own, in the order in which they are looked at.
    #[must_use]
    pub fn own(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// All that are looked at, in this order.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        self.dirs.iter().map(PathBuf::as_path).chain([Path::new(PACKAGED)])
    }

    /// Adds a directory.
    ///
    /// # Errors
    /// If it is none, is there already, or there are too many.
    pub fn add(&mut self, dir: &Path) -> Result<(), String> {
        let _alone = self.begin()?;
        let dir = fs::canonicalize(dir).map_err(|error| error.to_string())?;
        if !dir.is_dir() {
            return Err("it is not a directory".into());
        }
        if dir.as_os_str().as_bytes().contains(&b'\n') {
            return Err("its name has more than one line".into());
        }
        if self.all().any(|other| other == dir) {
            return Err("modules are looked for there already".into());
        }
        if self.dirs.len() >= REPOSITORIES_MAX {
            return Err(format!(
                "there are {REPOSITORIES_MAX} already, as many as a user may have: remove one"
            ));
        }
        self.dirs.push(dir);
        self.write()
    }

    /// Removes a directory, which may be gone.
    ///
    /// # Errors
    /// If it is not in the list.
    pub fn remove(&mut self, dir: &Path) -> Result<(), String> {
        let _alone = self.begin()?;
        let real =
            fs::canonicalize(dir).or_else(|_| std::path::absolute(dir)).map_err(|error| error.to_string())?;
        let at = self.dirs.iter().position(|other| other == dir || *other == real);
        self.dirs.remove(at.ok_or("modules are not looked for there")?);
        self.write()
    }

    fn dir(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    fn failed(&self, error: io::Error) -> String {
        format!("{}: {error}", self.file.to_string_lossy())
    }

    /// Begins a change of the present list; others wait until the result is dropped.
    fn begin(&mut self) -> Result<File, String> {
        fs::create_dir_all(self.dir()).map_err(|error| self.failed(error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(self.dir(), flags, Mode::empty());
        let dir = File::from(dir.map_err(|error| self.failed(error.into()))?);
        flock(&dir, FlockOperation::LockExclusive).map_err(|error| self.failed(error.into()))?;
        self.dirs = Self::of(self.file.clone())?.dirs;
        Ok(dir)
    }

    /// Stores the present list, atomically.
    fn write(&self) -> Result<(), String> {
        let mut text = HEAD.as_bytes().to_vec();
        for dir in &self.dirs {
            text.extend_from_slice(dir.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let next = self.file.with_extension("new");
        let write = || {
            // One that is there was left by a crash, or put there by another user.
            let _ = fs::remove_file(&next);
            let mut file = File::options().write(true).create_new(true).mode(0o644).open(&next)?;
            file.write_all(&text).and_then(|()| file.sync_all())?;
            fs::rename(&next, &self.file)
        };
        write().map_err(|error| self.failed(error))
    }
}

/// The contents of a list; empty if there is none. No other user may influence it, even if the
/// environment, which may be another user's, names its place.
fn contents(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    check_trusted(&file.metadata()?).map_err(|why| io::Error::other(format!("it {why}")))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// The place of the list.
fn file() -> Result<PathBuf, String> {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let dir = dir_of(set("XDG_CONFIG_HOME"), set("HOME"), geteuid().is_root());
    Ok(dir.ok_or("neither XDG_CONFIG_HOME nor HOME is an absolute path")?.join("module-repositories"))
}

fn dir_of(config: Option<PathBuf>, home: Option<PathBuf>, is_root: bool) -> Option<PathBuf> {
    // By the rules for the variable, a relative path does not count.
    let absolute = |path: &PathBuf| path.is_absolute();
    match config.filter(absolute) {
        Some(config) => Some(config.join("braid")),
        None if is_root => Some("/etc/braid".into()),
        None => home.filter(absolute).map(|home| home.join(".config/braid")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_list_has_what_was_added_and_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/list");
        let mut list = Repositories::of(file.clone()).unwrap();
        assert!(list.own().is_empty());
        assert!(list.add(Path::new("/dev/null")).is_err());
        assert!(list.add(&dir.path().join("missing")).is_err());
        let repos: Vec<PathBuf> = (0..=REPOSITORIES_MAX)
            .map(|number| {
                let repo = dir.path().join(number.to_string());
                fs::create_dir(&repo).unwrap();
                repo
            })
            .collect();
        for repo in &repos[..REPOSITORIES_MAX] {
            list.add(repo).unwrap();
        }
        assert!(list.add(&repos[0]).unwrap_err().contains("already"));
        assert!(list.add(&repos[REPOSITORIES_MAX]).unwrap_err().contains("as many as"));
        fs::remove_dir(&repos[1]).unwrap();
        list.remove(&repos[1]).unwrap();
        assert!(list.remove(&repos[1]).is_err());
        let again = Repositories::of(file.clone()).unwrap();
        assert_eq!(again.own(), list.own());
        assert_eq!(again.own().len(), REPOSITORIES_MAX - 1);
        fs::write(&file, "relative\n").unwrap();
        assert!(Repositories::of(file).unwrap_err().contains("relative is not an absolute path"));
    }

    #[test]
    fn changes_at_the_same_time_are_all_in_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list");
        std::thread::scope(|scope| {
            for number in 0..REPOSITORIES_MAX {
                let (dir, mut list) =
                    (dir.path().join(number.to_string()), Repositories::of(file.clone()).unwrap());
                fs::create_dir(&dir).unwrap();
                scope.spawn(move || list.add(&dir).unwrap());
            }
        });
        assert_eq!(Repositories::of(file).unwrap().own().len(), REPOSITORIES_MAX);
    }

    #[test]
    fn a_list_of_others_is_none_and_what_they_put_beside_it_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("list"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, file.with_extension("new")).unwrap();
        Repositories::of(file.clone()).unwrap().add(dir.path()).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(Repositories::of(file.clone()).unwrap_err().contains("written by other users"));
        if geteuid().is_root() {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            std::os::unix::fs::chown(&file, Some(1234), None).unwrap();
            assert!(Repositories::of(file).unwrap_err().contains("belongs to user 1234"));
        }
    }

    #[test]
    fn the_list_is_at_an_absolute_path() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(dir_of(path("/c"), path("/h"), true), path("/c/braid"));
        assert_eq!(dir_of(path("c"), path("/h"), true), path("/etc/braid"));
        assert_eq!(dir_of(path("c"), path("/h"), false), path("/h/.config/braid"));
        assert_eq!(dir_of(None, None, true), path("/etc/braid"));
        assert_eq!(dir_of(None, path("h"), false), None);
        assert_eq!(dir_of(None, None, false), None);
    }
}
