//! `mount.fuse.braid` and `umount.fuse.braid`, which mount(8) and umount(8)
//! call for file systems of type `fuse.braid`, also on behalf of `/etc/fstab`
//! and systemd. They are names of the `braid` command.

use crate::args::{Command, CommandLine, UmountArgs};
use crate::failure::{Failure, Result};
use crate::{locate, mount, umount};
use braid_daemon::config;
use braid_ipc::protocol::{Reply, Request};
use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status of mount(8) and umount(8) for a failure.
const FAILED: u8 = 32;
/// Their exit status for a wrong call.
const USAGE: u8 = 1;

/// Options for other programs: when to mount, and who may.
const IGNORED: &[&str] = &[
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "nofail",
    // The home tier's file system keeps the times, and has its own options.
    "lazytime",
    "nolazytime",
    "_netdev",
    "defaults",
    "default_permissions",
    // True of a volume without it.
    "rw",
    "silent",
    "loud",
];

/// The same, with any text after them.
const IGNORED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "user=", "uhelper=", "helper="];

const USAGE_MOUNT: &str = "mount.fuse.braid STACK.yaml DIRECTORY [-sfnv] [-t TYPE] [-o OPTIONS]";
const USAGE_UMOUNT: &str = "umount.fuse.braid DIRECTORY [-flnrv] [-t TYPE]";

const HELP: &str = "\
mount(8) calls this for `mount -t fuse.braid STACK.yaml DIRECTORY`, and for such
lines of /etc/fstab:

  /etc/braid/all.yaml  /mnt/all  fuse.braid  nofail,noatime  0  0

It returns when the file system can be used. Options, separated by commas:

  ro, noexec, nosuid, nodev, noatime …   as for every mount
  without=TIER       mounts without this tier; repeat for each
  log_file=FILE      where the daemon logs
  nonempty           mounts over a directory that is not empty
  allow_other        lets others use the mount; so for root anyhow
  remount            changes the options of every mount, and nothing else

Options for others (nofail, noauto, user, _netdev, x-systemd.* …) are passed
over. All else stands in the stack file.

A mount whose daemon died is cleaned up first. Exit status: 0 mounted, 32 not
mounted, with the reason on standard error, 1 wrong options.";

/// Mounts a Braid file system
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.braid", version, after_help = HELP, override_usage = USAGE_MOUNT)]
pub(crate) struct MountHelperArgs {
    /// Stack file
    #[arg(value_name = "STACK.yaml")]
    source: PathBuf,

    /// Directory to mount on
    target: PathBuf,

    /// Options, separated by commas
    #[arg(short)]
    options: Vec<OsString>,

    /// Type of the file system
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,

    /// Pass over options that there are not
    #[arg(short)]
    sloppy: bool,

    /// Only look whether it could be mounted
    #[arg(short)]
    fake: bool,

    /// Has no meaning here
    #[arg(short)]
    no_mtab: bool,

    /// Has no meaning here
    #[arg(short)]
    verbose: bool,
}

/// Unmounts a Braid file system, and waits until its daemon has ended
#[derive(Debug, Parser)]
#[command(name = "umount.fuse.braid", version, override_usage = USAGE_UMOUNT)]
pub(crate) struct UmountHelperArgs {
    /// Where it is mounted
    target: PathBuf,

    /// Detach a busy mount now, and do not wait
    #[arg(short)]
    lazy: bool,

    /// Type of the file system
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,

    /// Has no meaning here
    #[arg(short)]
    force: bool,

    /// Has no meaning here
    #[arg(short)]
    no_mtab: bool,

    /// Has no meaning here
    #[arg(short)]
    read_only: bool,

    /// Has no meaning here
    #[arg(short)]
    verbose: bool,
}

/// Handles a call by the name of a helper.
pub(crate) fn run(called: Option<&OsStr>) -> Option<ExitCode> {
    let done = match Path::new(called?).file_name()?.to_str()? {
        "mount.fuse.braid" | "mount.braid" => parsed::<MountHelperArgs>().and_then(|args| mounted(&args)),
        "umount.fuse.braid" | "umount.braid" => parsed::<UmountHelperArgs>().and_then(|args| {
            umount::run(&UmountArgs { mountpoint: args.target, lazy: args.lazy, force: false, wait: false })
        }),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(if failure.is_usage() { USAGE } else { FAILED })
        }
    })
}

fn parsed<T: Parser>() -> Result<T> {
    T::try_parse().map_err(|error| {
        // Help and version are no errors.
        if !error.use_stderr() {
            error.exit();
        }
        let text = error.to_string();
        Failure::usage(text.trim_start_matches("error: ").trim_end())
    })
}

/// The parsed options.
#[derive(Debug, Default, PartialEq)]
struct Options {
    /// Words for `braid mount`.
    words: Vec<OsString>,
    /// Options for the kernel.
    generic: Vec<String>,
    remount: bool,
}

fn mounted(args: &MountHelperArgs) -> Result<()> {
    let options = options(&args.options, args.sloppy)?;
    if options.remount {
        return remount(&args.target, options.generic);
    }
    let mut words: Vec<OsString> = vec!["mount".into()];
    words.extend(options.words);
    if !options.generic.is_empty() {
        words.extend(["--options".into(), options.generic.join(",").into()]);
    }
    words.extend(["--".into(), args.source.clone().into(), args.target.clone().into()]);
    let command = CommandLine::try_parse_from(std::iter::once("braid".into()).chain(words.iter().cloned()));
    let Ok(Command::Mount(mount_args)) = command.map(|line| line.command) else {
        return Err(Failure::usage(format!("these options can't be understood: {:?}", args.options)));
    };
    if args.fake { mount::look(&mount_args) } else { mount::run(&mount_args, &words) }
}

/// Changes the options of the daemon, and then of the kernel.
fn remount(target: &Path, generic: Vec<String>) -> Result<()> {
    let mut daemon = locate::need_daemon(&locate::given_or_only(Some(target))?)?;
    let request = Request::SetOptions { options: generic.clone() };
    locate::ask(&mut daemon, &request, |reply| matches!(reply, Reply::Done(_)).then_some(()))?;
    braid_daemon::serve::remount(target, &generic).map_err(|error| Failure::new(error.to_string()))
}

fn options(given: &[OsString], sloppy: bool) -> Result<Options> {
    let mut options = Options::default();
    let given: Vec<&str> = given
        .iter()
        .map(|text| text.to_str().ok_or_else(|| Failure::usage("the options are not UTF-8")))
        .collect::<Result<_>>()?;
    let given: Vec<&str> =
        given.iter().flat_map(|text| text.split(',')).filter(|text| !text.is_empty()).collect();
    options.remount = given.contains(&"remount");
    for option in given {
        let is_known = options.enter(option);
        // The kernel's options of the mount come back with a remount.
        if !is_known && !sloppy && !options.remount {
            return Err(unknown(option));
        }
    }
    Ok(options)
}

impl Options {
    /// Handles one option; `false` if it is unknown.
    fn enter(&mut self, option: &str) -> bool {
        if option == "remount" {
            return true;
        }
        if (option != "rw" || self.remount)
            && let Ok(generic) = config::mount_option(option)
        {
            self.generic.push(generic);
            return true;
        }
        if IGNORED.contains(&option) || IGNORED_PREFIXES.iter().any(|prefix| option.starts_with(prefix)) {
            return true;
        }
        let word = match option.split_once('=') {
            None if option == "allow_other" => "--allow-other".into(),
            None if option == "nonempty" => "--nonempty".into(),
            Some(("without", tier)) => format!("--without={tier}"),
            Some(("log_file", file)) => format!("--log-file={file}"),
            _ => return false,
        };
        self.words.push(word.into());
        true
    }
}

fn unknown(option: &str) -> Failure {
    let generic: Vec<&str> = config::mount_options().collect();
    Failure::usage(format!(
        "there is no option '{option}'\n  help: the options are without=TIER, log_file=FILE, nonempty, allow_other, \
         remount, {}; passed over are {} and {}…; all else stands in the stack file",
        generic.join(", "),
        IGNORED.join(", "),
        IGNORED_PREFIXES.join("…, ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options> {
        options(&[text.into()], false)
    }

    #[test]
    fn the_definitions_are_sound() {
        use clap::CommandFactory;
        MountHelperArgs::command().debug_assert();
        UmountHelperArgs::command().debug_assert();
    }

    #[test]
    fn options_are_for_the_kernel_for_us_or_for_others() {
        let options =
            read("rw,nofail,x-systemd.automount,noexec,without=slow,ro,user=me,without=b,,defaults").unwrap();
        assert_eq!(options.generic, ["noexec", "ro"]);
        assert_eq!(options.words, ["--without=slow", "--without=b"]);
        assert!(!options.remount);
        let options = read("remount,rw,user_id=0,noatime").unwrap();
        assert_eq!((options.remount, options.generic), (true, vec!["rw".to_owned(), "noatime".to_owned()]));
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is_unless_that_does_not_matter() {
        let said = read("ro,uid=1000").unwrap_err();
        assert!(said.is_usage() && said.to_string().contains("'uid=1000'"), "{said}");
        assert!(said.to_string().contains("without=TIER, log_file=FILE"), "{said}");
        assert_eq!(options(&["uid=1000,ro".into()], true).unwrap().generic, ["ro"]);
    }
}
