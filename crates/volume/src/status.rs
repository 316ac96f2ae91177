//! The state of a volume, for `status`.

use crate::affected::{self, AffectedFile};
use crate::heat::Decay;
use crate::volume::Volume;
use braid_contract::{
    Fd, InodeId, MoveCount, NamedTier, Result, StreamId, TierId, TierStatus, Trouble, VolumeId, ZoneStatus,
};
use braid_format::FileKey;
use braid_hint::LearnedStream;
use std::collections::BTreeSet;

/// State of a volume.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// The volume.
    pub id: VolumeId,
    /// Range size in bytes, for files without a rule that says otherwise.
    pub range_size: u32,
    /// The placement policy and its settings.
    pub policy: String,
    /// How often the policy mapped a thread to another tier; `None` if it maps
    /// none.
    pub remaps: Option<u64>,
    /// The tiers, home first.
    pub tiers: Vec<TierStatus>,
    /// Open files.
    pub open_files: u64,
    /// Inodes that the front end knows.
    pub known_inodes: u64,
    /// Removed spread files whose data is not removed yet.
    pub pending_removals: u64,
    /// Lost tiers that were replaced: files may still have ranges on them.
    pub lost_tiers: Vec<NamedTier>,
    /// Tiers that were given at the mount but left out, since they were removed
    /// from the volume.
    pub left_out_tiers: Vec<String>,
    /// The files that are used most, hottest first.
    pub hottest: Vec<HotFile>,
    /// Data moved by movers since the mount.
    pub moves: Vec<MoveCount>,
}

/// A file that is used much.
#[derive(Clone, Debug)]
pub struct HotFile {
    /// Its inode number.
    pub ino: InodeId,
    /// A descriptor to look at it, where one can be had.
    pub fd: Option<Fd>,
    /// Average heat of its ranges in use, in percent.
    pub heat: u8,
    /// Number of these ranges.
    pub ranges: u64,
    /// The tiers that its hot ranges are on.
    pub tier_names: Vec<String>,
}

/// Most threads of a tier that are listed.
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
            remaps: self.placement.remaps(),
            tiers: home
                .chain(others)
                .map(|tier| {
                    let mover_limit = self.throttles.mover_limit(tier.id).filter(|limit| limit.is_finite());
                    let zones = tier.zones().map(|zones| self.with_names(zones));
                    TierStatus { mover_limit, zones, ..tier_status(&tier) }
                })
                .collect(),
            open_files: self.core.handles.file_count(),
            known_inodes: self.core.inodes.count(),
            pending_removals: self.core.removals.count(),
            lost_tiers: self.core.tiers.lost().into_iter().map(|(id, name)| NamedTier { id, name }).collect(),
            hottest: self.hottest(),
            moves: self.movers.move_counts(),
            left_out_tiers: self.membership.left_out(),
        }
    }

    /// The same, with the names of streams.
    fn with_names(&self, mut zones: ZoneStatus) -> ZoneStatus {
        let rules = self.core.placer.rules();
        for stream in &mut zones.streams {
            stream.name =
                stream.id.map_or_else(|| "no stream".to_owned(), |id| rules.hints().name(StreamId(id)));
        }
        zones
    }

    /// The streams that were learned, by number.
    #[must_use]
    pub fn learned_streams(&self) -> Vec<LearnedStream> {
        self.core.learning.streams()
    }

    /// Hands `visit` every file of the namespace with ranges on a tier that is
    /// read-only, failing, hanging, absent or lost. Reads nothing but the home
    /// tier, so it does not wait for any of them.
    ///
    /// # Errors
    /// Those of the home tier, and those of `visit`, which end it.
    pub fn affected(&self, visit: &mut dyn FnMut(AffectedFile) -> Result<()>) -> Result<()> {
        affected::affected(&self.core, visit)
    }

    /// The files that are used most.
    fn hottest(&self) -> Vec<HotFile> {
        /// Most files that are listed.
        const FILES_MAX: usize = 10;
        let now = self.movers.heat.now();
        let mut found = Vec::new();
        {
            let table = self.movers.heat.table();
            // Some may have been removed.
            for (key, heat) in table.hottest(4 * FILES_MAX, now) {
                let records = table.file(key).into_iter().flat_map(|file| file.ranges.values());
                let hot = records.filter(|record| record.degree_at(now) > 0);
                let tiers: Vec<TierId> = hot.map(|record| record.tier).collect();
                found.push((key, heat, tiers));
            }
        }
        // The table is unlocked before files are opened.
        let told = |(key, heat, tiers): (FileKey, f64, Vec<TierId>)| {
            let (fd, ranges) = (self.movers.look_at(key).ok()?, tiers.len() as u64);
            let tiers: BTreeSet<TierId> = tiers.into_iter().collect();
            Some(HotFile {
                ino: InodeId(key.ino),
                fd,
                heat: (100.0 * heat / ranges.max(1) as f64).round() as u8,
                ranges,
                tier_names: tiers.into_iter().map(|id| self.core.tiers.name_of(id)).collect(),
            })
        };
        found.into_iter().filter_map(told).take(FILES_MAX).collect()
    }
}

/// The volume's view of a tier; the daemon adds the rest.
fn tier_status(tier: &braid_tiers::Tier) -> TierStatus {
    // JSON has no infinity.
    let finite = |number: f64| if number.is_finite() { number } else { 0.0 };
    let usage = tier.last_usage();
    let load = tier.load.sample();
    let now = tier.monitor.now();
    let reserve = tier.reserve().bytes(usage.total);
    let [read_bandwidth, write_bandwidth] =
        tier.bandwidth().map(|known| known.filter(|bandwidth| bandwidth.is_finite()));
    let basis = tier.speed_basis();
    let [read_latency_ns, write_latency_ns] = now.latency;
    let [read_latency_total_ns, write_latency_total_ns] = tier.monitor.total();
    let [read_latency_histogram_ns, write_latency_histogram_ns] = tier.monitor.histograms();
    TierStatus {
        id: tier.id,
        name: tier.name.clone(),
        location: tier.location(),
        home: tier.is_home(),
        state: tier.state(),
        trouble: tier.health.detail().map(|(error, ns)| Trouble { error, seconds: ns as f64 / 1e9 }),
        durable: tier.capabilities().durable,
        faults: Vec::new(),
        weight: finite(tier.weight().unwrap_or(0.0)),
        reserve,
        readonly: tier.is_set_readonly(),
        draining: tier.is_draining(),
        total: usage.total,
        free: usage.free,
        available: usage.available.saturating_sub(reserve),
        used: usage.total.saturating_sub(usage.free),
        ranges: tier.ranges.get(),
        errors: tier.errors.counts().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        read_bytes: load.bytes[0],
        read_ops: load.ops[0],
        write_bytes: load.bytes[1],
        write_ops: load.ops[1],
        read_rate: finite(load.rates[0]),
        write_rate: finite(load.rates[1]),
        read_bandwidth,
        write_bandwidth,
        speed_basis: basis.map(|(basis, _)| basis),
        speed_age: basis.map(|(_, seen_ns)| tier.seconds_since(seen_ns)),
        read_latency_ns,
        write_latency_ns,
        read_latency_total_ns,
        write_latency_total_ns,
        read_latency_histogram_ns,
        write_latency_histogram_ns,
        in_flight: finite(now.in_flight),
        threads: tier.monitor.thread_count(),
        busiest_threads: tier.monitor.busiest_threads(THREADS_TOLD_MAX),
        mover_rate: finite(now.mover_rate.iter().sum()),
        mover_limit: None,
        device_number: usage.device,
        zones: None,
        device: None,
    }
}
