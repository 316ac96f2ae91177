//! Starting the daemon: the command starts itself again, detached, and waits
//! for one line with the outcome of the mount.

use crate::failure::{Failure, Result};
use braid_contract::Shown;
use braid_daemon::log;
use rustix::process::{geteuid, setsid};
use std::cell::Cell;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Longest part of a log file's name that comes from the mount point.
const LOG_NAME_BYTES_MAX: usize = 200;

/// Starts the daemon and returns when the file system at `mountpoint` can be
/// used; `words` are the command line, of which the first `names` name the command.
pub(crate) fn start(
    log_file: Option<&Path>,
    words: &[OsString],
    names: usize,
    mountpoint: &Path,
) -> Result<()> {
    let log = Log::open(log_file, mountpoint)?;
    braid_daemon::pass_on_no_files();
    let mut child = spawn(&log, words, names)
        .map_err(|error| Failure::new(format!("the daemon can't be started: {error}")))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // An error is like an end: the daemon is gone without an answer.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    let answer: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    if answer["ready"] == true {
        for notice in answer["notices"].as_array().into_iter().flatten().filter_map(|text| text.as_str()) {
            eprintln!("note: {notice}");
        }
        return Ok(());
    }
    let ended = child.wait();
    if let Some(error) = answer["error"].as_str() {
        log.remove_if_unused();
        return Err(Failure::new(error));
    }
    let how = ended.map_or_else(|error| error.to_string(), describe);
    let log = log.path.shown();
    Err(Failure::new(format!(
        "the daemon ended before the file system could be used ({how})\n  help: its log may say why: {log}"
    )))
}

/// This command again, with the same arguments, in a session of its own.
fn spawn(log: &Log, words: &[OsString], names: usize) -> io::Result<Child> {
    let (names, words) = words.split_at(names.min(words.len()));
    let mut command = Command::new(std::env::current_exe()?);
    // Flags go directly after the sub-command: after `--` they would be taken
    // for paths.
    command.args(names).args(["--foreground", "--ready-on-stdout"]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.file.try_clone()?).spawn()
}

/// The command line of the daemon that this process guards, by its own, of which the first `names`
/// name the command.
pub(crate) fn guarded(words: &[OsString], names: usize) -> Vec<OsString> {
    let (names, words) = words.split_at(names.min(words.len()));
    [names, &["--guarded".into()], words].concat()
}

/// The socket to the process that guards this one, which is its standard input.
pub(crate) fn guard() -> Result<UnixStream> {
    let failed = |error: io::Error| Failure::new(format!("there is no guard: {error}"));
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let null = File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| failed(error.into()))?;
    Ok(UnixStream::from(socket))
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "no exit status".into(),
    }
}

/// The daemon's report to the command that waits for it.
pub(crate) struct Report {
    pending: Cell<bool>,
}

impl Report {
    /// If `wanted`, detaches this process from the terminal of the waiting
    /// command.
    pub(crate) fn new(wanted: bool) -> Self {
        if wanted {
            // It fails only for the leader of a group, which is detached.
            let _ = setsid();
        }
        Self { pending: Cell::new(wanted) }
    }

    /// Reports that the file system can be used, with messages about it.
    pub(crate) fn ready(&self, notices: &[String]) {
        self.say(&serde_json::json!({ "ready": true, "notices": notices }));
    }

    /// Reports that there is no file system. Answers `false`, without a report,
    /// if no command waits, or there was a file system before.
    pub(crate) fn failed(&self, failure: &Failure) -> bool {
        self.say(&serde_json::json!({ "error": failure.to_string() }))
    }

    fn say(&self, answer: &serde_json::Value) -> bool {
        if !self.pending.replace(false) {
            return false;
        }
        let mut stdout = io::stdout();
        // The command may be gone; the daemon goes on regardless.
        let _ = writeln!(stdout, "{answer}").and_then(|()| stdout.flush());
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        true
    }
}

/// The log of a daemon to be started.
struct Log {
    path: PathBuf,
    file: File,
    /// Whether it was created now.
    made: bool,
}

impl Log {
    fn open(asked: Option<&Path>, mountpoint: &Path) -> Result<Self> {
        let path = match asked {
            Some(path) => path.to_owned(),
            None => default_directory()?.join(log_name(mountpoint)),
        };
        if let (None, Some(directory)) = (asked, path.parent()) {
            fs::create_dir_all(directory).map_err(|error| no_log(&path, &error))?;
        }
        let made = !path.exists();
        let file = log::open(&path).map_err(|error| no_log(&path, &error))?;
        Ok(Self { path, file, made })
    }

    /// Removes an unused new log: a refused mount leaves nothing behind.
    fn remove_if_unused(&self) {
        if self.made && self.file.metadata().is_ok_and(|found| found.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Begins to log, to this file or to standard error.
pub(crate) fn begin_log(level: &str, file: Option<&Path>) -> Result<()> {
    let open = |path| log::open(path).map_err(|error| no_log(path, &error));
    let file = file.map(open).transpose()?;
    Ok(log::start(level, file)?)
}

fn no_log(path: &Path, error: &io::Error) -> Failure {
    let path = path.shown();
    Failure::new(format!("the log {path} can't be opened: {error}\n  help: name another with --log-file"))
}

fn default_directory() -> Result<PathBuf> {
    if geteuid().is_root() {
        return Ok("/var/log/braid".into());
    }
    let directory = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = directory("XDG_STATE_HOME").or_else(|| Some(directory("HOME")?.join(".local/state")));
    let state =
        state.ok_or_else(|| Failure::new("there is no home directory to log to\n  help: pass --log-file"))?;
    Ok(state.join("braid"))
}

/// A file name that is different for different mount points: `/` becomes `-`,
/// and special characters are written as `%` and two digits.
fn log_name(mountpoint: &Path) -> String {
    let mut name = String::new();
    let path = mountpoint.as_os_str().as_bytes();
    for byte in path.strip_prefix(b"/").unwrap_or(path) {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => name.push(char::from(*byte)),
            // Writing to a string does not fail.
            _ => _ = write!(name, "%{byte:02X}"),
        }
    }
    let start = name.len().saturating_sub(LOG_NAME_BYTES_MAX);
    format!("{}.log", &name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_names_tell_mount_points_apart() {
        assert_eq!(log_name(Path::new("/mnt/volume")), "mnt-volume.log");
        assert_eq!(log_name(Path::new("/mnt-volume")), "mnt%2Dvolume.log");
        assert_eq!(log_name(Path::new("/home/a b/ü")), "home-a%20b-%C3%BC.log");
        assert_eq!(log_name(Path::new(&format!("/{}", "x".repeat(4000)))).len(), LOG_NAME_BYTES_MAX + 4);
    }
}
