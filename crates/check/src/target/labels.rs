//! The labels of an unmounted volume, compared with the volume table. Damage to
//! one of them is repaired from the others.

use super::decoded::Decoded;
use super::table::{RecreatedTable, known_table, no_volume};
use super::{CheckTarget, TargetTier, Unmounted};
use crate::findings::{Findings, When};
use crate::report::{CheckOptions, Problem};
use crate::tree::regular_if_there;
use braid_contract::{Fd, ObjectId, Result, Store, TierId};
use braid_format::{Label, Seal, TABLE_LEN, VolumeTable};
use braid_home::{Home, OpenError, guard};
use braid_tiers::TierConfig;

type OpenResult<T> = std::result::Result<T, OpenError>;

/// Reads labels and table, and repairs damaged labels. The table, if it is
/// damaged, is recreated only when the indexes have been read.
pub(crate) fn read_target<'a>(
    config: &Unmounted<'_>,
    options: &CheckOptions,
    findings: &mut Findings,
) -> OpenResult<(CheckTarget<'a>, Option<RecreatedTable>)> {
    let name = config.home.name.as_str();
    let home_failed = |error| OpenError::Tier { tier: name.to_owned(), error };
    let mut home = Home::open(Fd::clone(&config.home.root)).map_err(home_failed)?;
    guard(&home, name)?;
    let label =
        Decoded::read(name, "label", home.root().read_small(".braid/label", TABLE_LEN), Label::decode)?;
    let table = home.root().read_small(".braid/volume", TABLE_LEN);
    let table = Decoded::read(name, "volume table", table, VolumeTable::decode)?;
    let mut labels = Vec::new();
    for tier in config.tiers {
        let bytes = tier.store.as_ref().map_or(Ok(None), |store| store.label());
        labels.push(Decoded::read(&tier.name, "label", bytes, Label::decode)?);
    }
    let known = known_table(name, &label, &table, &labels)?;
    let user_xattr = uses_user_xattr(&label, &labels, &known);
    if !user_xattr && !braid_sys::is_privileged() {
        return Err(OpenError::NeedsRoot { tier: name.to_owned() });
    }
    home.use_user_xattr(user_xattr);
    home.use_seal(Seal { volume: known.volume, secret: known.secret });
    let braid = home.braid().map_err(home_failed)?;
    let mut check = LabelCheck { config, options, known: &known, user_xattr, braid: &braid, findings };
    check.home_label(&label);
    let tiers = check.tiers(&labels)?;
    let recreated = RecreatedTable::report(&table, &known, name, findings);
    let target = CheckTarget {
        volume: known.volume,
        range_size: known.range_size,
        range_sizes: config.range_sizes | known.range_sizes,
        home_id: known.home,
        home_name: name.to_owned(),
        braid,
        home,
        user_xattr,
        tiers,
        lost: known.lost,
        mounted: None,
    };
    Ok((target, recreated))
}

/// Whether ids are in `user.` attributes, by the first sound label of the volume.
fn uses_user_xattr(home: &Decoded<Label>, others: &[Decoded<Label>], table: &VolumeTable) -> bool {
    let of_volume = || others.iter().filter_map(Decoded::sound).find(|label| label.volume == table.volume);
    let label = home.sound().or_else(of_volume);
    label.map_or_else(|| !braid_sys::is_privileged(), |label| label.user_xattr)
}

/// The comparison of labels with the volume table.
struct LabelCheck<'c> {
    config: &'c Unmounted<'c>,
    options: &'c CheckOptions,
    known: &'c VolumeTable,
    user_xattr: bool,
    braid: &'c Fd,
    findings: &'c mut Findings,
}

impl LabelCheck<'_> {
    fn expected(&self, tier: TierId, name: &str) -> Label {
        Label {
            volume: self.known.volume,
            tier,
            home: tier == self.known.home,
            user_xattr: self.user_xattr,
            range_size: self.known.range_size,
            name: name.to_owned(),
            secret: self.known.secret,
        }
    }

    /// Whether a label is as expected. One without the volume's key is, since
    /// its tier may have been absent when the volume got it; the next mount
    /// renews the label.
    fn is_right(&self, found: &Decoded<Label>, expected: &Label) -> bool {
        let behind = |label: &Label| label.secret.is_none() || expected.secret.is_none();
        found.sound().is_some_and(|label| match behind(label) {
            true => Label { secret: None, ..label.clone() } == Label { secret: None, ..expected.clone() },
            false => label == expected,
        })
    }

    fn home_label(&mut self, found: &Decoded<Label>) {
        let name = self.config.home.name.as_str();
        let expected = self.expected(self.known.home, name);
        if !self.is_right(found, &expected) {
            let braid = self.braid;
            self.relabel(found, name, || braid.replace_small("label", &expected.encode()));
        }
    }

    fn tiers(&mut self, labels: &[Decoded<Label>]) -> OpenResult<Vec<TargetTier>> {
        let mut tiers = Vec::new();
        for (config, found) in self.config.tiers.iter().zip(labels) {
            let id = self.number(config, found)?;
            let expected = self.expected(id, &config.name);
            if let Some(store) = config.store.as_ref().filter(|_| !self.is_right(found, &expected)) {
                self.relabel(found, &config.name, || store.set_label(&expected.encode()));
            }
            if config.store.is_none() {
                let what = "the tier is absent: what is on it was not checked, and can't be read";
                self.findings.found(
                    Problem::note("tier-absent", what)
                        .tier(&config.name)
                        .repair("give the tier its device back"),
                );
            }
            let root = self.options.root_of(&config.name);
            tiers.push(TargetTier { id, name: config.name.clone(), store: config.store.clone(), root });
        }
        let given =
            |number: &TierId| *number == self.known.home || tiers.iter().any(|tier| tier.id == *number);
        match self.known.tiers.iter().find(|(number, _)| !given(number)) {
            Some((_, name)) => Err(OpenError::MissingTier { tier: name.clone() }),
            None => Ok(tiers),
        }
    }

    fn relabel(&mut self, found: &Decoded<Label>, name: &str, write: impl FnOnce() -> Result<()>) {
        let problem = Problem::damage("label-damaged", found.wrong("label"))
            .tier(name)
            .repair("makes it anew from the volume table and the other labels");
        self.findings.mend(problem, When::Unmounted, write);
    }

    /// The number of a tier, verified to be that tier.
    fn number(&self, config: &TierConfig, found: &Decoded<Label>) -> OpenResult<TierId> {
        let tier = || config.name.clone();
        let by_name = self.known.tiers.iter().find(|(_, name)| *name == config.name).map(|(id, _)| *id);
        let label = match (found, by_name) {
            (Decoded::Sound(label), _) => label,
            (_, Some(id)) if config.store.is_none() || self.is_surely(config, found, id) => return Ok(id),
            (Decoded::Damaged(_, why), _) => {
                return Err(OpenError::Damaged {
                    tier: tier(),
                    what: format!("its label is damaged: {why}"),
                });
            }
            (Decoded::Missing, Some(_)) => return Err(OpenError::NotLabelled { tier: tier() }),
            (Decoded::Missing, None) => return Err(no_volume()),
        };
        if label.volume != self.known.volume {
            let (found, expected) = (label.volume, self.known.volume);
            return Err(OpenError::OtherVolume { tier: tier(), found, expected });
        }
        if label.name != config.name {
            return Err(OpenError::OtherTier { tier: tier(), found: label.name.clone() });
        }
        let taken = self.known.tiers.iter().find(|(id, _)| *id == label.tier);
        let joining = taken.is_none() && by_name.is_none();
        if label.home || !joining && by_name != Some(label.tier) {
            let what = "its label does not agree with the volume table of the home tier".to_owned();
            return Err(OpenError::Damaged { tier: tier(), what });
        }
        Ok(label.tier)
    }

    /// Whether a directory without a sound label is the tier that it is given
    /// for, by the remains of its label or by its objects. An empty directory
    /// may be the mount point of the tier's file system, which is not mounted.
    fn is_surely(&self, config: &TierConfig, found: &Decoded<Label>, id: TierId) -> bool {
        const DIFFERENT_MAX: usize = 8;
        let expected = self.expected(id, &config.name).encode();
        if let Decoded::Damaged(bytes, _) = found {
            let different = expected.iter().zip(bytes).filter(|(a, b)| a != b).count();
            if bytes.len() == expected.len() && different <= DIFFERENT_MAX {
                return true;
            }
        }
        config.store.as_ref().is_some_and(|store| self.has_object_of_volume(&**store))
    }

    fn has_object_of_volume(&self, store: &dyn Store) -> bool {
        const LOOKED_AT_MAX: usize = 1000;
        let mut ids: Vec<ObjectId> = Vec::new();
        let listed = store.list(&mut |id| {
            if ids.len() < LOOKED_AT_MAX {
                ids.push(id);
            }
        });
        listed.is_ok()
            && ids.iter().any(|id| {
                let path = format!("index/{}/{id}", id.shard());
                regular_if_there(&**self.braid, &path).is_ok_and(|found| found.is_some())
            })
    }
}
