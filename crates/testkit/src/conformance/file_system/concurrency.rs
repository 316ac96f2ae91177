//! Several threads change names in the same directories, and no caller
//! serialises them.

use super::bed::{Bed, ROOT, errno};
use super::{Case, always};
use braid_contract::{Errno, InodeId, RenameMode, Result};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads at work.
const THREADS: usize = 4;
/// Times that each of them does its work.
const ROUNDS: usize = 60;

pub(super) const CASES: [Case; 8] = [
    ("of several that make a name one does", always, of_several_that_make_a_name_one_does),
    ("of several that remove a name one does", always, of_several_that_remove_a_name_one_does),
    ("a name that is replaced is never away", always, a_name_that_is_replaced_is_never_away),
    ("files move to and fro between directories", always, files_move_to_and_fro),
    ("directories do not come into one another", always, directories_do_not_come_into_one_another),
    ("links are counted", always, links_are_counted),
    ("a directory that got a file is not removed", always, a_directory_that_got_a_file_is_not_removed),
    ("what is looked up is forgotten beside its removal", always, looked_up_beside_removal),
];

/// Runs `work` in every thread, with the number of the thread.
fn in_threads(work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

/// Takes a result that may be one of these errors; answers whether it was none.
#[track_caller]
fn unless<T>(result: Result<T>, errors: &[Errno]) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => {
            assert!(errors.contains(&error.errno()), "{error}");
            false
        }
    }
}

fn of_several_that_make_a_name_one_does(bed: &Bed<'_>) {
    let made = AtomicUsize::new(0);
    in_threads(|thread| {
        for round in 0..ROUNDS {
            let name = format!("name-{round}");
            let one = match thread % 3 {
                0 => bed.try_create(ROOT, &name, true).map(|(_, opened)| bed.close(opened.handle)),
                1 => bed.try_mkdir(ROOT, &name).map(drop),
                _ => bed.fs.symlink(&bed.caller, ROOT, name.as_ref(), "x".as_ref()).map(drop),
            };
            made.fetch_add(usize::from(unless(one, &[Errno::EEXIST])), Ordering::Relaxed);
        }
    });
    assert_eq!(made.into_inner(), ROUNDS);
    assert_eq!(bed.names(ROOT).len(), ROUNDS);
}

fn of_several_that_remove_a_name_one_does(bed: &Bed<'_>) {
    (0..ROUNDS).for_each(|round| _ = bed.file(ROOT, &format!("name-{round}"), b"data"));
    let removed = AtomicUsize::new(0);
    in_threads(|thread| {
        for round in 0..ROUNDS {
            let name = format!("name-{round}");
            let one = match thread % 2 {
                0 => bed.unlink(ROOT, &name),
                _ => bed.rename((ROOT, &name), (ROOT, &format!("of-{thread}-{round}")), RenameMode::Replace),
            };
            removed.fetch_add(usize::from(unless(one, &[Errno::ENOENT])), Ordering::Relaxed);
        }
    });
    assert_eq!(removed.into_inner(), ROUNDS);
    assert!(bed.names(ROOT).iter().all(|name| name.starts_with("of-")));
}

fn a_name_that_is_replaced_is_never_away(bed: &Bed<'_>) {
    const LEN: usize = 10_000;
    bed.file(ROOT, "name", &[0; LEN]);
    in_threads(|thread| {
        let own = format!("of-{thread}");
        for round in 0..ROUNDS {
            if thread == 0 {
                // All of one writer's, whichever.
                let found = bed.content(ROOT, "name");
                assert_eq!(found.len(), LEN, "round {round}");
                assert!(found.iter().all(|byte| *byte == found[0]), "round {round}");
                continue;
            }
            let ino = bed.file(ROOT, &own, &[thread as u8; LEN]);
            bed.rename((ROOT, &own), (ROOT, "name"), RenameMode::Replace).unwrap();
            bed.fs.forget(ino, 1);
        }
    });
    assert_eq!(bed.names(ROOT), ["name"]);
    assert_eq!(bed.attr(bed.lookup(ROOT, "name")).nlink, 1);
}

fn files_move_to_and_fro(bed: &Bed<'_>) {
    let dirs = ["a", "b"].map(|name| bed.mkdir(ROOT, name));
    let names: Vec<String> = (0..6).map(|n| format!("file-{n}")).collect();
    names.iter().for_each(|name| _ = bed.file(dirs[0], name, name.as_bytes()));
    in_threads(|thread| {
        // Half of the threads one way, half of them the other.
        let (from, to) = (dirs[thread % 2], dirs[1 - thread % 2]);
        for _ in 0..ROUNDS {
            for name in &names {
                unless(bed.rename((from, name), (to, name), RenameMode::Replace), &[Errno::ENOENT]);
            }
        }
    });
    let mut found: Vec<String> = dirs.iter().flat_map(|dir| bed.names(*dir)).collect();
    found.sort();
    assert_eq!(found, names, "each in one directory");
    for dir in dirs {
        for name in bed.names(dir) {
            assert_eq!(bed.content(dir, &name), name.as_bytes());
        }
    }
}

fn directories_do_not_come_into_one_another(bed: &Bed<'_>) {
    let dirs = ["a", "b"].map(|name| bed.mkdir(ROOT, name));
    let start = Barrier::new(2);
    for round in 0..ROUNDS {
        let into = |from: usize| -> bool {
            let to = 1 - from;
            start.wait();
            let names = ["a", "b"];
            let moved = bed.rename((ROOT, names[from]), (dirs[to], names[from]), RenameMode::Replace);
            unless(moved, &[Errno::EINVAL, Errno::ENOENT])
        };
        let moved: [bool; 2] = std::thread::scope(|scope| {
            let other = scope.spawn(|| into(1));
            [into(0), other.join().unwrap()]
        });
        // Both would be in one another, and in nothing else.
        assert_eq!(moved.iter().filter(|moved| **moved).count(), 1, "round {round}: {moved:?}");
        let one = usize::from(moved[1]);
        let name = ["a", "b"][one];
        assert_eq!(bed.lookup(dirs[one], ".."), dirs[1 - one]);
        bed.rename((dirs[1 - one], name), (ROOT, name), RenameMode::Replace).unwrap();
    }
}

fn links_are_counted(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"content");
    in_threads(|thread| {
        for round in 0..ROUNDS {
            let name = format!("link-{thread}-{}", round % 5);
            unless(bed.link(file, ROOT, &name), &[Errno::EEXIST]);
            if round % 3 > 0 {
                unless(bed.unlink(ROOT, &name), &[Errno::ENOENT]);
            }
        }
    });
    assert_eq!(bed.attr(file).nlink as usize, bed.names(ROOT).len());
    assert_eq!(bed.content(ROOT, "file"), b"content");
}

fn a_directory_that_got_a_file_is_not_removed(bed: &Bed<'_>) {
    let dir: Vec<InodeId> = (0..ROUNDS).map(|round| bed.mkdir(ROOT, &format!("dir-{round}"))).collect();
    in_threads(|thread| {
        for (round, dir) in dir.iter().enumerate() {
            let (name, file) = (format!("dir-{round}"), format!("of-{thread}"));
            if thread % 2 == 0 {
                unless(bed.rmdir(ROOT, &name), &[Errno::ENOTEMPTY, Errno::ENOENT]);
                continue;
            }
            // Its number may be another inode's by now.
            let errors = [Errno::ENOENT, Errno::ESTALE, Errno::ENOTDIR];
            if unless(bed.try_create(*dir, &file, true), &errors) {
                assert_eq!(bed.lookup(ROOT, &name), *dir, "it has a file");
                assert_eq!(bed.find(*dir, &file).unwrap().attr.nlink, 1);
            }
        }
    });
}

fn looked_up_beside_removal(bed: &Bed<'_>) {
    in_threads(|thread| {
        for round in 0..ROUNDS * 4 {
            if thread % 2 == 0 {
                let made = bed.try_create(ROOT, "name", true).map(|(entry, opened)| {
                    bed.close(opened.handle);
                    bed.fs.forget(entry.attr.ino, 1);
                });
                // A create succeeds even if the name is gone again.
                unless(made, &[Errno::EEXIST]);
                unless(bed.unlink(ROOT, "name"), &[Errno::ENOENT]);
                continue;
            }
            let Ok(entry) = bed.find(ROOT, "name") else { continue };
            // Its number is valid as long as it is not forgotten.
            let found = bed.fs.getattr(&bed.caller, entry.attr.ino, None);
            if unless(found, &[Errno::ESTALE, Errno::ENOENT]) {
                let attr = bed.fs.getattr(&bed.caller, entry.attr.ino, None);
                assert!(attr.is_err() || attr.unwrap().ino == entry.attr.ino, "round {round}");
            }
            bed.fs.forget(entry.attr.ino, 1);
        }
    });
    unless(bed.unlink(ROOT, "name"), &[Errno::ENOENT]);
    assert_eq!(errno(bed.find(ROOT, "name")), Some(Errno::ENOENT));
}
