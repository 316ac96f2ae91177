//! Loads that no profile knows, as steps.

use braid_contract::SplitMix;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4 << 10;
const MIB: u64 = (1 << 20) / PAGE;

/// A step of a load.
pub(crate) enum Step {
    Begin {
        file: u64,
        path: String,
        program: &'static str,
        thread: &'static str,
    },
    Write {
        file: u64,
        pages: u64,
    },
    Close {
        file: u64,
        pages: u64,
    },
    /// The file is removed.
    Remove {
        file: u64,
    },
    /// Its pages are gone.
    End {
        file: u64,
    },
}

/// A load: its steps, with the time of each in nanoseconds, and its files' streams by
/// hand, of which the last is for those that live longest.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<(u64, Step)>,
    pub(crate) by_hand: fn(&str) -> u32,
    pub(crate) zones: usize,
    pub(crate) zone_pages: usize,
}

/// Makes the steps of a load: turns of the same length.
struct Maker {
    steps: Vec<(u64, Step)>,
    random: SplitMix,
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    gone: BinaryHeap<Reverse<(u64, u64)>>,
    files: u64,
    turn: u64,
    turn_ns: u64,
    /// Turns after which the pages of files that were removed since are gone.
    batch: u64,
    writer: (&'static str, &'static str),
}

impl Maker {
    /// So many turns in a second; pages of files that were removed are gone once a second.
    fn new(seed: u64, pace: u64) -> Self {
        Self {
            steps: Vec::new(),
            random: SplitMix::new(seed),
            ends: BinaryHeap::new(),
            gone: BinaryHeap::new(),
            files: 0,
            turn: 0,
            turn_ns: 1_000_000_000 / pace,
            batch: pace,
            writer: ("server", "server"),
        }
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most - least)
    }

    fn step(&mut self, step: Step) {
        self.steps.push((self.turn * self.turn_ns, step));
    }

    /// Begins a file that is removed after so many turns.
    fn begin(&mut self, path: String, lives: u64) -> u64 {
        self.files += 1;
        let (file, (program, thread)) = (self.files, self.writer);
        self.step(Step::Begin { file, path, program, thread });
        self.ends.push(Reverse((self.turn + lives, file)));
        file
    }

    /// Writes a file at once.
    fn write(&mut self, path: String, pages: u64, lives: u64) {
        let file = self.begin(path, lives);
        self.step(Step::Write { file, pages });
        self.step(Step::Close { file, pages });
    }

    fn end_turn(&mut self) {
        self.turn += 1;
        while let Some(Reverse((at, file))) = self.ends.peek().copied().filter(|next| next.0.0 <= self.turn) {
            self.ends.pop();
            self.gone.push(Reverse(((at + 1).next_multiple_of(self.batch), file)));
            self.step(Step::Remove { file });
        }
        while let Some(Reverse((_, file))) = self.gone.peek().copied().filter(|next| next.0.0 <= self.turn) {
            self.gone.pop();
            self.step(Step::End { file });
        }
    }
}

/// A log-structured store: segments die when they are cleaned, their live rest goes to segments
/// that live long, and a manifest is written anew.
pub(crate) fn log_store() -> Load {
    let mut make = Maker::new(7, 40);
    for number in 0..2000_u64 {
        let lives = make.between(10, 30);
        make.write(format!("store/seg-{number:06}.log"), MIB, lives);
        if number % 4 == 0 {
            let lives = make.between(500, 900);
            make.write(format!("store/old-{number:06}.log"), MIB, lives);
        }
        make.write(format!("store/MANIFEST-{number}"), 24, 2);
        make.end_turn();
    }
    let by_hand = |path: &str| match path {
        path if path.contains("seg-") => 1,
        path if path.contains("MANIFEST") => 2,
        _ => 3,
    };
    Load { name: "log store", steps: make.steps, by_hand, zones: 42, zone_pages: 8 * MIB as usize }
}

/// A spool of mail: copies to be looked through, mail that is fetched soon, and mail
/// that is kept.
pub(crate) fn spool(name: &'static str, users: &[&str]) -> Load {
    let mut make = Maker::new(8, 100);
    for number in 0..8000_u64 {
        let (user, id) = (make.random.below(users.len() as u64) as usize, 1_700_000_000 + number);
        let pages = make.between(16, 128).div_ceil(PAGE >> 10);
        let dir = format!("mail/{}", users[user]);
        make.write(format!("{dir}/tmp/{id}.M{user}P{number}.host"), pages, 10);
        let lives = make.between(50, 200);
        make.write(format!("{dir}/new/{id}.M{user}P{number}.host"), pages, lives);
        if number % 4 == 0 {
            let lives = make.between(2000, 4000);
            make.write(format!("{dir}/cur/{id}.M{user}P{number}.host:2,S"), pages, lives);
        }
        make.end_turn();
    }
    let by_hand = |path: &str| match path {
        path if path.contains("/tmp/") => 1,
        path if path.contains("/new/") => 2,
        _ => 3,
    };
    Load { name, steps: make.steps, by_hand, zones: 28, zone_pages: 4 * MIB as usize }
}

/// A farm that builds: compilers write temporary files and objects, which the next
/// build of the same unit replaces; a cache keeps the results, by hash; linkers write programs; and
/// each builder appends to a log. No constant of the learner is chosen by it.
pub(crate) fn farm() -> Load {
    let mut make = Maker::new(9, 50);
    let mut logs: Vec<Option<(u64, u64)>> = vec![None; 4];
    for number in 0..6000_u64 {
        let builder = make.between(0, 4);
        let (unit, chance) = (make.between(0, 300), make.random.below(u64::MAX));
        make.writer = ("cc1", "cc1");
        let pages = make.between(4, 60);
        make.write(format!("tmp/cc{chance:012x}.s"), pages, 3);
        make.writer = ("as", "as");
        let (pages, lives) = (make.between(2, 30), make.between(100, 500));
        make.write(format!("build/{builder}/src/unit_{unit}.o"), pages, lives);
        if number % 3 == 0 {
            make.writer = ("ccache", "ccache");
            let (hash, lives) = (make.random.below(u64::MAX), make.between(2000, 5000));
            make.write(format!("cache/{:02x}/{hash:016x}.o", hash & 255), pages, lives);
        }
        if number % 25 == 0 {
            make.writer = ("ld", "ld");
            let (pages, lives) = (make.between(500, 900), make.between(200, 800));
            make.write(format!("build/{builder}/bin/program"), pages, lives);
        }
        // A log is open while it grows, and is rotated.
        make.writer = ("builder", "logger");
        let log = match logs[builder as usize] {
            Some((file, _)) => file,
            None => make.begin(format!("log/builder-{builder}.log"), 4000),
        };
        let pages = logs[builder as usize].map_or(0, |log| log.1) + 1;
        make.step(Step::Write { file: log, pages: 1 });
        logs[builder as usize] = (pages < 256).then_some((log, pages));
        if pages == 256 {
            make.step(Step::Close { file: log, pages });
        }
        make.end_turn();
    }
    let by_hand = |path: &str| match path {
        path if path.starts_with("tmp/") => 1,
        path if path.ends_with("/program") => 2,
        path if path.starts_with("build/") => 3,
        path if path.starts_with("log/") => 4,
        _ => 5,
    };
    Load { name: "build farm", steps: make.steps, by_hand, zones: 54, zone_pages: 4 * MIB as usize }
}
