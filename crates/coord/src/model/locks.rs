//! The locks of the size and of appends, whose holders may die.

use super::{As, Dead, check, parties};
use crate::layout::FileWords;
use crate::live::{Changing, Live};
use crate::lock::lock;
use crate::party::Party;
use crate::region::PrivateWords;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use std::mem::forget;

/// A file that the keeper and two clients use.
struct World {
    live: [Live<PrivateWords, As>; 3],
    dead: Dead,
    /// The size in the index.
    index: AtomicU64,
    /// The bytes of the file.
    data: [AtomicU64; 3],
}

impl World {
    fn new() -> Arc<Self> {
        let (_, dead, members) = parties(1);
        let file = FileWords::private();
        let live = members.map(|member| Live::new(file.clone(), member));
        let data = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Self { live, dead, index: AtomicU64::new(0), data })
    }

    /// Makes the file reach to `end`, index first.
    fn grow(&self, who: usize, end: u64) {
        let store = |held: &mut Changing<'_, PrivateWords>| {
            self.index.store(end, Ordering::Relaxed);
            held.set(end);
            Ok::<_, ()>(())
        };
        self.live[who].grow(end, store).unwrap();
    }

    /// The size in the index after the death of an owner that extended the
    /// file.
    fn agree(&self) -> u64 {
        let mut held = self.live[0].change();
        if held.abandoned().is_some() {
            self.index.store(held.size(), Ordering::Relaxed);
            held.mended();
        }
        self.index.load(Ordering::Relaxed)
    }

    /// Appends a byte, after removing data that a dead owner wrote beyond the
    /// end.
    fn append(&self, who: usize, value: u64) {
        let live = &self.live[who];
        let mut appending = live.append();
        if appending.abandoned().is_some() {
            self.data[appending.at() as usize].store(0, Ordering::Relaxed);
            appending.mended();
        }
        let at = appending.at();
        let byte = &self.data[at as usize];
        assert_eq!(byte.load(Ordering::Relaxed), 0, "the byte is taken");
        byte.store(value, Ordering::Relaxed);
        self.grow(who, at + 1);
    }
}

#[test]
fn a_lock_has_one_holder_and_wakes_the_next() {
    check(3, || {
        let (words, count) = (PrivateWords::new(1), Arc::new(AtomicU64::new(0)));
        let (_, _, members) = parties(1);
        let add = |words: &PrivateWords, count: &AtomicU64, party: &As| {
            let _locked = lock(words, 0, party);
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        };
        let [keeper, client, other] = members;
        let threads = [client, other].map(|party| {
            let (words, count) = (words.clone(), Arc::clone(&count));
            loom::thread::spawn(move || add(&words, &count, &party))
        });
        add(&words, &count, &keeper);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(count.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_lock_of_one_that_dies_goes_to_each_of_the_others_once() {
    check(3, || {
        let (words, (_, dead, [keeper, client, other])) = (PrivateWords::new(1), parties(1));
        let mended = Arc::new(AtomicU64::new(0));
        let mend = |words: &PrivateWords, party: &As, mended: &AtomicU64| {
            let mut locked = lock(words, 0, party);
            if locked.abandoned().is_some() {
                mended.store(mended.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                locked.mended();
            }
        };
        let dies = {
            let words = words.clone();
            loom::thread::spawn(move || {
                assert_eq!(client.tag().index(), 1);
                forget(lock(&words, 0, &client));
                dead.die(0);
            })
        };
        let lives = {
            let (words, mended) = (words.clone(), Arc::clone(&mended));
            loom::thread::spawn(move || mend(&words, &other, &mended))
        };
        mend(&words, &keeper, &mended);
        dies.join().unwrap();
        lives.join().unwrap();
        mend(&words, &keeper, &mended);
        assert_eq!(mended.load(Ordering::Relaxed), 1);
    });
}

/// The last step of an owner that extends the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    Lock,
    Index,
    Size,
}

#[test]
fn index_and_size_agree_after_one_dies_that_makes_the_file_longer() {
    for last in [Last::Lock, Last::Index, Last::Size] {
        check(3, move || {
            let world = World::new();
            let dies = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || {
                    let mut held = world.live[1].change();
                    if last != Last::Lock {
                        world.index.store(7, Ordering::Relaxed);
                    }
                    if last == Last::Size {
                        held.set(7);
                    }
                    forget(held);
                    world.dead.die(0);
                })
            };
            world.grow(0, 2);
            dies.join().unwrap();
            let size = world.live[0].size();
            assert_eq!(world.agree(), size);
            assert!(size == 2 || size == 7 && last == Last::Size);
            world.grow(0, 8);
            assert_eq!((world.live[0].size(), world.agree()), (8, 8));
        });
    }
}

/// The last step of an owner that appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Append {
    Lock,
    Data,
    Grown,
}

#[test]
fn appends_go_on_after_one_dies_that_appends() {
    for last in [Append::Lock, Append::Data, Append::Grown] {
        check(2, move || {
            let world = World::new();
            let dies = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || {
                    let appending = world.live[1].append();
                    let at = appending.at();
                    if last != Append::Lock {
                        world.data[at as usize].store(9, Ordering::Relaxed);
                    }
                    if last == Append::Grown {
                        world.grow(1, at + 1);
                    }
                    forget(appending);
                    world.dead.die(0);
                })
            };
            let lives = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.append(2, 2))
            };
            world.append(0, 1);
            dies.join().unwrap();
            lives.join().unwrap();
            let size = world.live[0].size();
            assert_eq!(size, if last == Append::Grown { 3 } else { 2 });
            let mut bytes: Vec<_> = world.data.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
            bytes.truncate(size as usize);
            bytes.sort_unstable();
            assert_eq!(bytes, if last == Append::Grown { vec![1, 2, 9] } else { vec![1, 2] });
        });
    }
}
