//! Processes that share words, and die: each test starts itself again as a
//! client, which uses the same words and is killed or ends.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::ObjectId;
use braid_coord::{
    Barrier, CopyStats, CopySteps, FileWords, Live, Member, Moving, OwnerTag, Process, RangeSpan, ReadRegion,
    Region, Registered, Running, SharedWords, SharedWordsView, VolumeShape, VolumeWords, WriterSlots,
    carry_out,
};
use std::cell::RefCell;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

type Words = Arc<SharedWords>;
type As = Member<Words, Running>;

const SHAPE: VolumeShape = VolumeShape { owners: 4, counts: 2, slots: 4 };
const RANGE_SIZE: u64 = 64;
/// Words of the range; each counts as one byte of the file for chunks.
const BYTES: usize = 64;
/// The contents of a punched tier.
const NOTHING: u64 = u64::MAX;

/// Names the words that a client shares, by the descriptors of its parent.
const SHARED: &str = "BRAID_COORD_SHARED";
/// Written by a client when it has reached the point that its parent waits for.
const READY: &str = "ready";

/// The words of a volume, some of which this process may store to.
#[derive(Clone)]
struct OwnWords {
    words: Words,
    own: Range<usize>,
}

impl ReadRegion for OwnWords {
    fn count(&self) -> usize {
        self.words.count()
    }

    fn load(&self, at: usize) -> u64 {
        self.words.load(at)
    }

    fn wait(&self, at: usize, expected: u64, timeout: Option<Duration>) -> bool {
        self.words.wait(at, expected, timeout)
    }
}

impl Region for OwnWords {
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(self.own.contains(&at), "a store to a word of others");
        self.words.word(at)
    }

    fn wake(&self, at: usize, count: u32) {
        self.words.wake(at, count);
    }
}

/// A process with its view of a volume and its single file.
struct Side {
    barrier: Barrier<OwnWords, As>,
    slots: WriterSlots<OwnWords, As>,
    moving: Moving<Words, As>,
    live: Live<Words, As>,
    tiers: Tiers,
}

/// Two tiers with one range, and the range's entry: tier and version.
#[derive(Clone)]
struct Tiers(Words);

/// The words shared by all: of the volume, of the file, of the tiers.
struct Shared([Words; 3]);

impl Shared {
    fn make() -> Self {
        let make = |words| Arc::new(SharedWords::create("braid-coord-test", words).unwrap());
        let shared = Self([make(SHAPE.words()), make(FileWords::<Words>::WORDS), make(1 + 2 * BYTES)]);
        VolumeWords::format(Arc::clone(&shared.0[0]), SHAPE).unwrap();
        FileWords::format(Arc::clone(&shared.0[1])).unwrap();
        shared
    }

    /// The words that a client inherited.
    fn inherited(names: &str) -> Self {
        let open = |name: &str| {
            let file = OpenOptions::new().read(true).write(true).open(name).unwrap();
            Arc::new(SharedWords::open(file.into()).unwrap())
        };
        Self(names.split(':').map(open).collect::<Vec<_>>().try_into().unwrap())
    }

    fn names(&self) -> String {
        let name = |words: &Words| format!("/proc/{}/fd/{}", std::process::id(), words.as_fd().as_raw_fd());
        self.0.each_ref().map(name).join(":")
    }

    fn volume(&self) -> VolumeWords<Words> {
        VolumeWords::attach(Arc::clone(&self.0[0])).unwrap()
    }

    fn side(&self, tag: OwnerTag) -> Side {
        let member = Member::new(self.volume(), tag, Running);
        let own = if tag == OwnerTag::KEEPER { 0..SHAPE.words() } else { SHAPE.own_words(tag) };
        let words = OwnWords { words: Arc::clone(&self.0[0]), own };
        let volume = VolumeWords::attach(words).unwrap();
        let file = FileWords::attach(Arc::clone(&self.0[1])).unwrap();
        Side {
            barrier: Barrier::new(volume.clone(), member.clone()),
            slots: WriterSlots::new(volume, member.clone()),
            moving: Moving::new(file.clone(), member.clone()),
            live: Live::new(file, member),
            tiers: Tiers(Arc::clone(&self.0[2])),
        }
    }

    /// Starts this test again, as a client.
    fn start(&self, test: &str) -> Client {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(SHARED, self.names())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let process = Process { pid: child.id(), start: braid_sys::process_start(child.id()).unwrap() };
        let keeper = Member::new(self.volume(), OwnerTag::KEEPER, Running);
        let tag = self.volume().register(process, &keeper).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{}", tag.to_word()).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Client { child, lines }
    }
}

/// A client, as seen by its parent.
struct Client {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Client {
    fn wait_ready(&mut self) {
        let mut line = String::new();
        while !line.trim_end().ends_with(READY) {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the client has ended");
        }
    }

    /// Kills it without waiting for it: its process id stays.
    fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    fn wait_success(mut self) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client's side, if this process is the client of a test.
fn client() -> Option<Side> {
    let names = std::env::var(SHARED).ok()?;
    let mut tag = String::new();
    std::io::stdin().read_line(&mut tag).unwrap();
    let tag = OwnerTag::from_word(tag.trim().parse().unwrap()).unwrap();
    Some(Shared::inherited(&names).side(tag))
}

/// Notifies the parent, and waits to be killed.
fn await_death() -> ! {
    println!("{READY}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(1);
}

impl Tiers {
    fn byte(&self, entry: u64, byte: usize) -> &AtomicU64 {
        self.0.word(1 + (entry % 2) as usize * BYTES + byte)
    }

    fn entry(&self) -> u64 {
        self.0.load(0)
    }
}

impl Side {
    fn span() -> RangeSpan {
        RangeSpan::new(ObjectId([1; 16]), &(0..1))
    }

    /// Writes a value to some bytes of the range.
    fn write(&self, bytes: Range<usize>, value: u64) {
        let _entered = self.barrier.enter();
        let written = bytes.start as u64..bytes.end as u64;
        let _writing = self.moving.write(&self.slots, Self::span(), written, RANGE_SIZE);
        let entry = self.tiers.entry();
        bytes.for_each(|byte| self.tiers.byte(entry, byte).store(value, Ordering::Release));
    }

    fn read(&self, byte: usize) -> u64 {
        loop {
            let (switches, entry) = (self.moving.switches(), self.tiers.entry());
            let value = self.tiers.byte(entry, byte).load(Ordering::Acquire);
            fence(Ordering::Acquire);
            if self.moving.switches() == switches || self.tiers.entry() == entry {
                return value;
            }
        }
    }

    /// Moves the range to the other tier, and punches the source, beside
    /// writers.
    fn relocate(&self) {
        self.relocate_and(&std::thread::yield_now);
    }

    /// As [`relocate`](Self::relocate); does something after each copy.
    fn relocate_and(&self, copied: &dyn Fn()) -> CopyStats {
        let this = self.moving.begin(0).unwrap();
        let steps = Copying { tiers: &self.tiers, this: &this, copied };
        let stats = carry_out(&steps, &self.slots, Self::span(), &this).unwrap();
        let left = self.tiers.entry() + 1;
        (0..BYTES).for_each(|byte| self.tiers.byte(left, byte).store(NOTHING, Ordering::Release));
        stats
    }
}

struct Copying<'a> {
    tiers: &'a Tiers,
    this: &'a Registered<Words, As>,
    copied: &'a dyn Fn(),
}

impl CopySteps for Copying<'_> {
    type Hold<'a>
        = ()
    where
        Self: 'a;
    type Error = Infallible;

    fn hold(&self) -> Result<(), Infallible> {
        assert!(!self.this.is_cancelled());
        Ok(())
    }

    fn runs(&self, chunks: u64) -> Vec<u64> {
        vec![chunks]
    }

    fn copy(&self, (): &(), chunks: u64, _: bool) -> Result<(), Infallible> {
        let from = self.tiers.entry();
        for byte in (0..BYTES).filter(|byte| chunks >> byte & 1 != 0) {
            let value = self.tiers.byte(from, byte).load(Ordering::Acquire);
            self.tiers.byte(from + 1, byte).store(value, Ordering::Release);
        }
        Ok(())
    }

    fn copied(&self) {
        (self.copied)();
    }

    fn sync(&self, (): &()) -> Result<(), Infallible> {
        std::thread::yield_now();
        Ok(())
    }

    fn switch(&self, (): &()) -> Result<(), Infallible> {
        self.tiers.0.word(0).fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

#[test]
fn what_a_killed_client_held_is_cleared_by_those_who_wait() {
    if let Some(side) = client() {
        let _entered = side.barrier.enter();
        let _claim = side.slots.claim(Side::span());
        let _size = side.live.change();
        let _end = side.live.append();
        await_death();
    }
    let shared = Shared::make();
    let keeper = shared.side(OwnerTag::KEEPER);
    let mut client = shared.start("what_a_killed_client_held_is_cleared_by_those_who_wait");
    client.wait_ready();
    let mut asked = 0;
    let frozen = keeper.barrier.freeze(|| {
        asked += 1;
        asked > 3
    });
    assert!(frozen.is_none(), "it lives");
    client.kill();
    assert!(keeper.barrier.freeze(|| false).is_some());
    assert_eq!(keeper.slots.deaths(), 1, "its claim went with its count");
    keeper.slots.drain(Side::span());
    assert!(keeper.live.change().abandoned().is_some());
    assert!(keeper.live.append().abandoned().is_some());
}

#[test]
fn a_drain_ends_when_the_client_is_killed_that_it_waits_for() {
    if let Some(side) = client() {
        let _claim = side.slots.claim(Side::span());
        await_death();
    }
    let shared = Shared::make();
    let keeper = shared.side(OwnerTag::KEEPER);
    let mut client = shared.start("a_drain_ends_when_the_client_is_killed_that_it_waits_for");
    client.wait_ready();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| keeper.slots.drain(Side::span()));
        client.kill();
        drain.join().unwrap();
    });
    assert_eq!(keeper.slots.deaths(), 1);
}

#[test]
fn no_write_is_lost_between_processes() {
    const ROUNDS: u64 = 20_000;
    if let Some(side) = client() {
        for value in 1..=ROUNDS {
            let first = (value as usize * 7) % BYTES;
            side.write(first..(first + 9).min(BYTES), value);
            assert_eq!(side.read(first), value, "what was written is gone");
        }
        side.write(0..BYTES, ROUNDS);
        return;
    }
    let shared = Shared::make();
    let keeper = shared.side(OwnerTag::KEEPER);
    let client = shared.start("no_write_is_lost_between_processes");
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| client.wait_success());
        let mut moves = 0;
        while !ended.is_finished() {
            keeper.relocate();
            moves += 1;
            if moves % 64 == 0 {
                drop(keeper.barrier.freeze(|| false).unwrap());
            }
        }
        ended.join().unwrap();
    });
    assert!((0..BYTES).all(|byte| keeper.read(byte) == ROUNDS));
    assert_eq!(keeper.slots.deaths(), 0);
}

#[test]
fn clients_that_are_killed_while_they_write_hold_nothing_up() {
    if let Some(side) = client() {
        println!("{READY}");
        for value in 1.. {
            side.live.change().set(value);
            side.write(0..BYTES, value);
        }
    }
    let shared = Shared::make();
    let keeper = shared.side(OwnerTag::KEEPER);
    for round in 0..8 {
        let mut client = shared.start("clients_that_are_killed_while_they_write_hold_nothing_up");
        client.wait_ready();
        // It is killed somewhere in its writes, after a move or two.
        (0..=round).for_each(|_| keeper.relocate());
        client.kill();
        keeper.relocate();
        assert!(keeper.barrier.freeze(|| false).is_some());
        client.child.wait().unwrap();
        let left: Vec<_> = (0..BYTES).map(|byte| keeper.read(byte)).collect();
        keeper.relocate();
        let moved: Vec<_> = (0..BYTES).map(|byte| keeper.read(byte)).collect();
        assert_eq!(left, moved, "a move changed what the dead left");
        assert!(left.iter().all(|value| *value != NOTHING));
        keeper.live.change().set(0);
    }
}

#[test]
fn a_move_copies_again_what_a_client_wrote_that_is_killed_in_its_write() {
    if let Some(side) = client() {
        // The move is under way when there is more to read.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let _writing = side.moving.write(&side.slots, Side::span(), 0..RANGE_SIZE, RANGE_SIZE);
        let entry = side.tiers.entry();
        (0..BYTES / 2).for_each(|byte| side.tiers.byte(entry, byte).store(7, Ordering::Release));
        await_death();
    }
    let shared = Shared::make();
    let keeper = shared.side(OwnerTag::KEEPER);
    let client = shared.start("a_move_copies_again_what_a_client_wrote_that_is_killed_in_its_write");
    let client = RefCell::new(Some(client));
    let stats = keeper.relocate_and(&|| {
        if let Some(mut client) = client.take() {
            writeln!(client.child.stdin.as_mut().unwrap()).unwrap();
            client.wait_ready();
            client.kill();
        }
    });
    assert_eq!(stats, CopyStats { passes: 2, locked: false });
    assert!((0..BYTES).all(|byte| keeper.read(byte) == if byte < BYTES / 2 { 7 } else { 0 }));
}

#[test]
fn a_client_that_may_only_load_sees_the_file() {
    let shared = Shared::make();
    let keeper = shared.side(OwnerTag::KEEPER);
    let view = SharedWordsView::open(shared.0[1].read_only_fd().unwrap()).unwrap();
    let file = FileWords::attach(&view).unwrap();
    let (moving, live) = (Moving::new(file.clone(), ()), Live::new(file, ()));
    keeper.live.change().set(5);
    keeper.live.touch_mtime(9);
    let this = keeper.moving.begin(0).unwrap();
    assert_eq!((live.size(), live.mtime_ns(), moving.is_active()), (5, Some(9), true));
    drop(this);
    keeper.relocate();
    assert_eq!((moving.switches(), moving.is_active()), (1, false));
}
