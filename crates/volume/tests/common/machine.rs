//! A machine of simulated disks: the first is home, or may be, and the second
//! is the other tier.

use super::RANGE;
use braid_placement::{PolicyConfig, Reserve};
use braid_stores::dir::DirStore;
use braid_testkit::sim::{
    AllKept, AllLost, Chooser, Disk, DiskConfig, Frozen, Model, Seeded, SimClock, SimEnvironment,
};
use braid_volume::{HomeConfig, TierConfig, VolumeConfig};
use std::sync::Arc;

/// The disk of the other tier.
pub(crate) const TIER: usize = 1;

pub(crate) struct Machine<const N: usize> {
    pub(crate) disks: [Disk; N],
    pub(crate) environment: Arc<SimEnvironment>,
}

impl<const N: usize> Machine<N> {
    /// Empty disks of these names.
    pub(crate) fn new(names: [&str; N], model: Model) -> Self {
        let disk = |at: usize| {
            let (name, device) = (names[at].to_owned(), at as u64 + 1);
            Disk::new(DiskConfig { name, capacity: 64 << 20, device, volatile: false, model })
        };
        Self::of(std::array::from_fn(disk), 1)
    }

    fn of(disks: [Disk; N], seed: u64) -> Self {
        let clock = Arc::new(SimClock::new());
        disks.iter().for_each(|disk| disk.set_clock(Arc::clone(&clock)));
        Self { disks, environment: Arc::new(SimEnvironment::new(clock, seed)) }
    }

    /// The machine after a restart: after power loss with all unsynced data
    /// lost (0), all kept (1) or some of both, or after the end of the process
    /// (2).
    pub(crate) fn after(frozen: &[Frozen; N], seed: u64) -> Self {
        let disks = std::array::from_fn(|at| {
            let mut chooser: Box<dyn Chooser> = match seed {
                0 => Box::new(AllLost),
                1 => Box::new(AllKept),
                2 => return frozen[at].after_process_crash(),
                seed => Box::new(Seeded::new(seed * 3 + at as u64)),
            };
            frozen[at].after_power_loss(&mut *chooser)
        });
        Self::of(disks, seed + 5)
    }

    /// The disks as they are.
    pub(crate) fn freeze(disks: &[Disk; N]) -> [Frozen; N] {
        std::array::from_fn(|at| disks[at].freeze())
    }

    /// A volume whose home is on the disk of this number.
    pub(crate) fn config(&self, home: usize) -> VolumeConfig {
        let (weight, reserve) = (Some(1.0), Reserve::Bytes(0));
        VolumeConfig {
            home: HomeConfig {
                name: "fast".into(),
                root: self.disks[home].root(),
                location: self.disks[home].config().name.clone(),
                weight,
                profile: None,
                reserve,
            },
            tiers: vec![TierConfig {
                name: "slow".into(),
                store: Some(Arc::new(DirStore::new(self.disks[TIER].root()).unwrap())),
                location: self.disks[TIER].config().name.clone(),
                weight,
                profile: None,
                reserve,
            }],
            range_size: Some(RANGE as u32),
            policy: PolicyConfig::named("weighted").unwrap(),
            rules: Vec::new(),
            hints: Default::default(),
            epoch_ns: braid_placement::EPOCH_NS_DEFAULT,
            heat_budget: braid_volume::HEAT_BUDGET_DEFAULT,
            monitor: true,
            movers: braid_volume::MoversConfig::NONE,
            create: true,
            environment: self.environment.clone(),
        }
    }
}
