//! Runs other programs, and makes an interrupt (Ctrl-C, `SIGTERM`, `SIGHUP`) an
//! ordinary failure: running programs are ended, the failure is passed up, and
//! resources are released on the way.

use crate::error::{Context, Failure, Result, fail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// From here on, an interrupt ends programs and is reported by
/// [`uninterrupted`].
pub fn catch_interrupts() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for _ in &mut signals {
            INTERRUPTED.store(true, Ordering::SeqCst);
            for &pid in running().iter() {
                terminate(pid, Signal::TERM);
            }
        }
    });
    Ok(())
}

fn running() -> std::sync::MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends `signal` to a child that has not been waited for yet.
pub fn terminate(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // A child that has just ended needs no signal.
        let _ = kill_process(pid, signal);
    }
}

/// Fails once an interrupt has come.
pub fn uninterrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) { fail("interrupted") } else { Ok(()) }
}

/// Whether the commands run with the privileges of the superuser.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether programs can be run with those privileges, by [`root_cmd`].
pub fn can_be_root() -> bool {
    is_root() || (exists("sudo") && cmd("sudo").args(["--non-interactive", "true"]).quiet().is_ok())
}

/// Whether this program is found on the path (with the places of system tools),
/// or this file where its absolute path says.
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(OsString::from);
    std::env::split_paths(&path).chain(system.map(Into::into)).any(|dir| dir.join(program).is_file())
}

/// A program to run.
pub struct Cmd {
    command: Command,
    shown: String,
    input: Option<String>,
    cleanup: bool,
}

/// A program by name or path.
pub fn cmd(program: impl AsRef<OsStr>) -> Cmd {
    let program = program.as_ref();
    Cmd {
        command: Command::new(program),
        shown: program.to_string_lossy().into_owned(),
        input: None,
        cleanup: false,
    }
}

/// A program that needs the superuser: through `sudo` where we are not.
pub fn root_cmd(program: &str) -> Cmd {
    if is_root() { cmd(program) } else { cmd("sudo").args(["--non-interactive", program]) }
}

impl Cmd {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&arg.as_ref().to_string_lossy());
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args(self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Runs in this directory.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Removes an environment variable.
    pub fn without_env(mut self, key: &str) -> Self {
        self.command.env_remove(key);
        self
    }

    /// Gives the program this on its standard input.
    pub fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs even after an interrupt, and is not hit by the next one.
    pub fn cleanup(mut self) -> Self {
        self.cleanup = true;
        self.command.process_group(0);
        self
    }

    /// Runs with our own input and output.
    pub fn run(mut self) -> Result<()> {
        let child = self.spawn()?;
        let status = self.finish(child)?.status;
        self.judge(status, "")
    }

    /// Runs, and shows the output only in a failure.
    pub fn quiet(self) -> Result<()> {
        self.read().map(drop)
    }

    /// Runs, and answers its standard output. A failure shows the end of its
    /// output.
    pub fn read(mut self) -> Result<String> {
        let output = self.capture()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        self.judge(output.status, &format!("{text}{errors}"))?;
        Ok(text)
    }

    /// Runs, and answers everything whatever its exit status was.
    pub fn output(mut self) -> Result<Output> {
        self.capture()
    }

    /// Runs, and hands over its standard output line by line as it comes.
    pub fn lines(mut self, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
        self.command.stdout(Stdio::piped());
        let mut child = self.spawn()?;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                each(&String::from_utf8_lossy(&line?));
            }
        }
        Ok(self.finish(child)?.status)
    }

    /// Starts the program and leaves it running, with its output in `log`. An
    /// interrupt does not reach it: the caller ends it.
    pub fn start(mut self, log: &Path) -> Result<Child> {
        let log = std::fs::File::create(log).at(log)?;
        self.command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        uninterrupted()?;
        self.cleanup().spawn()
    }

    /// Runs with its standard output as the other's standard input.
    pub fn pipe_into(mut self, mut other: Self) -> Result<()> {
        self.command.stdout(Stdio::piped());
        let mut first = self.spawn()?;
        if let Some(stdout) = first.stdout.take() {
            other.command.stdin(stdout);
        }
        let second = other.spawn();
        let first = self.finish(first)?;
        let second = other.finish(second?)?;
        self.judge(first.status, "")?;
        other.judge(second.status, "")
    }

    fn capture(&mut self) -> Result<Output> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.input.is_none() {
            self.command.stdin(Stdio::null());
        }
        let child = self.spawn()?;
        self.finish(child)
    }

    fn spawn(&mut self) -> Result<Child> {
        if !self.cleanup {
            uninterrupted()?;
        }
        if self.input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let child = self.command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{error}; `cargo xtask setup` installs what the tests use"),
            _ => error.to_string(),
        });
        let child = child.context(&self.shown)?;
        if !self.cleanup {
            running().push(child.id());
        }
        Ok(child)
    }

    fn finish(&mut self, mut child: Child) -> Result<Output> {
        let pid = child.id();
        if let (Some(text), Some(mut stdin)) = (self.input.take(), child.stdin.take()) {
            // A program that ends without reading its input is judged by its status.
            let _ = stdin.write_all(text.as_bytes());
        }
        let output = child.wait_with_output();
        running().retain(|&other| other != pid);
        if !self.cleanup {
            uninterrupted()?;
        }
        output.context(&self.shown)
    }

    fn judge(&self, status: ExitStatus, printed: &str) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        let tail = tail(printed, 30);
        let gap = if tail.is_empty() { "" } else { "\n" };
        Err(Failure(format!("{} ended with {status}{gap}{tail}", self.shown)))
    }
}

/// The last `count` lines of a text.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_reported_with_what_it_printed() {
        let error = cmd("sh").args(["-c", "echo out; echo err >&2; exit 3"]).quiet().unwrap_err();
        assert!(error.0.contains("exit status: 3") && error.0.contains("out\nerr"), "{error}");
    }

    #[test]
    fn input_output_and_environment_reach_the_program() {
        let text = cmd("sh").args(["-c", "cat; echo $KEY"]).env("KEY", "value").input("in\n").read();
        assert_eq!(text.unwrap(), "in\nvalue\n");
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let error = cmd("/no/such/program").quiet().unwrap_err();
        assert!(error.0.starts_with("/no/such/program"), "{error}");
        assert!(!exists("no-such-program"));
        assert!(exists("sh"));
        assert!(exists("/proc/version") && !exists("/no/such/file"));
    }

    #[test]
    fn a_pipe_carries_output_and_failure() {
        let to = |script| cmd("sh").args(["-c", "echo text"]).pipe_into(cmd("sh").args(["-c", script]));
        assert_eq!(to("test $(cat) = text"), Ok(()));
        assert!(to("cat > /dev/null; exit 1").is_err());
    }

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("", 2), "");
    }
}
