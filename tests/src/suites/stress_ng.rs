//! The stressors of stress-ng that work on files, each for a short time with
//! its own verification.

use crate::arena::{Arena, Shape};
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::{Result, ensure};
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;
use braid_tests_support::sh::{cmd, tail};
use std::time::Instant;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "stress-ng",
    about: "stressors of files, directories, locks and attributes",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

/// The stressors, with their additional options.
const STRESSORS: &[(&str, &[&str])] = &[
    ("access", &[]),
    ("aio", &[]),
    ("aiol", &[]),
    ("chattr", &[]),
    ("chdir", &[]),
    ("chmod", &[]),
    ("chown", &[]),
    ("copy-file", &[]),
    ("dentry", &[]),
    ("dir", &[]),
    ("dirdeep", &[]),
    ("dirmany", &[]),
    ("dnotify", &[]),
    ("fallocate", &[]),
    ("fanotify", &[]),
    ("fcntl", &[]),
    ("fiemap", &[]),
    ("file-ioctl", &[]),
    ("filename", &["--filename-opts", "posix"]),
    ("flock", &[]),
    ("fpunch", &[]),
    ("fsize", &[]),
    ("fstat", &[]),
    ("getdent", &[]),
    ("handle", &[]),
    ("hdd", &[]),
    ("inode-flags", &[]),
    ("inotify", &[]),
    ("io", &[]),
    ("iomix", &[]),
    ("lease", &[]),
    ("link", &[]),
    ("locka", &[]),
    ("lockf", &[]),
    ("lockofd", &[]),
    ("mknod", &[]),
    ("mmap", &["--mmap-file", "--mmap-bytes", "16M"]),
    ("msync", &[]),
    ("open", &[]),
    ("readahead", &[]),
    ("rename", &[]),
    ("revio", &[]),
    ("seek", &[]),
    ("sendfile", &[]),
    ("splice", &[]),
    ("symlink", &[]),
    ("sync-file", &[]),
    ("touch", &[]),
    ("utime", &[]),
    ("xattr", &[]),
];

/// Exit statuses of stress-ng that mean "not possible here".
const NO_RESOURCE: i32 = 3;
const NOT_IMPLEMENTED: i32 = 4;

fn trials(options: &Options) -> Vec<Trial> {
    let trial = |(stressor, extra): &(&'static str, &'static [&'static str])| {
        let (stressor, extra, on) = (*stressor, *extra, options.clone());
        let trial = Trial::new(stressor, move |report| run(stressor, extra, &on, report));
        trial.on_file_systems(options)
    };
    STRESSORS.iter().map(trial).collect()
}

fn run(name: &str, extra: &[&str], options: &Options, report: &mut Report) -> Result<()> {
    let arena = Arena::new("stress-ng", Shape::spread(Kind::Ext4, Kind::Xfs), options)?;
    let dir = arena.fresh("stress")?;
    let begun = Instant::now();
    let seconds = options.scale(1, 1, 20);
    let output = cmd("stress-ng")
        .args([&format!("--{name}"), "2", "--verify", "--timeout", &format!("{seconds}s"), "--temp-path"])
        .arg(&dir)
        .args(extra)
        // Some stressors work in the current directory.
        .dir(&dir)
        .output()?;
    let code = output.status.code().unwrap_or(-1);
    let printed = String::from_utf8_lossy(&output.stderr);
    if code == NO_RESOURCE || code == NOT_IMPLEMENTED {
        report.skip(name, &tail(&printed, 1));
        return arena.finish();
    }
    let passed = ensure(code == 0, || format!("status {code}\n{}", tail(&printed, 10)));
    report.judge(&format!("{name} on {}", arena.name), begun, passed)?;
    report.case(&format!("fsck after {name} on {}", arena.name), || arena.finish())
}
