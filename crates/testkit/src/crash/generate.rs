//! The workloads: all short sequences over a small alphabet, and random longer
//! ones.

use super::machine::Setup;
use super::op::{Dir, During, Name, Op};
use super::workload::{BLOCK, RANGE, Start, Workload};
use crate::sim::Failing;
use braid_contract::SplitMix;

/// Longest enumerated sequence.
const LENGTH_MAX: u32 = 3;

/// The operations that short sequences are made of.
pub(crate) fn alphabet() -> Vec<Op> {
    use Name::{A, B, DirA};
    let write = |at, len| Op::Write { name: A, at, len, sync: false };
    vec![
        Op::Create(A),
        write(0, BLOCK),
        // Across a border, and a part of a block beyond.
        write(RANGE - BLOCK, 2 * BLOCK),
        write(3 * RANGE + 512, 1024),
        Op::Write { name: A, at: RANGE, len: BLOCK, sync: true },
        Op::Append(A, BLOCK),
        Op::Append(A, RANGE + 512),
        Op::Fsync(A),
        Op::Fdatasync(A),
        Op::Sync,
        Op::SyncDir(Dir::Root),
        Op::Truncate(A, 0),
        Op::Truncate(A, RANGE / 2 + 512),
        Op::Truncate(A, 4 * RANGE),
        Op::Punch(A, RANGE / 2, RANGE),
        Op::Zero(A, RANGE, 3 * RANGE),
        Op::Allocate(A, 2 * RANGE, 2 * RANGE),
        Op::Rename(A, B),
        Op::Rename(B, A),
        Op::Rename(A, DirA),
        Op::Link(A, B),
        Op::Unlink(A),
        Op::UnlinkOpen(A),
        Op::WriteOrphan(RANGE, BLOCK),
        Op::CreateUnnamed,
        Op::FsyncOrphan,
        Op::LinkOrphan(A),
        Op::CloseOrphans,
        Op::Migrate(A, 0, 1),
        Op::Migrate(A, 1, 0),
        Op::Tick,
        Op::Close(A),
        Op::Remount,
        Op::Kill,
        Op::Create(B),
        Op::Write { name: B, at: 0, len: RANGE + BLOCK, sync: false },
        Op::Fsync(B),
        Op::MigrateDuring(A, 1, 0, During::Write(RANGE, 3 * BLOCK)),
        Op::MigrateDuring(A, 0, 1, During::Truncate(RANGE / 2)),
        // Nothing where there is no third disk.
        Op::Migrate(A, 1, 2),
        Op::RemoveTier(1),
        Op::AddTier(1),
        Op::Chmod(A, 0o600),
        Op::SetXattr(A, 1),
        Op::Room(0),
        Op::Room(BLOCK),
        Op::Fail(1, Failing::Everything),
        Op::Fail(1, Failing::Syncs),
        Op::Fail(1, Failing::Writes),
        Op::FailFsync(A, 1),
        Op::Heal,
    ]
}

/// A random sequence.
pub(crate) fn random_ops(seed: u64, disks: usize) -> Vec<Op> {
    let mut random = SplitMix::new(seed);
    // Few names, so that things happen to the same files.
    let names = &Name::ALL[..1 + random.below(4) as usize];
    let len = 5 + random.below(36);
    (0..len).map(|_| random_op(&mut random, names, disks)).collect()
}

fn random_op(random: &mut SplitMix, names: &[Name], disks: usize) -> Op {
    let name = random.pick(names);
    let other = random.pick(&Name::ALL);
    let (at, len) = (random_offset(random), random_len(random));
    match random.below(58) {
        0..=3 => Op::Create(name),
        4..=9 => Op::Write { name, at, len, sync: false },
        10 => Op::Write { name, at, len, sync: true },
        11..=13 => Op::Append(name, len),
        14..=15 => Op::Fsync(name),
        16..=17 => Op::Fdatasync(name),
        18 => Op::Sync,
        19 => Op::SyncDir(random.pick(&Dir::ALL)),
        20 => Op::Truncate(name, 0),
        21..=22 => Op::Truncate(name, at),
        23 => Op::Punch(name, at, len),
        24 => Op::Zero(name, at, len),
        25 => Op::Allocate(name, at, len),
        26..=27 => Op::Rename(name, other),
        28 => Op::Link(name, other),
        29 => Op::Unlink(name),
        30 => Op::UnlinkOpen(name),
        31 => Op::WriteOrphan(at, len),
        32 => Op::CloseOrphans,
        33..=34 => Op::Migrate(name, random.below(5), random.below(disks as u64) as usize),
        35 => match random.below(3) {
            0 => Op::Evacuate(random.below(disks as u64) as usize),
            _ => {
                let during = match random.below(8) {
                    0 => During::Truncate(at),
                    1 => During::Punch(at, len),
                    2 => During::Fsync,
                    _ => During::Write(at, len),
                };
                Op::MigrateDuring(name, random.below(5), random.below(disks as u64) as usize, during)
            }
        },
        36 => Op::Tick,
        37 => Op::Close(name),
        // By chance, without a draw of its own.
        38 if at % 8192 == 0 => Op::Remount,
        38 => Op::HandOver,
        39 => Op::RemoveTier(random.below(disks as u64) as usize),
        40 => Op::AddTier(random.below(disks as u64) as usize),
        42 => Op::Chmod(name, random.pick(&[0o600, 0o640, 0o755])),
        43 => Op::Chown(name, random.below(3) as u32),
        44 => Op::SetXattr(name, random.below(4)),
        45..=46 => Op::Room(BLOCK * random.below(20)),
        47 => Op::RoomAgain,
        48..=50 => Op::Fail(1 + random.below(disks as u64 - 1) as usize, random.pick(&Failing::ALL)),
        51 => Op::Heal,
        52..=53 => Op::FailFsync(name, 1 + random.below(disks as u64 - 1) as usize),
        54 => Op::CreateUnnamed,
        55 => Op::FsyncOrphan,
        56..=57 => Op::LinkOrphan(name),
        _ => Op::Kill,
    }
}

/// Somewhere in five ranges, likely at a border.
fn random_offset(random: &mut SplitMix) -> u64 {
    let range = random.below(5) * RANGE;
    range
        + match random.below(6) {
            0 | 1 => 0,
            2 => RANGE - BLOCK,
            3 => 512 * random.below(RANGE / 512),
            4 => 8 * random.below(RANGE / 8),
            _ => BLOCK * random.below(RANGE / BLOCK),
        }
}

fn random_len(random: &mut SplitMix) -> u64 {
    match random.below(6) {
        0 => 512,
        1 => 8 * (1 + random.below(1024)),
        2 => BLOCK,
        3 => BLOCK * (1 + random.below(4)),
        4 => RANGE,
        _ => RANGE + BLOCK,
    }
}

/// Enumerated workload number `which`: the shortest ones first. `None` when
/// all were given.
pub(crate) fn enumerated(policies: &[&str], seed: u64, which: u64) -> Option<Workload> {
    let ops = alphabet();
    let (letters, starts) = (ops.len() as u64, Start::ALL.len() as u64);
    let mut at = which;
    for len in 1..=LENGTH_MAX {
        let count = letters.pow(len) * starts;
        if at >= count {
            at -= count;
            continue;
        }
        // Scattered, so that a part of them is a sample of them all: a number
        // without a common factor goes through every remainder.
        let stride = (count / 2..).find(|stride| common_factor(*stride, count) == 1)?;
        let mut at = (u128::from(at) * u128::from(stride) + u128::from(seed)) % u128::from(count);
        let start = Start::ALL[(at % u128::from(starts)) as usize];
        at /= u128::from(starts);
        let mut sequence = start.lead();
        for _ in 0..len {
            sequence.push(ops[(at % u128::from(letters)) as usize]);
            at /= u128::from(letters);
        }
        let setup = random_setup(policies, &mut SplitMix::of(seed, which));
        return Some(Workload { setup, start, ops: sequence });
    }
    None
}

/// Random workload number `which`.
pub(crate) fn random(policies: &[&str], seed: u64, which: u64) -> Workload {
    let mut random = SplitMix::of(seed, which);
    let setup = random_setup(policies, &mut random);
    let start = random.pick(&Start::ALL);
    let mut ops = start.lead();
    ops.extend(random_ops(random.next_u64(), setup.disks));
    Workload { setup, start, ops }
}

fn random_setup(policies: &[&str], random: &mut SplitMix) -> Setup {
    let policy = random.pick(policies);
    Setup::numbered(policy, random.below(Setup::COUNT))
}

fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_factor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_short_sequence_is_enumerated_once() {
        let letters = alphabet().len() as u64;
        let starts = Start::ALL.len() as u64;
        let count = letters * starts + letters * letters * starts;
        let texts: HashSet<String> = (0..count)
            .map(|which| enumerated(&["p"], 5, which).unwrap())
            .map(|workload| format!("{:?} {:?}", workload.start, workload.ops))
            .collect();
        assert_eq!(texts.len() as u64, count);
        let all = count + letters.pow(3) * starts;
        assert!(enumerated(&["p"], 5, all - 1).is_some() && enumerated(&["p"], 5, all).is_none());
    }

    #[test]
    fn a_workload_is_read_back_from_its_text() {
        for which in 0..100 {
            let workload = random(&["p", "q"], 1, which);
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
    }
}
