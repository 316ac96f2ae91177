//! Mounting, unmounting, and the mount's appearance.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Choice, Mount, config};
use std::fs;
use std::io::ErrorKind;

fn mount_line(mount: &Mount) -> String {
    let path = mount.mountpoint().to_str().unwrap();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().find(|line| line.split(' ').nth(1) == Some(path)).unwrap_or_default().to_owned()
}

#[test]
fn the_mount_table_shows_name_type_and_options() {
    let mount = Mount::new(Choice::Cached);
    let line = mount_line(&mount);
    assert!(line.starts_with("a,b\\134c\\040test "), "{line}");
    let fields: Vec<&str> = line.split(' ').collect();
    assert_eq!(fields[2], "fuse.braid");
    let options: Vec<&str> = fields[3].split(',').collect();
    for option in ["rw", "default_permissions", "allow_other"] {
        assert!(options.contains(&option), "{option} in {line}");
    }
    assert!(!options.contains(&"nodev") && !options.contains(&"nosuid"), "{line}");
}

#[test]
fn read_ahead_is_raised() {
    let mount = Mount::new(Choice::Cached);
    let stat = rustix::fs::stat(mount.mountpoint()).unwrap();
    let device = format!("{}:{}", rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let text = fs::read_to_string(format!("/sys/class/bdi/{device}/read_ahead_kb")).unwrap();
    assert_eq!(text.trim(), "4096");
}

#[test]
fn unmounting_is_refused_while_busy_and_works_later() {
    let mut mount = Mount::new(Choice::Cached);
    let file = fs::File::create(mount.path("file")).unwrap();
    let busy = mount.unmounter().unmount().unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy, "{busy}");
    assert!(busy.to_string().contains(mount.mountpoint().to_str().unwrap()), "{busy}");
    fs::write(mount.path("other"), "still served").unwrap();
    drop(file);
    // RELEASE is on its way; the mount is busy until the kernel is done.
    while let Err(error) = mount.unmounter().unmount() {
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        std::thread::yield_now();
    }
    mount.join().unwrap();
    mount.unmounter().unmount().unwrap();
    assert_eq!(mount_line(&mount), "");
}

#[test]
fn a_detached_mount_serves_open_files_to_the_end() {
    let mut mount = Mount::new(Choice::Cached);
    let mut file = fs::File::create(mount.path("file")).unwrap();
    mount.unmounter().detach().unwrap();
    assert!(!mount.path("file").exists());
    std::io::Write::write_all(&mut file, b"late").unwrap();
    drop(file);
    mount.join().unwrap();
    assert_eq!(fs::read(mount.backing("file")).unwrap(), b"late");
}

#[test]
fn a_session_that_never_ran_leaves_no_mount() {
    let (backing, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file_system = std::sync::Arc::new(common::DirFs::new(backing.path(), Choice::Cached));
    let session = braid_fuse::mount(file_system, place.path(), &config()).unwrap();
    let unmounter = session.unmounter();
    drop(session);
    fs::write(place.path().join("file"), "in the directory beneath").unwrap();
    unmounter.unmount().unwrap();
}

#[test]
fn what_others_mounted_is_left_alone() {
    let mut mount = Mount::new(Choice::Cached);
    let place = mount.mountpoint().to_owned();
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::empty()).unwrap();
    rustix::mount::mount("other", &place, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let unmounted = mount.unmounter().unmount();
    let served = mount.join();
    let other = mount_line(&mount);
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(other.contains("tmpfs"), "{other}");
    unmounted.unwrap();
    served.unwrap();
}

#[test]
fn a_dead_mount_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    // The kernel ends a session when its last descriptor goes; the mount stays.
    let device = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
    let data = std::ffi::CString::new(format!("fd={fd},rootmode=40000,user_id=0,group_id=0")).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("dead", place.path(), "fuse", flags, data.as_c_str()).unwrap();
    drop(device);
    assert!(fs::metadata(place.path()).is_err());

    let backing = tempfile::tempdir().unwrap();
    let file_system = std::sync::Arc::new(common::DirFs::new(backing.path(), Choice::Cached));
    let session = braid_fuse::mount(file_system, place.path(), &config()).unwrap();
    let unmounter = session.unmounter();
    let server = std::thread::spawn(move || session.run());
    fs::write(place.path().join("file"), "served").unwrap();
    unmounter.detach().unwrap();
    server.join().unwrap().unwrap();
}

/// Runs as another user, in a process of its own.
#[test]
#[ignore = "started by without_privileges_the_helper_mounts"]
fn unprivileged_child() {
    let (backing, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut config = config();
    config.allow_other = std::env::var_os("BRAID_TEST_ALLOW_OTHER").is_some();
    let file_system = std::sync::Arc::new(common::DirFs::new(backing.path(), Choice::Passthrough));
    let session = braid_fuse::mount(file_system, place.path(), &config).unwrap();
    let unmounter = session.unmounter();
    let server = std::thread::spawn(move || session.run());
    fs::write(place.path().join("file"), "mine").unwrap();
    assert_eq!(fs::read(backing.path().join("file")).unwrap(), b"mine");
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(place.path().to_str().unwrap())).unwrap().to_owned();
    println!("mounted {line}");
    unmounter.detach().unwrap();
    server.join().unwrap().unwrap();
}

/// Starts the test above as "nobody", with a device that users may open, as
/// distributions set it up.
fn run_unprivileged(environment: &[(&str, &str)]) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let script = "mknod -m 666 $DIRECTORY/fuse c 10 229 && mount --bind $DIRECTORY/fuse /dev/fuse && \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups env \"$@\"";
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args(environment.iter().map(|(name, value)| format!("{name}={value}")))
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "unprivileged_child"])
        .env("DIRECTORY", directory.path())
        .current_dir("/")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn without_privileges_the_helper_mounts() {
    let (ok, text) = run_unprivileged(&[]);
    assert!(ok, "{text}");
    let line = text.lines().find(|line| line.contains("mounted ")).unwrap();
    assert!(line.contains("a,b\\134c\\040test ") && line.contains(" fuse.braid "), "{line}");
    assert!(line.contains("nosuid,nodev"), "{line}");
}

#[test]
fn without_the_helper_the_error_says_what_to_install() {
    let (ok, text) = run_unprivileged(&[("PATH", "/nonexistent")]);
    assert!(!ok && text.contains("install the package fuse3"), "{text}");
}

#[test]
fn allow_other_without_permission_says_where_to_give_it() {
    let allowed =
        fs::read_to_string("/etc/fuse.conf").is_ok_and(|text| text.lines().any(|l| l == "user_allow_other"));
    let (ok, text) = run_unprivileged(&[("BRAID_TEST_ALLOW_OTHER", "1")]);
    assert_eq!(ok, allowed, "{text}");
    assert!(allowed || text.contains("add the line user_allow_other to /etc/fuse.conf"), "{text}");
}
