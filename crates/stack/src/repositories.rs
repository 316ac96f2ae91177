//! The directories in which modules are looked for: a list of each user's own.

use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
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
        Self::of(file())
    }

    fn of(file: PathBuf) -> Result<Self, String> {
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("{}: {error}", file.to_string_lossy())),
        };
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
        let real =
            fs::canonicalize(dir).or_else(|_| std::path::absolute(dir)).map_err(|error| error.to_string())?;
        let at = self.dirs.iter().position(|other| other == dir || *other == real);
        self.dirs.remove(at.ok_or("modules are not looked for there")?);
        self.write()
    }

    /// The list as it is now; at once, whatever happens.
    fn write(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.file.to_string_lossy());
        let parent = self.file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(failed)?;
        let mut text = HEAD.as_bytes().to_vec();
        for dir in &self.dirs {
            text.extend_from_slice(dir.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let next = self.file.with_extension("new");
        let mut file = fs::File::create(&next).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&next, &self.file).map_err(failed)
    }
}

/// Where the list is.
fn file() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let own = set("XDG_CONFIG_HOME").map(|dir| dir.join("braid"));
    let dir = match own {
        Some(dir) => dir,
        None if geteuid().is_root() => "/etc/braid".into(),
        None => set("HOME").unwrap_or_default().join(".config/braid"),
    };
    dir.join("module-repositories")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
