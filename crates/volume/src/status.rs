//! What a volume says of itself: `status`.

use crate::Volume;
use crate::heat::Decay;
use crate::tiers::{Latency, LatencyHistogram, TierState};
use braid_contract::{Fd, InodeId, TierId, VolumeId};
use braid_format::FileKey;
use std::collections::BTreeSet;

/// State of a volume.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// The volume.
    pub id: VolumeId,
    /// Range size in bytes, of files that no rule gives another one.
    pub range_size: u32,
    /// The placement policy and its settings.
    pub policy: String,
    /// The tiers, home first.
    pub tiers: Vec<TierStatus>,
    /// Open files.
    pub open_files: u64,
    /// Inodes that the front end knows.
    pub known_inodes: u64,
    /// Removed spread files whose data is still to be removed.
    pub pending_removals: u64,
    /// Number and name of tiers that were lost and replaced: files may still
    /// have ranges that were on them.
    pub lost_tiers: Vec<(TierId, String)>,
    /// Tiers that were given at the mount and left out, since they were removed
    /// from the volume.
    pub left_out_tiers: Vec<String>,
    /// The files that are used most, hottest first.
    pub hottest: Vec<HotFile>,
    /// What movers moved since the mount.
    pub moves: Vec<MoveCount>,
}

/// A file that is used much.
#[derive(Clone, Debug)]
pub struct HotFile {
    /// Its inode.
    pub ino: InodeId,
    /// A descriptor to look at it, where one can be had.
    pub fd: Option<Fd>,
    /// The heat of its ranges that are in use, in percent, on average.
    pub heat: u8,
    /// How many these are.
    pub ranges: u64,
    /// The tiers that its hot ranges are on.
    pub tiers: Vec<(TierId, String)>,
}

/// What one mover moved from one tier to another for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveCount {
    /// `promote` or `demote`.
    pub mover: &'static str,
    /// The tier that the ranges left.
    pub from: (TierId, String),
    /// The tier that they are on since.
    pub to: (TierId, String),
    /// Why: `hot`, or `watermark`.
    pub reason: &'static str,
    /// How many ranges.
    pub ranges: u64,
    /// How many bytes that is.
    pub bytes: u64,
}

/// State of a tier. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// The tier's number.
    pub id: TierId,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub location: String,
    /// Whether it holds the namespace.
    pub home: bool,
    /// How it is doing.
    pub state: TierState,
    /// The error that its trouble began with, and for how many nanoseconds it
    /// has lasted.
    pub trouble: Option<(String, u64)>,
    /// What was synced to it survives power loss.
    pub durable: bool,
    /// Bandwidth relative to the other tiers; 0 while unknown.
    pub weight: f64,
    /// Space that is left free.
    pub reserve: u64,
    /// It was set to be read only.
    pub readonly: bool,
    /// It takes no new ranges: what is on it is to go elsewhere.
    pub draining: bool,
    /// Size of its file system.
    pub total: u64,
    /// Free space of its file system.
    pub free: u64,
    /// Space that Braid may still place ranges into.
    pub available: u64,
    /// Errors that it answered since the mount, by kind.
    pub errors: Vec<(&'static str, u64)>,
    /// Space in use on its file system, by anybody.
    pub used: u64,
    /// Ranges of spread files on it.
    pub ranges: u64,
    /// Bytes read since the mount.
    pub read_bytes: u64,
    /// Reads since the mount.
    pub read_ops: u64,
    /// Bytes written since the mount.
    pub write_bytes: u64,
    /// Writes since the mount.
    pub write_ops: u64,
    /// Bytes read a second, now.
    pub read_rate: f64,
    /// Bytes written a second, now.
    pub write_rate: f64,
    /// The most bytes a second that it is known to read and to write.
    pub bandwidth: [Option<f64>; 2],
    /// How long reads and writes for applications took within the last second,
    /// or the last epoch where that is longer.
    pub latency: [Latency; 2],
    /// The same since the mount.
    pub latency_total: [Latency; 2],
    /// How many took how long since the mount.
    pub latency_histogram: [LatencyHistogram; 2],
    /// Operations for applications under way at a time, on average.
    pub in_flight: f64,
    /// Threads of applications that used it in the last second, or the last
    /// epoch where that is longer.
    pub threads: u32,
    /// Those of them that moved most bytes, the busiest first; not all.
    pub busiest_threads: Vec<ThreadStatus>,
    /// Bytes a second that movers and jobs read from it and write to it.
    pub mover_rate: f64,
    /// Bytes a second that movers and jobs may come to there at present.
    pub mover_limit: Option<f64>,
    /// The file system beneath, as `stat` numbers it.
    pub device: u64,
}

/// What a thread of an application does on a tier, read and written.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadStatus {
    /// The thread's id, as the kernel counts it.
    pub thread: u32,
    /// Bytes a second.
    pub rate: [f64; 2],
    /// Operations a second.
    pub op_rate: [f64; 2],
    /// How long an operation took on average, in nanoseconds; 0 if there was
    /// none.
    pub latency_ns: [u64; 2],
    /// Operations under way at a time, on average.
    pub in_flight: f64,
}

/// Threads of a tier that are told of, at most.
const THREADS_TOLD_MAX: usize = 8;

impl Volume {
    /// The state of the volume and its tiers.
    #[must_use]
    pub fn status(&self) -> VolumeStatus {
        let home = self.core.tiers.iter().filter(|tier| tier.is_home());
        let others = self.core.tiers.iter().filter(|tier| !tier.is_home());
        VolumeStatus {
            id: self.core.id,
            range_size: self.core.range_size.get(),
            policy: self.placement.describe(),
            tiers: home
                .chain(others)
                .map(|tier| TierStatus {
                    mover_limit: self.throttles.mover_limit(tier.id),
                    ..tier_status(&tier)
                })
                .collect(),
            open_files: self.core.handles.file_count(),
            known_inodes: self.core.inodes.len(),
            pending_removals: self.core.removals.len(),
            lost_tiers: self.core.tiers.lost(),
            hottest: self.hottest(),
            moves: self.move_counts(),
            left_out_tiers: self.state.left_out.lock().clone(),
        }
    }

    /// The files that are used most.
    fn hottest(&self) -> Vec<HotFile> {
        /// How many are told of.
        const FILES_MAX: usize = 10;
        let now = self.heat_now();
        let mut found = Vec::new();
        {
            let table = self.heat.table();
            // Some may have been removed.
            for (key, heat) in table.hottest(4 * FILES_MAX, now) {
                let records = table.file(key).into_iter().flat_map(|file| file.ranges.values());
                let hot = records.filter(|record| record.degree_at(now) > 0);
                let tiers: Vec<TierId> = hot.map(|record| record.tier).collect();
                found.push((key, heat, tiers));
            }
        }
        // Files are opened once the table is free again.
        let told = |(key, heat, tiers): (FileKey, f64, Vec<TierId>)| {
            let (fd, ranges) = (self.look_at(key).ok()?, tiers.len() as u64);
            let tiers: BTreeSet<TierId> = tiers.into_iter().collect();
            Some(HotFile {
                ino: InodeId(key.ino),
                fd,
                heat: (100.0 * heat / ranges.max(1) as f64).round() as u8,
                ranges,
                tiers: tiers.into_iter().map(|id| (id, self.tier_name(id))).collect(),
            })
        };
        found.into_iter().filter_map(told).take(FILES_MAX).collect()
    }
}

fn tier_status(tier: &crate::tiers::Tier) -> TierStatus {
    let usage = tier.last_usage();
    let load = tier.load.sample();
    let now = tier.monitor.now();
    let reserve = tier.reserve().bytes(usage.total);
    TierStatus {
        id: tier.id,
        name: tier.name.clone(),
        location: tier.location(),
        home: tier.is_home(),
        state: tier.state(),
        trouble: tier.health.detail(),
        durable: tier.is_durable(),
        weight: tier.weight().unwrap_or(0.0),
        reserve,
        readonly: tier.is_set_readonly(),
        draining: tier.is_draining(),
        total: usage.total,
        free: usage.free,
        available: usage.available.saturating_sub(reserve),
        errors: tier.errors.counts(),
        used: usage.total.saturating_sub(usage.free),
        ranges: tier.ranges.load(std::sync::atomic::Ordering::Relaxed),
        read_bytes: load.bytes[0],
        read_ops: load.ops[0],
        write_bytes: load.bytes[1],
        write_ops: load.ops[1],
        read_rate: load.rates[0],
        write_rate: load.rates[1],
        bandwidth: tier.bandwidth(),
        latency: now.latency,
        latency_total: tier.monitor.total(),
        latency_histogram: tier.monitor.histograms(),
        in_flight: now.in_flight,
        threads: tier.monitor.thread_count(),
        busiest_threads: tier.monitor.busiest_threads(THREADS_TOLD_MAX),
        mover_rate: now.mover_rate.iter().sum(),
        mover_limit: None,
        device: usage.device,
    }
}
