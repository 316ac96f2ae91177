//! An index that no store has written, though its checksums are right.

use super::model::{id, write};
use super::{SETTINGS, SHAPE, io};
use braid_contract::{Errno, ObjectId, SplitMix, Store, Timestamp, ZonedDevice};
use braid_format::{FrameHead, FrameKind, ZoneRecord};
use braid_stores::zoned::ZonedStore;
use braid_sys::AlignedBuf;
use braid_testkit::sim::{SimClock, SimEnvironment, SimZoned, SimZones};
use std::io::{IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const BLOCK: usize = 4096;
const CASES: u64 = 3000;

/// A figure: small, a likely boundary, or any.
fn figure(random: &mut SplitMix) -> u64 {
    let near: [u64; 10] =
        [0, 1 << 12, 16 << 10, 128 << 10, 1 << 31, 1 << 32, 1 << 44, 1 << 50, 1 << 62, 1 << 63];
    match random.below(4) {
        0 => random.below(8),
        1 => random.below(64) * 2048,
        2 => random.pick(&near).wrapping_add(random.below(5)).wrapping_sub(2),
        _ => random.next_u64() >> random.below(64),
    }
}

fn record(random: &mut SplitMix) -> ZoneRecord {
    let far = random.below(8) == 0;
    let object = if far { figure(random) } else { random.below(3) };
    let (start, end) = (figure(random), figure(random));
    let (start, end) = (start.min(end), start.max(end));
    let time = |random: &mut SplitMix| Timestamp {
        secs: random.pick(&[0, 1, i64::MAX, i64::MIN]),
        nanos: random.pick(&[0, 999_999_999]),
    };
    match random.below(12) {
        0 => ZoneRecord::Label(vec![1; random.below(100) as usize]),
        1 => ZoneRecord::Removed { object },
        2 => ZoneRecord::Times { object, mtime: time(random), atime: Some(time(random)) },
        3 => ZoneRecord::Zone { zone: figure(random) as u32, stream: Some(figure(random) as u32) },
        4 => ZoneRecord::Size { object, size: end & i64::MAX as u64 },
        5 => ZoneRecord::Punched { object, start, end },
        6 => ZoneRecord::Reserved { object, start, end },
        7 => ZoneRecord::Made { object: figure(random), id: id(random.below(4) as u8) },
        8 => ZoneRecord::Made { object, id: id(random.below(4) as u8) },
        _ => {
            // Mostly where there is something.
            let zone = if far { figure(random) as u32 } else { random.below(8) as u32 };
            let at = if far { figure(random) as u32 } else { random.below(32) as u32 };
            ZoneRecord::Piece { object, start, end, zone, at }
        }
    }
}

/// A device whose index says something, and with data in some zones.
fn device_with(random: &mut SplitMix, conventional: u32) -> Arc<SimZoned> {
    let device = SimZoned::new(SimZones { zones: 10, conventional, ..SHAPE });
    let mut buf = AlignedBuf::new();
    for zone in conventional.max(2)..6 {
        let len = random.pick(&[BLOCK, 5 * BLOCK, SHAPE.capacity as usize]);
        let bytes = buf.bytes(len);
        bytes.fill(zone as u8);
        device.write(zone, 0, &[IoSlice::new(bytes)]).unwrap();
    }
    let generation = random.pick(&[1, 7, u64::MAX - 1, u64::MAX]);
    let (mut at, frames) = (0, 1 + random.below(3));
    for sequence in 0..frames {
        let mut payload = Vec::new();
        if sequence == 0 {
            (0..3).for_each(|object| {
                let id = ObjectId([object as u8; 16]);
                ZoneRecord::Made { object, id }.encode(&mut payload);
            });
        }
        (0..random.below(12)).for_each(|_| record(random).encode(&mut payload));
        let kind = if sequence == 0 { FrameKind::CheckpointEnd } else { FrameKind::Changes };
        let head =
            FrameHead { store: [1; 16], generation, salt: 3, sequence, kind, payload: payload.len() as u32 };
        let frame = head.seal(&payload, BLOCK);
        let bytes = buf.bytes(frame.len());
        bytes.copy_from_slice(&frame);
        device.write(0, at, &[IoSlice::new(bytes)]).unwrap();
        at += frame.len() as u64;
    }
    device.flush().unwrap();
    Arc::new(device)
}

fn try_open(device: &Arc<SimZoned>) -> Result<ZonedStore, Errno> {
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
    ZonedStore::open(Arc::clone(device) as _, SETTINGS, environment).map_err(|error| error.errno())
}

/// Uses all of a store. What it answers is any error that a damaged one may have.
fn use_all(store: &ZonedStore, random: &mut SplitMix) {
    let mut ids = vec![id(9)];
    store.list(&mut |id| ids.push(id)).unwrap();
    let usage = store.usage().unwrap();
    assert!(usage.available <= usage.total && usage.total < 1 << 40, "{usage:?}");
    store.zones().unwrap();
    for object in ids {
        if let Ok(stat) = store.stat(object) {
            for offset in [0, stat.size / 2, stat.size.saturating_sub(5000), figure(random)] {
                let mut bytes = vec![0; 20_000];
                _ = store.read_at(object, offset, &mut [IoSliceMut::new(&mut bytes)], io(0));
            }
            let mut at = 0;
            while let Some((start, end)) = store.next_data(object, at).unwrap() {
                assert!(start < end && at <= start);
                at = end;
            }
        }
        _ = store.write_at(object, figure(random), &[IoSlice::new(&[5; 9000])], io(1));
        _ = store.allocate(object, figure(random), figure(random), random.below(2) == 0);
        _ = store.punch(object, figure(random), figure(random));
        _ = store.sync(&[object], true);
        _ = store.truncate(object, figure(random));
    }
    // As much as it takes, so that zones are emptied.
    for number in 20..30 {
        store.create(id(number)).unwrap();
        _ = write(store, number, 0, &[7; 60_000], io(u64::from(number % 3)));
        _ = store.sync_all();
    }
    store.remove(&(0..30).map(id).collect::<Vec<_>>()).unwrap();
    _ = store.set_label(b"another");
    _ = store.sync_all();
}

#[test]
fn an_index_of_any_figures_is_refused_or_used() {
    let (mut opened, mut refused) = (0, 0);
    for case in 0..CASES {
        let mut random = SplitMix::of(1, case);
        let conventional = random.pick(&[0, 2]);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let device = device_with(&mut random, conventional);
            let store = match try_open(&device) {
                Ok(store) => store,
                Err(errno) => {
                    assert_eq!(errno, Errno::EUCLEAN);
                    return false;
                }
            };
            use_all(&store, &mut random);
            drop(store);
            _ = try_open(&device).map(|store| use_all(&store, &mut random));
            true
        }));
        match done {
            Ok(true) => opened += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("case {case}"),
        }
    }
    assert!(opened > CASES / 10 && refused > CASES / 100, "{opened} opened, {refused} refused");
}
