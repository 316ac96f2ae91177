//! The POSIX test suite pjdfstest, over a home tier of ext4 and of XFS, with files in frames,
//! through a view, and, in long runs, on log file systems and through other views.

use crate::arena::{Arena, COMPRESSED, ENCRYPTED, FRAMES, Shape};
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::counts::Counts;
use braid_tests_support::error::{Context, Result, ensure};
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;
use braid_tests_support::sh::{Cmd, cmd};
use braid_tests_support::tools::PJDFSTEST;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "pjdfstest",
    about: "POSIX behaviour, over home tiers of ext4 and XFS, in frames, and through a view",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

/// A view without modules.
const VIEW: Shape = Shape::spread(Kind::Ext4, Kind::Ext4).mib(512).in_view();

/// Log file systems and views, with and without modules: in long runs only.
const MORE: [Shape; 5] = [
    Shape::log(&[]),
    Shape::log(COMPRESSED),
    Shape::log(ENCRYPTED),
    VIEW.below(COMPRESSED),
    VIEW.below(ENCRYPTED),
];

/// Tests that do not hold through a view, each with its reason. On a volume, all hold.
const EXCLUDED_IN_VIEW: &[(&str, &str)] =
    &[("chmod::clear_isgid_bit", "in a view, set-id bits are set on files that exist by root alone")];

const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
[settings]
naptime = 0.02
"#;

/// The tests that remount read-only run apart from the others, since some of
/// those keep files open for writing, which forbids it on any file system.
const REMOUNTING: &str = "erofs";

fn trials(options: &Options) -> Vec<Trial> {
    let homes = [(Kind::Ext4, Kind::Xfs), (Kind::Xfs, Kind::Ext4)];
    let rounds = if options.on.is_some() { 1 } else { homes.len() };
    let plain = homes.into_iter().take(rounds).map(|(home, other)| Shape::spread(home, other).mib(512));
    let framed = FRAMES.map(|modules| Shape::spread(Kind::Ext4, Kind::Ext4).mib(512).below(modules));
    let others = framed.into_iter().chain([VIEW]).filter(|_| options.on.is_none());
    let more = MORE.into_iter().filter(|_| options.on.is_none() && options.long);
    let shapes = plain.chain(others).chain(more);
    let trial = |shape: Shape| {
        let own = options.clone();
        Trial::new(&shape.title(options), move |report| run(shape, &own, report)).by_root()
    };
    shapes.map(trial).collect()
}

fn run(shape: Shape, options: &Options, report: &mut Report) -> Result<()> {
    let arena = Arena::new("pjdfstest", shape, options)?;
    run_in(&arena, if shape.view { EXCLUDED_IN_VIEW } else { &[] }, report)?;
    report.print(&format!("        pjdfstest on {}: {}", arena.name, report.counts()));
    report.case(&format!("fsck after pjdfstest on {}", arena.name), || arena.finish())
}

/// Tests that do not hold, each with its reason.
type Excluded = [(&'static str, &'static str)];

fn run_in(arena: &Arena, excluded: &Excluded, report: &mut Report) -> Result<()> {
    let (second, bin) = (arena.lab.dir("second")?, arena.lab.path().join("bin"));
    for remounting in [false, true] {
        let configuration = arena.lab.path().join("pjdfstest.toml");
        std::fs::write(&configuration, format!("{CONFIGURATION}allow_remount = {remounting}\n"))
            .at(&configuration)?;
        let output = pjdfstest(&bin)?
            .arg("-c")
            .arg(&configuration)
            .arg("-p")
            .arg(&arena.dir)
            .arg("-s")
            .arg(&second)
            .args(remounting.then_some(REMOUNTING))
            .output()?;
        judge(&String::from_utf8_lossy(&output.stdout), remounting, excluded, report)?;
    }
    if let Ok(waiting) = std::fs::read_to_string(bin.join("busy")) {
        let times = waiting.lines().count();
        let first = waiting.lines().next().unwrap_or_default();
        report
            .print(&format!("        busy at {times} remounts, with {first} requests waiting at the first"));
    }
    Ok(())
}

/// A mount(8) that asks no helper: that of FUSE would start a second daemon
/// instead of remounting. The kernel tells a daemon of closed files after
/// close(2) has returned, and until the daemon has answered, one that is
/// removed keeps the mount from becoming read-only: it is asked for again, for
/// up to ten seconds, and the file `busy` gets a line with the number of
/// requests that wait for the daemon.
const MOUNT: &str = r#"#!/bin/sh
for mountpoint; do :; done
connection=/sys/fs/fuse/connections/$(stat -c %Ld "$mountpoint")
end=$(($(date +%s) + 10))
until said=$(LC_ALL=C /bin/mount --internal-only "$@" 2>&1); do
    case $said in *busy*) [ "$(date +%s)" -lt "$end" ] && cat "$connection/waiting" >> "${0%/*}/busy" && continue ;; esac
    echo "$said" >&2
    exit 1
done
"#;

/// The program, with [`MOUNT`].
fn pjdfstest(bin: &Path) -> Result<Cmd> {
    if !bin.exists() {
        std::fs::create_dir(bin).at(bin)?;
        let mount = bin.join("mount");
        std::fs::write(&mount, MOUNT).at(&mount)?;
        std::fs::set_permissions(&mount, PermissionsExt::from_mode(0o755)).at(&mount)?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(cmd(PJDFSTEST.path()?).env("PATH", format!("{}:{path}", bin.display())).env("NO_COLOR", "1"))
}

/// Reads the output of pjdfstest, and prints the tests that did not pass.
fn judge(text: &str, remounting: bool, excluded: &Excluded, report: &mut Report) -> Result<()> {
    let mut passed = 0;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, verdict)) = line.split_once(' ').map(|(name, rest)| (name, rest.trim())) else {
            continue;
        };
        let reason = lines.peek().map_or("", |next| next.trim());
        match verdict {
            _ if name.contains(REMOUNTING) != remounting => {}
            "ok" => passed += 1,
            "skipped" => report.skip(name, reason),
            "FAILED" => match excluded.iter().find(|(excluded, _)| *excluded == name) {
                Some((_, why)) => report.skip(name, why),
                None => report.fail(name, reason),
            },
            _ => {}
        }
    }
    ensure(passed > 0, || format!("pjdfstest ran nothing:\n{text}"))?;
    report.add(Counts { passed, ..Counts::default() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "chmod::a      ok\n\
        open::b      skipped\n\trequires a thing\nunlink::c   FAILED\n\tassertion failed\n\
        \nSummary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total\n";

    #[test]
    fn verdicts_are_read() {
        let mut report = Report::default();
        judge(PRINTED, false, &[], &mut report).unwrap();
        assert_eq!(report.counts(), Counts { passed: 1, failed: 1, skipped: 1 });
    }

    #[test]
    fn a_run_of_nothing_is_a_failure() {
        assert!(judge("Error: no such directory\n", false, &[], &mut Report::default()).is_err());
    }
}
