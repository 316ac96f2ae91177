//! What a volume says of itself: `status` and `explain`.

use crate::Volume;
use crate::file;
use crate::format::{Entry, Reason};
use crate::tiers::TierState;
use braid_contract::{InodeId, ObjectId, Result, TierId, VolumeId};

/// State of a volume.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// The volume.
    pub id: VolumeId,
    /// Range size in bytes.
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
    /// Size of its file system.
    pub total: u64,
    /// Free space of its file system.
    pub free: u64,
    /// Space that Braid may still place ranges into.
    pub available: u64,
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
}

/// Whether a file has an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// All data is in the home file.
    Plain,
    /// Ranges are where the index says.
    Spread {
        /// The file's object id.
        id: ObjectId,
    },
}

/// Where a file's bytes are, and why.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Whether the file has an index.
    pub layout: Layout,
    /// Size of the file in bytes.
    pub size: u64,
    /// Range size in bytes.
    pub range_size: u32,
    /// Runs of ranges that are in the same place for the same reason, in order.
    pub runs: Vec<Run>,
}

/// A run of ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// First byte.
    pub offset: u64,
    /// Length in bytes, up to the end of the file at most.
    pub len: u64,
    /// Number of ranges.
    pub ranges: u64,
    /// Number and name of the tier; `None` for ranges that were never written.
    pub tier: Option<(TierId, String)>,
    /// Why they are there.
    pub reason: String,
}

impl Volume {
    /// The state of the volume and its tiers.
    #[must_use]
    pub fn status(&self) -> VolumeStatus {
        let home = self.tiers.iter().filter(|tier| tier.is_home());
        let others = self.tiers.iter().filter(|tier| !tier.is_home());
        VolumeStatus {
            id: self.id,
            range_size: self.range_size,
            policy: self.policy.read().describe(),
            tiers: home.chain(others).map(|tier| tier_status(&tier)).collect(),
            open_files: self.handles.file_count(),
            known_inodes: self.inodes.len(),
            pending_removals: self.reaper.len(),
            lost_tiers: self.tiers.lost(),
        }
    }

    /// Where the file's bytes are.
    ///
    /// # Errors
    /// `ESTALE` if nobody has looked the inode up, `EISDIR` or `EINVAL` if it
    /// is not a regular file.
    pub fn explain(&self, ino: InodeId) -> Result<Explanation> {
        let _pass = self.door.pass();
        let inode = self.inodes.get(ino)?;
        let file = self.file_of(&inode)?;
        let layout = file.layout.read();
        match &*layout {
            file::Layout::Plain => {
                let size = file.home_size()?;
                Ok(self.explain_plain(size))
            }
            file::Layout::Spread(spread) => self.explain_spread(spread),
        }
    }

    fn explain_plain(&self, size: u64) -> Explanation {
        let home = self.tiers.home();
        let run = Run {
            offset: 0,
            len: size,
            ranges: size.div_ceil(u64::from(self.range_size)),
            tier: Some((home.id, home.name.clone())),
            reason: "plain file: all of it in the home tree".into(),
        };
        let runs = if size == 0 { Vec::new() } else { vec![run] };
        Explanation { layout: Layout::Plain, size, range_size: self.range_size, runs }
    }

    fn explain_spread(&self, spread: &file::Spread) -> Result<Explanation> {
        let size = spread.size();
        let count = size.div_ceil(u64::from(self.range_size));
        let mut runs: Vec<Run> = Vec::new();
        let mut next = 0;
        spread.index.for_each(0, |range, entry| {
            let entry = entry?;
            if range < count {
                self.add_run(&mut runs, next..range, None, size);
                self.add_run(&mut runs, range..range + 1, Some(entry), size);
                next = range + 1;
            }
            Ok(())
        })?;
        self.add_run(&mut runs, next..count, None, size);
        let layout = Layout::Spread { id: spread.id() };
        Ok(Explanation { layout, size, range_size: self.range_size, runs })
    }

    /// Adds ranges to the last run, or begins a new one.
    fn add_run(&self, runs: &mut Vec<Run>, ranges: std::ops::Range<u64>, entry: Option<Entry>, size: u64) {
        if ranges.is_empty() {
            return;
        }
        let name = |id| {
            self.tiers.get(id).map_or_else(|_| "(not part of the volume)".into(), |tier| tier.name.clone())
        };
        let tier = entry.map(|entry| (entry.tier, name(entry.tier)));
        let reason = self.reason(entry.map(|entry| entry.reason));
        let offset = self.range_start(ranges.start);
        let len = self.range_start(ranges.end).min(size) - offset;
        let count = ranges.end - ranges.start;
        match runs.last_mut() {
            Some(last) if last.tier == tier && last.reason == reason => {
                last.len += len;
                last.ranges += count;
            }
            _ => runs.push(Run { offset, len, ranges: count, tier, reason }),
        }
    }

    fn reason(&self, reason: Option<Reason>) -> String {
        match reason {
            None => "never written: reads as zeros".into(),
            Some(Reason::WasPlain) => "written while the file was plain".into(),
            Some(Reason::Policy) => "placed by the policy".into(),
            Some(Reason::Spill) => "the tier that the policy wanted had no room or was failing".into(),
            Some(Reason::Asked) => "moved there by request".into(),
            Some(Reason::Promoted) => "promoted: it is in use".into(),
            Some(Reason::Demoted) => "demoted: its tier ran full and it was not in use".into(),
            Some(Reason::Rebalanced) => "moved to give every tier its share".into(),
            Some(Reason::Evacuated) => "moved off a tier that is to be empty".into(),
            Some(Reason::Rule) => "placed by a rule".into(),
            Some(Reason::Moved) => "moved off a tier that had no room for more of it".into(),
        }
    }
}

fn tier_status(tier: &crate::tiers::Tier) -> TierStatus {
    let usage = tier.last_usage();
    let load = tier.load.sample();
    let reserve = tier.reserve.bytes(usage.total);
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
        total: usage.total,
        free: usage.free,
        available: usage.available.saturating_sub(reserve),
        used: usage.total.saturating_sub(usage.free),
        ranges: tier.ranges.load(std::sync::atomic::Ordering::Relaxed),
        read_bytes: load.bytes[0],
        read_ops: load.ops[0],
        write_bytes: load.bytes[1],
        write_ops: load.ops[1],
        read_rate: load.rates[0],
        write_rate: load.rates[1],
    }
}
