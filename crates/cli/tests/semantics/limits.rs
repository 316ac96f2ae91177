//! Limits of the process, odd files, and refusals because of them. Needs root
//! and /dev/fuse; skipped without them.

use crate::common::Bench;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

impl Bench {
    /// The command with a hard limit of open files, and without `--create`.
    fn limited(&self, files: u64, words: &[&str]) -> Output {
        let script = format!("ulimit -n {files} && exec {} \"$@\"", env!("CARGO_BIN_EXE_braid"));
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).args(words).current_dir(self.path("."));
        command.output().unwrap()
    }
}

#[test]
fn a_low_limit_of_open_files_is_told_and_no_file_is_left_that_could_not_be_opened() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["create", "s.yaml"]);
    let mount = ["mount", "s.yaml", "m", "--threads", "4", "--log-file", "log"];
    let refused = bench.limited(64, &mount);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("the daemon may have 64 files open, and needs 68 for itself"), "{said}");

    let mounted = bench.limited(256, &mount);
    let said = String::from_utf8(mounted.stderr).unwrap();
    assert!(mounted.status.success(), "{said}");
    assert!(
        said.contains("warning: the daemon may have 256 files open, so applications about 94 to 188"),
        "{said}"
    );
    let mut open = Vec::new();
    let refused = (0..1000).find_map(|at| match File::create_new(bench.path(&format!("m/{at}"))) {
        Ok(file) => {
            open.push(file);
            None
        }
        Err(error) => Some((at, error)),
    });
    let (at, error) = refused.expect("a file more than the limit was opened");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
    let exists = |name: &str| fs::symlink_metadata(bench.path("a").join(name)).is_ok();
    assert!(!exists(&at.to_string()), "file {at} was refused, and left");
    // A descriptor may have come free meanwhile, so that one fails and the other does not.
    for (name, made) in
        [("dir", fs::create_dir(bench.path("m/dir"))), ("link", symlink("x", bench.path("m/link")))]
    {
        assert_eq!(made.is_ok(), exists(name), "{name}: {made:?}");
    }
    drop(open);
    File::create_new(bench.path("m/again")).unwrap();
    bench.unmount_clean();
}

/// Opens files until the daemon has no descriptor left.
fn exhaust(bench: &Bench, name: &str) -> Vec<File> {
    let open = |at: u32| File::create_new(bench.path(&format!("m/{name}{at}")));
    (0..1000).map_while(|at| open(at).ok()).collect()
}

#[test]
fn a_file_that_is_emptied_without_descriptors_is_what_is_written_to_it() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["create", "s.yaml"]);
    let mounted = bench.limited(256, &["mount", "s.yaml", "m", "--threads", "4"]);
    assert!(mounted.status.success(), "{mounted:?}");
    let path = bench.path("m/file");
    fs::write(&path, [1; 100_000]).unwrap();
    bench.ok(&["move", "m/file", "--to", "slow"]);
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    let open = [exhaust(&bench, "a"), exhaust(&bench, "b")];
    let emptied = file.set_len(0);
    let mut expected = if emptied.is_ok() { Vec::new() } else { vec![1; 100_000] };
    let data = [2; 50_000];
    expected.splice(..expected.len().min(data.len()), data);
    if let Err(error) = std::io::Write::write_all(&mut file, &data).and_then(|()| file.sync_all()) {
        // Natively, too, a file may need a descriptor that is not there.
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        expected.truncate(0);
    }
    drop((open, file));
    let found = fs::read(&path).unwrap();
    assert!(expected.is_empty() || found == expected, "{emptied:?}: {} bytes", found.len());
    bench.unmount_clean();
}

#[test]
fn a_stack_file_that_is_no_file_is_refused_at_once() {
    let Some(bench) = Bench::new() else { return };
    assert!(Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap().success());
    let said = bench.refused(&["mount", "fifo", "m"]);
    assert!(said.contains("fifo: this is not a regular file"), "{said}");
    assert!(bench.refused(&["mount", ".", "m"]).contains("this is a directory"));
}

#[test]
fn a_log_goes_to_no_file_that_others_chose() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["create", "s.yaml"]);
    let refused = |log: &str| {
        let output = bench.as_written(&["mount", "s.yaml", "m", "--log-file", log]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}: {said}");
        said
    };
    bench.make_dir("open");
    fs::set_permissions(bench.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(bench.path("secret"), "kept").unwrap();
    symlink(bench.path("secret"), bench.path("open/log")).unwrap();
    std::os::unix::fs::lchown(bench.path("open/log"), Some(4711), Some(4711)).unwrap();
    assert!(refused("open/log").contains("is a symbolic link of user 4711"));
    fs::create_dir(bench.path("real")).unwrap();
    symlink(bench.path("real"), bench.path("open/dir")).unwrap();
    std::os::unix::fs::lchown(bench.path("open/dir"), Some(4711), Some(4711)).unwrap();
    assert!(refused("open/dir/log").contains("is a symbolic link of user 4711"));
    fs::write(bench.path("open/theirs"), "").unwrap();
    std::os::unix::fs::chown(bench.path("open/theirs"), Some(4711), None).unwrap();
    assert!(refused("open/theirs").contains("it belongs to user 4711"));
    fs::hard_link(bench.path("secret"), bench.path("open/hard")).unwrap();
    assert!(refused("open/hard").contains("it has other names"));
    assert!(Command::new("mkfifo").arg(bench.path("open/fifo")).status().unwrap().success());
    refused("open/fifo");
    assert_eq!(fs::read_to_string(bench.path("secret")).unwrap(), "kept");

    // The user's own link is followed.
    symlink(bench.path("real/log"), bench.path("mine")).unwrap();
    assert!(bench.as_written(&["mount", "s.yaml", "m", "--log-file", "mine"]).status.success());
    assert!(fs::read_to_string(bench.path("real/log")).unwrap().contains("mounted"));
    bench.unmount_clean();
}

/// Descriptors of removed inodes are kept while the kernel knows them, and only
/// of removed ones.
#[test]
fn what_still_has_a_name_takes_no_descriptor_of_the_daemon() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let pid = bench.status()["pid"].as_u64().unwrap();
    let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let path = |name: &str, number: u32| bench.path(&format!("m/{name}{number}"));
    let before = descriptors();
    for number in 0..200 {
        symlink("x", path("first", number)).unwrap();
        fs::hard_link(path("first", number), path("second", number)).unwrap();
        fs::remove_file(path("first", number)).unwrap();
        assert_eq!(fs::read_link(path("second", number)).unwrap().as_os_str(), "x");
    }
    let after = descriptors();
    assert!(after < before + 20, "{before} descriptors before, {after} after");
    bench.unmount_clean();
}
