//! Learned streams on a simulated zoned device, under loads that no profile knows:
//! how much is written twice, against streams by hand and none.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::SplitMix;
use braid_hint::{Learner, Opening, Task, Written};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// Pages of a zone.
const ZONE: usize = 256;
/// Zones that are kept free for what is moved.
const KEPT_BACK: usize = 3;
/// Bytes of a page, and the time that it takes.
const PAGE: u64 = 64 << 10;
const PAGE_NS: u64 = 1_000_000;

/// What a load does, in order.
enum Step {
    Begin { file: u64, path: String, thread: &'static str },
    Write { file: u64 },
    Close { file: u64, pages: u64 },
    End { file: u64 },
}

/// A load: its steps, its files' streams by hand, and those that live long.
struct Load {
    steps: Vec<Step>,
    by_hand: fn(&str) -> u32,
    lives_long: fn(&str) -> bool,
    zones: usize,
}

/// Files with ends that lie ahead.
#[derive(Default)]
struct Maker {
    steps: Vec<Step>,
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    files: u64,
    written: u64,
}

impl Maker {
    /// Begins a file of so many pages that ends when so many more were written.
    fn begin(&mut self, path: String, thread: &'static str, lives: u64) -> u64 {
        self.files += 1;
        self.steps.push(Step::Begin { file: self.files, path, thread });
        self.ends.push(Reverse((self.written + lives, self.files)));
        self.files
    }

    fn write(&mut self, file: u64) {
        self.written += 1;
        self.steps.push(Step::Write { file });
        while let Some(Reverse((at, file))) =
            self.ends.peek().copied().filter(|next| next.0.0 <= self.written)
        {
            let _ = at;
            self.ends.pop();
            self.steps.push(Step::End { file });
        }
    }

    /// Writes files page by page in turn, and closes them.
    fn write_all(&mut self, mut files: Vec<(u64, u64)>) {
        let closes = files.clone();
        while !files.is_empty() {
            files.iter_mut().for_each(|(_, left)| *left -= 1);
            files
                .iter()
                .map(|(file, _)| *file)
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|file| self.write(file));
            files.retain(|(_, left)| *left > 0);
        }
        self.steps.extend(closes.into_iter().map(|(file, pages)| Step::Close { file, pages }));
    }
}

fn between(random: &mut SplitMix, least: u64, most: u64) -> u64 {
    least + random.below(most - least)
}

/// A log-structured store: segments die when they are cleaned, what is left of them
/// goes to segments of the cleaner, and a manifest is written anew.
fn log_store() -> Load {
    let (mut make, mut random) = (Maker::default(), SplitMix::new(7));
    for number in 0..4000_u64 {
        let mut files = Vec::new();
        let lives = between(&mut random, 1500, 4000);
        files.push((make.begin(format!("store/seg-{number:06}.log"), "writer", lives), 64));
        if number % 4 == 0 {
            let lives = between(&mut random, 30_000, 90_000);
            files.push((make.begin(format!("store/old-{number:06}.log"), "cleaner", lives), 64));
        }
        if number % 2 == 0 {
            files.push((make.begin(format!("store/MANIFEST-{number}"), "writer", 180), 6));
        }
        make.write_all(files);
    }
    Load {
        steps: make.steps,
        by_hand: |path| {
            if path.contains("seg-") {
                1
            } else if path.contains("old-") {
                2
            } else {
                3
            }
        },
        lives_long: |path| path.contains("old-"),
        zones: 76,
    }
}

/// A spool of mail: copies to be looked through, mail that is fetched soon, and mail
/// that is kept.
fn spool(dir: &str, delivers: &'static str) -> Load {
    let (mut make, mut random) = (Maker::default(), SplitMix::new(8));
    for number in 0..30_000_u64 {
        let (user, id) = (random.below(20), 1_700_000_000 + number);
        let pages = between(&mut random, 1, 8);
        let dir = format!("mail/user{user}{dir}");
        let mut files =
            vec![(make.begin(format!("{dir}/tmp/{id}.M{user}P{number}.host"), delivers, 30), pages)];
        let lives = between(&mut random, 500, 3000);
        files.push((make.begin(format!("{dir}/new/{id}.M{user}P{number}.host"), delivers, lives), pages));
        if number % 4 == 0 {
            let lives = between(&mut random, 30_000, 90_000);
            files.push((
                make.begin(format!("{dir}/cur/{id}.M{user}P{number}.host:2,S"), "imapd", lives),
                pages,
            ));
        }
        make.write_all(files);
    }
    Load {
        steps: make.steps,
        by_hand: |path| {
            if path.contains("/tmp/") {
                1
            } else if path.contains("/new/") {
                2
            } else {
                3
            }
        },
        lives_long: |path| path.contains("/cur/"),
        zones: 48,
    }
}

/// A device of which a zone is open for each stream, and that moves what is left in
/// the zone with least of it when free zones run short.
struct Device {
    /// The file of each page of each zone; 0 if it is gone.
    zones: Vec<Vec<u64>>,
    left: Vec<usize>,
    streams: Vec<u32>,
    free: Vec<usize>,
    open: HashMap<u32, usize>,
    places: HashMap<u64, Vec<(usize, usize)>>,
    written: u64,
    moved: u64,
}

impl Device {
    fn new(zones: usize) -> Self {
        Self {
            zones: vec![Vec::new(); zones],
            left: vec![0; zones],
            streams: vec![0; zones],
            free: (0..zones).collect(),
            open: HashMap::new(),
            places: HashMap::new(),
            written: 0,
            moved: 0,
        }
    }

    fn put(&mut self, file: u64, stream: u32) {
        let zone = match self.open.get(&stream) {
            Some(zone) if self.zones[*zone].len() < ZONE => *zone,
            _ => {
                let zone = self.free.pop().expect("the device is full");
                (self.streams[zone], self.left[zone]) = (stream, 0);
                self.open.insert(stream, zone);
                zone
            }
        };
        self.places.entry(file).or_default().push((zone, self.zones[zone].len()));
        self.zones[zone].push(file);
        self.left[zone] += 1;
    }

    fn write(&mut self, file: u64, stream: u32) {
        self.written += 1;
        self.put(file, stream);
        while self.free.len() < KEPT_BACK {
            let open: BTreeSet<usize> = self.open.values().copied().collect();
            let used = (0..self.zones.len()).filter(|zone| !self.zones[*zone].is_empty());
            let closed = used.filter(|zone| !open.contains(zone) || self.zones[*zone].len() == ZONE);
            let zone = closed.min_by_key(|zone| self.left[*zone]).expect("a zone is full");
            let pages = std::mem::take(&mut self.zones[zone]);
            let stream = self.streams[zone];
            self.open.retain(|_, open| *open != zone);
            for file in pages.into_iter().filter(|file| *file != 0) {
                self.places.get_mut(&file).unwrap().retain(|place| place.0 != zone);
                self.moved += 1;
                self.put(file, stream);
            }
            self.free.push(zone);
        }
    }

    fn end(&mut self, file: u64) {
        for (zone, at) in self.places.remove(&file).unwrap_or_default() {
            self.zones[zone][at] = 0;
            self.left[zone] -= 1;
        }
    }

    fn amplification(&self) -> f64 {
        (self.written + self.moved) as f64 / self.written as f64
    }
}

/// Where a side's streams come from.
enum Side {
    None,
    ByHand,
    Learned(Learner),
}

/// What a side made of a load.
struct Found {
    amplification: f64,
    /// The share of steps after which no stream was given both to files that live long
    /// and to others.
    apart_from: f64,
    streams: BTreeSet<u32>,
}

fn run(load: &Load, mut side: Side) -> Found {
    let mut device = Device::new(load.zones);
    let mut streams: HashMap<u64, u32> = HashMap::new();
    // The last stream that files were given which live long, and which do not.
    let mut given: Vec<(usize, u32, bool)> = Vec::new();
    for (at, step) in load.steps.iter().enumerate() {
        let now_ns = device.written * PAGE_NS;
        match step {
            Step::Begin { file, path, thread } => {
                let task = Task { program: "server".to_owned(), thread: (*thread).to_owned() };
                let opening = Opening { path, task: Some(&task), sync: false, direct: false };
                let stream = match &mut side {
                    Side::None => 0,
                    Side::ByHand => (load.by_hand)(path),
                    Side::Learned(learner) => {
                        let found = learner.stream_of(&opening, now_ns);
                        learner.begins(*file, &opening, now_ns);
                        found.map_or(0, |number| u32::from(number) + 1)
                    }
                };
                streams.insert(*file, stream);
                given.push((at, stream, (load.lives_long)(path)));
            }
            Step::Write { file } => device.write(*file, streams[file]),
            Step::Close { file, pages } => {
                if let Side::Learned(learner) = &mut side {
                    learner.closes(*file, &Written { bytes: pages * PAGE, ..Written::default() }, now_ns);
                }
            }
            Step::End { file } => {
                device.end(*file);
                if let Side::Learned(learner) = &mut side {
                    learner.ends(*file, now_ns);
                }
            }
        }
    }
    let mut after: (BTreeSet<u32>, BTreeSet<u32>) = Default::default();
    let mut apart_from = 0.0;
    for (at, stream, long) in given.iter().rev() {
        if if *long { &after.1 } else { &after.0 }.contains(stream) {
            apart_from = *at as f64 / load.steps.len() as f64;
            break;
        }
        if *long { &mut after.0 } else { &mut after.1 }.insert(*stream);
    }
    Found {
        amplification: device.amplification(),
        apart_from,
        streams: given.iter().map(|(_, stream, _)| *stream).collect(),
    }
}

#[test]
fn what_is_learned_is_as_good_as_streams_by_hand() {
    for (name, load) in [
        ("log store", log_store()),
        ("spool", spool("/Maildir", "smtpd")),
        ("spool of one program", spool("", "imapd")),
    ] {
        let none = run(&load, Side::None).amplification;
        let by_hand = run(&load, Side::ByHand).amplification;
        for seed in [1, 2, 3] {
            let learned = run(&load, Side::Learned(Learner::new(8, seed)));
            let (amplification, apart) = (learned.amplification, learned.apart_from);
            println!(
                "{name}, seed {seed}: none {none:.3}, by hand {by_hand:.3}, learned {amplification:.3}, \
                 apart after {:.2} % of the run, {} streams",
                apart * 100.0,
                learned.streams.len()
            );
            assert!(amplification <= by_hand * 1.1, "{name}: {amplification:.3}, by hand {by_hand:.3}");
            assert!(none > by_hand * 1.1, "{name}: {none:.3} without, {by_hand:.3} by hand");
            assert!(apart < 0.1, "{name}: short and long lives are apart after {apart:.3} of the run only");
        }
    }
}

#[test]
fn the_same_run_gives_the_same_streams() {
    let load = log_store();
    let [one, other] = [5, 5].map(|seed| run(&load, Side::Learned(Learner::new(4, seed))));
    assert!(one.amplification == other.amplification && one.streams == other.streams);
}
