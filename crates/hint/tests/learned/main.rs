//! Learned streams on a simulated zoned device, under loads that no profile knows:
//! how much is written twice, against streams by hand and none.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod device;
mod load;

use braid_hint::{Learner, Opening, Task, Written, learned_most};
use device::Device;
use load::{Load, PAGE, Step};
use std::collections::{BTreeSet, HashMap};

/// The source of a side's streams.
enum Side {
    None,
    ByHand,
    Learned(Box<Learner>),
}

/// The result of a load on a side.
struct Found {
    amplification: f64,
    streams: BTreeSet<u32>,
}

fn run(load: &Load, mut side: Side) -> Found {
    let mut device = Device::new(load.zones, load.zone_pages);
    let mut streams: HashMap<u64, u32> = HashMap::new();
    for (now_ns, step) in &load.steps {
        let now_ns = *now_ns;
        match step {
            Step::Begin { file, path, program, thread } => {
                let task = Task { program: (*program).to_owned(), thread: (*thread).to_owned() };
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
            }
            Step::Write { file, pages } => (0..*pages).for_each(|_| device.write(*file, streams[file])),
            Step::Close { file, pages } => {
                if let Side::Learned(learner) = &mut side {
                    learner.closes(*file, &Written { bytes: pages * PAGE, ..Written::default() }, now_ns);
                }
            }
            Step::Remove { file } => {
                if let Side::Learned(learner) = &mut side {
                    learner.ends(*file, now_ns);
                }
            }
            Step::End { file } => device.end(*file),
        }
    }
    Found { amplification: device.amplification(), streams: streams.into_values().collect() }
}

#[test]
fn what_is_learned_is_as_good_as_streams_by_hand() {
    let numbered = ["user0", "user1", "user2", "user3", "user4"];
    let named = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy"];
    for (load, zones, most) in [
        (load::log_store(), 1, 1.02),
        (load::spool("spool", &numbered), 1, 1.02),
        (load::spool("spool of more kinds than streams", &named), 1, 1.02),
        (load::spool("spool of more kinds than streams", &named), 4, 1.05),
        (load::farm(), 1, 1.06),
    ] {
        let load = Load { zones: load.zones * zones, zone_pages: load.zone_pages / zones, ..load };
        let most_streams = learned_most(load.zones as u32);
        let none = run(&load, Side::None).amplification;
        let by_hand = run(&load, Side::ByHand).amplification;
        assert!(none > by_hand * 1.1, "{}: {none:.3} without, {by_hand:.3} by hand", load.name);
        for seed in [1, 2, 3] {
            let Found { amplification, streams } =
                run(&load, Side::Learned(Box::new(Learner::new(most_streams, seed))));
            println!(
                "{}, seed {seed}: none {none:.3}, by hand {by_hand:.3}, learned {amplification:.3}, {} streams",
                load.name,
                streams.len()
            );
            assert!(
                amplification <= by_hand * most,
                "{}: {amplification:.3}, by hand {by_hand:.3}",
                load.name
            );
        }
    }
}

#[test]
fn the_same_run_gives_the_same_streams() {
    let load = load::farm();
    let [one, other] = [5, 5].map(|seed| run(&load, Side::Learned(Box::new(Learner::new(4, seed)))));
    assert!(one.amplification == other.amplification && one.streams == other.streams);
}
