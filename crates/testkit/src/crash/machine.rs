//! The simulated machine that a workload runs on: its disks, its clock, and
//! their fate in a crash.

use super::Drives;
use super::history::Rules;
use super::op::ParseError;
use crate::sim::{
    Chooser, Disk, DiskConfig, Effect, Frozen, Model, SimClock, SimEnvironment, SimZoned, SimZones,
    ZoneEffect, ZonedMoment,
};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Size of a disk with room for everything.
const AMPLE: u64 = 64 << 20;
/// Size of home if it is to run full: enough for the volume's own state there,
/// without space to set aside for indexes, and a few ranges.
const TIGHT: u64 = 640 << 10;
/// Size of disk 1 where it is to run full: enough for its own structures and
/// a few ranges.
const SMALL: u64 = 160 << 10;

/// The zoned device in place of the last disk, and one of a small disk.
const ZONES: SimZones = SimZones { zones: 24, conventional: 0, capacity: 128 << 10, active_max: 6 };
const SMALL_ZONES: u32 = 8;

/// Time for which a machine is off, in nanoseconds: distinguishes changes of
/// recovery from those of the workload.
const OFF_NS: u64 = 1_000_000_000;

/// The setup of a workload.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Setup {
    /// The placement policy, by a name that the [`Subject`](super::Subject)
    /// knows.
    pub policy: String,
    /// How many disks there are, home being the first.
    pub disks: usize,
    /// Disk 1 is small.
    pub small: bool,
    /// Home is small.
    pub tight: bool,
    /// Changes of metadata persist in their order ([`Model`]).
    pub journal_order: bool,
    /// `fsync` of a file makes its names durable ([`Model`]).
    pub fsync_names: bool,
    /// Blocks may be torn ([`Model`]).
    pub tear: bool,
    /// A zoned device is in place of the last disk.
    pub zoned: bool,
}

impl Setup {
    /// How many setups there are with one policy.
    pub(crate) const COUNT: u64 = 128;

    /// One combination of the settings other than the policy, by its number
    /// below [`COUNT`](Self::COUNT).
    pub(crate) fn numbered(policy: &str, number: u64) -> Self {
        let flag = |at: u32| number >> at & 1 == 1;
        Self {
            policy: policy.to_owned(),
            disks: 2 + usize::from(flag(0)),
            small: flag(1),
            journal_order: flag(2),
            fsync_names: flag(3),
            tear: flag(4),
            tight: flag(5),
            zoned: flag(6),
        }
    }

    fn model(&self) -> Model {
        Model { journal_order: self.journal_order, fsync_names: self.fsync_names, tear: self.tear }
    }

    /// The possible effects of the end of the process: a zoned store gathers data in
    /// its memory.
    pub(crate) fn rules_of_process(&self) -> Rules {
        if self.zoned { self.rules() } else { Rules::ProcessCrash }
    }

    /// The possible effects of a loss of power.
    pub(crate) fn rules(&self) -> Rules {
        Rules::PowerLoss { ordered: self.journal_order, fsync_names: self.fsync_names }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy={},disks={},small={},", self.policy, self.disks, u8::from(self.small))?;
        write!(f, "tight={},model=", u8::from(self.tight))?;
        let letters = [(self.journal_order, 'j'), (self.fsync_names, 'n'), (self.tear, 't')];
        letters.iter().filter(|(set, _)| *set).try_for_each(|(_, letter)| write!(f, "{letter}"))?;
        if self.zoned { f.write_str(",zoned=1") } else { Ok(()) }
    }
}

impl FromStr for Setup {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let field = |key| super::workload::field(text, key);
        let model = field("model")?;
        let number = |key| field(key)?.parse().map_err(|_| ParseError(text.into()));
        Ok(Self {
            policy: field("policy")?.to_owned(),
            disks: number("disks")?,
            small: number("small")? != 0,
            // Lines of before there was any have none.
            tight: field("tight").is_ok_and(|tight| tight == "1"),
            journal_order: model.contains('j'),
            fsync_names: model.contains('n'),
            tear: model.contains('t'),
            zoned: field("zoned").is_ok_and(|zoned| zoned == "1"),
        })
    }
}

/// Disks and a clock.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) disks: Vec<Disk>,
    /// The device that is in place of the last disk.
    pub(crate) zoned: Option<Arc<SimZoned>>,
    pub(crate) environment: Arc<SimEnvironment>,
}

/// A machine at one moment.
#[derive(Debug)]
pub(crate) struct FrozenMachine {
    disks: Vec<Frozen>,
    zoned: Option<ZonedMoment>,
    clock: SimClock,
}

impl Machine {
    /// A machine with empty disks.
    pub(crate) fn new(setup: &Setup, seed: u64) -> Self {
        let disks = (0..setup.disks).map(|at| {
            Disk::new(DiskConfig {
                name: format!("disk{at}"),
                capacity: match at {
                    0 if setup.tight => TIGHT,
                    1 if setup.small => SMALL,
                    _ => AMPLE,
                },
                device: 10 + at as u64,
                volatile: false,
                model: setup.model(),
            })
        });
        let is_small = setup.small && setup.disks == 2;
        let zones = if is_small { SMALL_ZONES } else { ZONES.zones };
        let zoned = setup.zoned.then(|| SimZoned::new(SimZones { zones, ..ZONES }));
        Self::assemble(disks.collect(), zoned, SimClock::new(), seed)
    }

    fn assemble(disks: Vec<Disk>, zoned: Option<SimZoned>, clock: SimClock, seed: u64) -> Self {
        let clock = Arc::new(clock);
        disks.iter().for_each(|disk| disk.set_clock(Arc::clone(&clock)));
        Self { disks, zoned: zoned.map(Arc::new), environment: Arc::new(SimEnvironment::new(clock, seed)) }
    }

    pub(crate) fn clock(&self) -> &SimClock {
        self.environment.clock()
    }

    /// The drives of a volume.
    pub(crate) fn drives(&self) -> Drives {
        let environment = Arc::clone(&self.environment);
        Drives { disks: self.disks.clone(), zoned: self.zoned.clone(), environment }
    }

    /// Whether any disk fails.
    pub(crate) fn is_failing(&self) -> bool {
        self.disks.iter().any(|disk| disk.failing().is_some())
    }

    /// All disks are well again.
    pub(crate) fn heal(&self) {
        self.disks.iter().for_each(|disk| disk.fail(None));
    }

    /// Its state at this moment.
    pub(crate) fn freeze(&self) -> FrozenMachine {
        FrozenMachine {
            disks: self.disks.iter().map(Disk::freeze).collect(),
            zoned: self.zoned.as_ref().map(|zoned| zoned.moment()),
            clock: self.clock().fork(),
        }
    }

    /// Prints every effect on the disks from now on.
    pub(crate) fn trace(&self) {
        for disk in &self.disks {
            disk.set_observer(Some(Arc::new(|effect: &Effect| println!("    {effect}"))));
        }
        if let Some(zoned) = &self.zoned {
            zoned.set_observer(Some(Arc::new(|effect: &ZoneEffect| println!("    {effect}"))));
        }
    }

    /// Violations that no process would survive.
    pub(crate) fn violations(&self) -> Vec<String> {
        let of_disks = self.disks.iter().flat_map(Disk::violations);
        of_disks.chain(self.zoned.iter().flat_map(|zoned| zoned.broken_rules())).collect()
    }
}

impl FrozenMachine {
    /// A machine that starts again after it lost power.
    pub(crate) fn after_power_loss(&self, chooser: &mut dyn Chooser, seed: u64) -> Machine {
        let disks = self.disks.iter().map(|disk| disk.after_power_loss(chooser)).collect();
        let zoned = self.zoned.as_ref().map(|zoned| zoned.after_power_loss(chooser));
        Machine::assemble(disks, zoned, self.later(), seed)
    }

    /// The machine goes on, without the process.
    pub(crate) fn after_process_crash(&self, seed: u64) -> Machine {
        let disks = self.disks.iter().map(Frozen::after_process_crash).collect();
        let zoned = self.zoned.as_ref().map(ZonedMoment::resume);
        Machine::assemble(disks, zoned, self.later(), seed)
    }

    /// Whether the disks are as they were in `other`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let versions = |machine: &Self| machine.disks.iter().map(Frozen::version).collect::<Vec<_>>();
        let zones_are_same = match (&self.zoned, &other.zoned) {
            (Some(zoned), Some(other)) => zoned.is_same(other),
            _ => true,
        };
        zones_are_same && versions(self) == versions(other)
    }

    fn later(&self) -> SimClock {
        let clock = self.clock.fork();
        clock.advance(OFF_NS);
        clock
    }
}
