//! Times of birth, which `statx` asks for. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, RANGE, pattern, write_back, write_ranges};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, linkat, mknodat, statx};
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 7] = ["plain", "spread", "unnamed", "dir", "dir/link", "dir/pipe", "dir/device"];

/// The time of birth; `None` if it is not known.
fn birth(path: &Path) -> Option<(i64, u32)> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).unwrap();
    let known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    known.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// The volume's answer, by a request of its own.
fn asked_anew(file: impl AsFd) -> Statx {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, wanted).unwrap();
    assert_eq!(found.stx_mask & wanted.bits(), wanted.bits());
    found
}

/// Everything that `statx` and `stat` have in common.
#[track_caller]
fn agree(file: &File) {
    let (found, stat) = (asked_anew(file), file.metadata().unwrap());
    let of_statx = (found.stx_size, found.stx_blocks, u32::from(found.stx_mode), found.stx_nlink);
    assert_eq!(of_statx, (stat.size(), stat.blocks(), stat.mode(), stat.nlink() as u32));
    assert_eq!((found.stx_ino, found.stx_uid, found.stx_gid), (stat.ino(), stat.uid(), stat.gid()));
    assert_eq!(u64::from(found.stx_blksize), stat.blksize());
    let times = [found.stx_atime, found.stx_mtime, found.stx_ctime];
    let times = times.map(|time| (time.tv_sec, i64::from(time.tv_nsec)));
    let of_stat = [
        (stat.atime(), stat.atime_nsec()),
        (stat.mtime(), stat.mtime_nsec()),
        (stat.ctime(), stat.ctime_nsec()),
    ];
    assert_eq!(times, of_stat);
}

fn make_all(mount: &Path) {
    fs::write(mount.join("plain"), "plain").unwrap();
    write_ranges(&mount.join("spread"), &pattern(1, 9 * RANGE));
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file: File = rustix::fs::open(mount, flags, Mode::RUSR | Mode::WUSR).unwrap().into();
    agree(&file);
    linkat(&file, "", CWD, mount.join("unnamed"), AtFlags::EMPTY_PATH).unwrap();
    fs::create_dir(mount.join("dir")).unwrap();
    symlink("../plain", mount.join("dir/link")).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, mount.join("dir/pipe"), FileType::Fifo, mode, 0).unwrap();
    let null = rustix::fs::makedev(1, 3);
    mknodat(CWD, mount.join("dir/device"), FileType::CharacterDevice, mode, null).unwrap();
}

/// Checks all times of birth against home's; answers them.
#[track_caller]
fn births(bench: &Bench) -> Vec<(i64, u32)> {
    let birth_of = |name| {
        let found = birth(&bench.path("m").join(name));
        assert_eq!(found, birth(&bench.path("a").join(name)), "{name}");
        found.unwrap()
    };
    NAMES.into_iter().map(birth_of).collect()
}

#[test]
fn a_file_is_as_old_as_its_home_inode_wherever_its_data_is() {
    let Some(bench) = Bench::new() else { return };
    if birth(&bench.path("a")).is_none() {
        return braid_testkit::skipped("a file system with times of birth");
    }
    let mount = bench.path("m");
    for mode in ["writeback", "passthrough", "direct"] {
        bench.ok(&["mount", "s.yaml", "m", "--cache", mode]);
        make_all(&mount);
        let made = births(&bench);
        // Later writes do not make it younger.
        let file = File::options().read(true).write(true).open(mount.join("plain")).unwrap();
        for at in 0..9 {
            write_back(&file, &pattern(at, RANGE), at * RANGE as u64);
        }
        agree(&file);
        file.sync_all().unwrap();
        agree(&file);
        file.set_permissions(Permissions::from_mode(0o4755)).unwrap();
        agree(&file);
        drop(file);
        fs::rename(mount.join("spread"), mount.join("moved")).unwrap();
        fs::hard_link(mount.join("moved"), mount.join("spread")).unwrap();
        agree(&File::open(mount.join("spread")).unwrap());
        agree(&File::open(mount.join("dir")).unwrap());
        assert_eq!(births(&bench), made, "{mode}");
        assert!(bench.on("m/plain", "slow") > 0 || mode == "passthrough", "{mode}");
        bench.unmount_clean();

        bench.ok(&["mount", "s.yaml", "m", "--cache", mode]);
        assert_eq!(births(&bench), made, "{mode}");
        let said = Command::new("stat").args(["-c", "%W"]).arg(mount.join("spread")).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), made[1].0.to_string());
        for name in ["plain", "spread", "moved", "unnamed"] {
            fs::remove_file(mount.join(name)).unwrap();
        }
        fs::remove_dir_all(mount.join("dir")).unwrap();
        bench.unmount_clean();
    }
}
