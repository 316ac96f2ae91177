//! The volume table: as it was read, or recreated from the labels.

use super::decoded::Decoded;
use crate::findings::{Findings, ProblemRef, When};
use crate::report::Problem;
use braid_contract::{Errno, Error, Fd};
use braid_format::{Label, RangeSizes, VolumeTable};
use braid_home::OpenError;

/// A volume table that was recreated from the labels, and is not written yet.
pub(crate) struct RecreatedTable {
    problem: ProblemRef,
    table: VolumeTable,
}

impl RecreatedTable {
    /// Reports a volume table that is missing or damaged, to be recreated;
    /// `None` if it is sound.
    pub(crate) fn report(
        read: &Decoded<VolumeTable>,
        table: &VolumeTable,
        home: &str,
        findings: &mut Findings,
    ) -> Option<Self> {
        if read.sound().is_some() {
            return None;
        }
        let problem = Problem::damage("table-damaged", read.wrong("volume table")).tier(home);
        let problem = findings.found(problem.repair("makes it anew from the tiers' labels"));
        Some(Self { problem, table: table.clone() })
    }

    /// Writes the table to the home tier's `.braid`, unless there is an obstacle.
    pub(crate) fn finish(self, braid: &Fd, findings: &mut Findings, obstacle: Option<&str>) {
        let may_repair = findings.may_repair(When::Unmounted);
        let problem = findings.get_mut(self.problem);
        if let Some(obstacle) = obstacle {
            problem.repair = format!("nothing is done: {obstacle}");
        } else if may_repair {
            match braid.replace_small("volume", &self.table.encode()) {
                Ok(()) => problem.repaired = true,
                Err(error) => {
                    problem.repair = format!("makes it anew from the labels; that failed: {error}");
                }
            }
        }
    }
}

/// The volume table, or one made from the labels. `home` is the configured name
/// of the home tier, `label` its label, and `labels` those of the other tiers.
pub(crate) fn known_table(
    home: &str,
    label: &Decoded<Label>,
    table: &Decoded<VolumeTable>,
    labels: &[Decoded<Label>],
) -> std::result::Result<VolumeTable, OpenError> {
    let tier = || home.to_owned();
    if let Some(label) = label.sound() {
        if !label.home {
            return Err(OpenError::NotHome { tier: tier(), found: label.volume });
        }
        if label.name != home {
            return Err(OpenError::OtherTier { tier: tier(), found: label.name.clone() });
        }
    }
    match (label, table) {
        (Decoded::Sound(label), Decoded::Sound(table)) => {
            if table.volume != label.volume || table.home != label.tier {
                let what = "its label and its volume table are of different volumes".to_owned();
                return Err(OpenError::Damaged { tier: tier(), what });
            }
            Ok(table.clone())
        }
        (_, Decoded::Sound(table)) => {
            let name = table.tiers.iter().find(|(id, _)| *id == table.home).map(|(_, name)| name);
            match name.filter(|name| **name != home) {
                Some(name) => Err(OpenError::OtherTier { tier: tier(), found: name.clone() }),
                None => Ok(table.clone()),
            }
        }
        (Decoded::Sound(label), _) => Ok(table_from(label, labels)),
        (Decoded::Missing, Decoded::Missing) => Err(no_volume()),
        _ => {
            let what = format!("{} and {}", label.wrong("label"), table.wrong("volume table"));
            Err(OpenError::Damaged { tier: tier(), what })
        }
    }
}

fn table_from(home: &Label, labels: &[Decoded<Label>]) -> VolumeTable {
    let others = || labels.iter().filter_map(Decoded::sound).filter(|label| label.volume == home.volume);
    let mut tiers: Vec<_> =
        std::iter::once(home).chain(others()).map(|label| (label.tier, label.name.clone())).collect();
    tiers.sort();
    tiers.dedup_by_key(|(id, _)| *id);
    VolumeTable {
        volume: home.volume,
        range_size: home.range_size,
        // The next mount adds the sizes of its rules.
        range_sizes: RangeSizes::default(),
        home: home.tier,
        tiers,
        lost: Vec::new(),
        removed: Vec::new(),
        secret: home.secret.or_else(|| others().find_map(|label| label.secret)),
    }
}

/// The error of tiers that have neither label nor table.
pub(crate) fn no_volume() -> OpenError {
    let what = "there is no volume on these tiers; mount their devices (are they mounted?), or make one: braid create";
    OpenError::Other(Error::new(Errno::ENOENT, what))
}
