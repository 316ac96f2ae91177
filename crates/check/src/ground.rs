//! Which volume it is: labels and volume table, and what follows from them.
//! Damage to one of them is made good from the others.

use super::report::{CheckOptions, Problem};
use braid_contract::{Environment, Errno, Error, Fd, NativeFd, ObjectId, Result, Store, TierId, VolumeId};
use braid_core::Core;
use braid_format::{FORMAT_VERSION, FormatError, Label, RangeSize, RangeSizes, Seal, TABLE_LEN, VolumeTable};
use braid_home::{Home, OpenError, guard};
use braid_tiers::{Backend, HomeConfig, TierConfig};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A volume that is not mounted, as it is given to be checked.
pub struct Unmounted<'a> {
    /// The home tier.
    pub home: &'a HomeConfig,
    /// All other tiers.
    pub tiers: &'a [TierConfig],
    /// Sizes of ranges that rules give files, beside those that the volume
    /// knows of.
    pub range_sizes: RangeSizes,
    /// Time.
    pub environment: Arc<dyn Environment>,
}

/// A volume that is mounted.
pub struct Mounted<'a> {
    /// Its core.
    pub core: &'a Core,
    /// Sizes that ranges may have, as the volume table says.
    pub range_sizes: RangeSizes,
}

/// A tier other than home.
pub(super) struct GroundTier {
    pub(super) id: TierId,
    pub(super) name: String,
    /// `None` where the tier is absent.
    pub(super) store: Option<Arc<dyn Store>>,
    /// Its directory, where it is one and was given.
    pub(super) root: Option<Fd>,
}

/// The volume that is checked.
pub(super) struct Ground<'a> {
    pub(super) volume: VolumeId,
    /// Of files that no rule gives another one.
    pub(super) range_size: RangeSize,
    /// Others that files may have, by the rules of today or of earlier mounts.
    pub(super) range_sizes: RangeSizes,
    pub(super) home_id: TierId,
    pub(super) home_name: String,
    pub(super) home: Home,
    /// The home tier's `.braid`.
    pub(super) braid: Fd,
    pub(super) user_xattr: bool,
    pub(super) tiers: Vec<GroundTier>,
    /// Tiers that were lost.
    pub(super) lost: Vec<(TierId, String)>,
    /// The open volume, if it is mounted.
    pub(super) mounted: Option<&'a Core>,
    /// The volume table as it has to be, and where in the report that is.
    pub(super) new_table: Option<(usize, VolumeTable)>,
}

type Opening<T> = std::result::Result<T, OpenError>;

/// What was found in the place of a label or table.
enum Found<T> {
    Missing,
    /// The bytes, and what is wrong with them.
    Damaged(Vec<u8>, &'static str),
    Sound(T),
}

impl<T> Found<T> {
    fn sound(&self) -> Option<&T> {
        match self {
            Self::Sound(found) => Some(found),
            _ => None,
        }
    }

    fn wrong(&self, name: &str) -> String {
        match self {
            Self::Missing => format!("its {name} is missing"),
            Self::Damaged(_, why) => format!("its {name} is damaged: {why}"),
            Self::Sound(_) => format!("its {name} does not say what the volume table says"),
        }
    }
}

impl Ground<'_> {
    /// What a tier is called.
    pub(super) fn name_of(&self, id: TierId) -> Option<&str> {
        if id == self.home_id {
            return Some(&self.home_name);
        }
        self.tiers.iter().find(|tier| tier.id == id).map(|tier| tier.name.as_str())
    }

    pub(super) fn is_tier(&self, id: TierId) -> bool {
        self.name_of(id).is_some()
    }

    pub(super) fn attr_name(&self) -> &'static str {
        if self.user_xattr { "user.braid.id" } else { "trusted.braid.id" }
    }
}

impl<'a> Ground<'a> {
    /// The ground of a volume that is mounted, whose labels were believed then.
    pub(super) fn of_mounted(mounted: &Mounted<'a>, options: &CheckOptions) -> Result<Self> {
        let core = mounted.core;
        let root = |name: &str| options.roots.iter().find(|(of, _)| of == name).map(|(_, fd)| Fd::clone(fd));
        let mut tiers = Vec::new();
        for tier in core.tiers.iter() {
            if let Backend::Store(store) = &tier.backend {
                let store = (!tier.is_absent()).then(|| Arc::clone(store));
                // Something else may be mounted there by now.
                // Nor is one asked that may not answer.
                let root = root(&tier.name).filter(|_| tier.is_healthy());
                let root = root.filter(|root| is_tier_of(core, &**root, tier.id));
                tiers.push(GroundTier { id: tier.id, name: tier.name.clone(), store, root });
            }
        }
        let user_xattr = core.home.uses_user_xattr();
        let mut home = Home::open(core.home.root())?;
        home.use_user_xattr(user_xattr);
        home.use_seal(*core.home.seal());
        Ok(Self {
            volume: core.id,
            range_size: core.range_size,
            range_sizes: mounted.range_sizes,
            home_id: core.tiers.home().id,
            home_name: core.tiers.home().name.clone(),
            braid: home.braid()?,
            home,
            user_xattr,
            tiers,
            lost: core.tiers.lost(),
            mounted: Some(core),
            new_table: None,
        })
    }

    /// Reads labels and table, and makes good what is damaged of them.
    pub(super) fn survey(config: &Unmounted<'_>, options: &CheckOptions) -> Opening<(Self, Vec<Problem>)> {
        let home_failed = |error| OpenError::Tier { tier: config.home.name.clone(), error };
        let mut home = Home::open(Fd::clone(&config.home.root)).map_err(home_failed)?;
        guard(&home, &config.home.name)?;
        let label = read(
            &config.home.name,
            "label",
            home.root().read_small(".braid/label", TABLE_LEN),
            Label::decode,
        )?;
        let table = read(
            &config.home.name,
            "volume table",
            home.root().read_small(".braid/volume", TABLE_LEN),
            VolumeTable::decode,
        )?;
        let mut labels = Vec::new();
        for tier in config.tiers {
            let bytes = tier.store.as_ref().map_or(Ok(None), |store| store.label());
            labels.push(read(&tier.name, "label", bytes, Label::decode)?);
        }
        let known = known_table(config, &label, &table, &labels)?;
        let said = label.sound().or_else(|| labels.iter().find_map(|label| said_by(label, &known)));
        let user_xattr = said.map_or_else(|| !braid_sys::is_privileged(), |label| label.user_xattr);
        if !user_xattr && !braid_sys::is_privileged() {
            return Err(OpenError::NeedsRoot { tier: config.home.name.clone() });
        }
        home.use_user_xattr(user_xattr);
        home.use_seal(Seal { volume: known.volume, secret: known.secret });
        let braid = home.braid().map_err(home_failed)?;
        let mut survey =
            Survey { config, options, known: &known, user_xattr, braid: &braid, problems: Vec::new() };
        survey.home_label(&label);
        let tiers = survey.tiers(&labels)?;
        let mut problems = survey.problems;
        let mut new_table = None;
        if table.sound().is_none() {
            new_table = Some((problems.len(), known.clone()));
            let what = table.wrong("volume table");
            problems.push(
                Problem::damage("table-damaged", what)
                    .tier(&config.home.name)
                    .repair("makes it anew from the tiers' labels"),
            );
        }
        let ground = Self {
            volume: known.volume,
            range_size: known.range_size,
            range_sizes: config.range_sizes | known.range_sizes,
            home_id: known.home,
            home_name: config.home.name.clone(),
            braid,
            home,
            user_xattr,
            tiers,
            lost: known.lost,
            mounted: None,
            new_table,
        };
        Ok((ground, problems))
    }
}

/// The labels, against what they have to say.
struct Survey<'a> {
    config: &'a Unmounted<'a>,
    options: &'a CheckOptions,
    known: &'a VolumeTable,
    user_xattr: bool,
    braid: &'a Fd,
    problems: Vec<Problem>,
}

impl Survey<'_> {
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

    /// Whether a label says what it has to. One that is behind, since its tier
    /// was not there when the volume got its key, does; the next mount renews it.
    fn is_right(&self, found: &Found<Label>, expected: &Label) -> bool {
        let behind = |label: &Label| label.secret.is_none() || expected.secret.is_none();
        found.sound().is_some_and(|label| match behind(label) {
            true => Label { secret: None, ..label.clone() } == Label { secret: None, ..expected.clone() },
            false => label == expected,
        })
    }

    fn home_label(&mut self, found: &Found<Label>) {
        let name = self.config.home.name.as_str();
        let expected = self.expected(self.known.home, name);
        if !self.is_right(found, &expected) {
            let braid = self.braid;
            self.relabel(found, name, || braid.replace_small("label", &expected.encode()));
        }
    }

    fn tiers(&mut self, labels: &[Found<Label>]) -> Opening<Vec<GroundTier>> {
        let mut tiers = Vec::new();
        for (config, found) in self.config.tiers.iter().zip(labels) {
            let id = self.number(config, found)?;
            let expected = self.expected(id, &config.name);
            if let Some(store) = config.store.as_ref().filter(|_| !self.is_right(found, &expected)) {
                self.relabel(found, &config.name, || store.set_label(&expected.encode()));
            }
            if config.store.is_none() {
                let what = "the tier is absent: what is on it was not checked, and can't be read";
                self.problems.push(
                    Problem::note("tier-absent", what)
                        .tier(&config.name)
                        .repair("give the tier its device back"),
                );
            }
            let root = self.options.roots.iter().find(|(of, _)| *of == config.name);
            let root = root.map(|(_, fd)| Fd::clone(fd));
            tiers.push(GroundTier { id, name: config.name.clone(), store: config.store.clone(), root });
        }
        let given =
            |number: &TierId| *number == self.known.home || tiers.iter().any(|tier| tier.id == *number);
        match self.known.tiers.iter().find(|(number, _)| !given(number)) {
            Some((_, name)) => Err(OpenError::MissingTier { tier: name.clone() }),
            None => Ok(tiers),
        }
    }

    fn relabel(&mut self, found: &Found<Label>, name: &str, write: impl FnOnce() -> Result<()>) {
        let mut problem = Problem::damage("label-damaged", found.wrong("label"))
            .tier(name)
            .repair("makes it anew from the volume table and the other labels");
        if self.options.repair {
            match write() {
                Ok(()) => problem.repaired = true,
                Err(error) => problem.repair = format!("{}; that failed: {error}", problem.repair),
            }
        }
        self.problems.push(problem);
    }

    /// The number of a tier, after making sure that it is that tier.
    fn number(&self, config: &TierConfig, found: &Found<Label>) -> Opening<TierId> {
        let tier = || config.name.clone();
        let by_name = self.known.tiers.iter().find(|(_, name)| *name == config.name).map(|(id, _)| *id);
        let label = match (found, by_name) {
            (Found::Sound(label), _) => label,
            (_, Some(id)) if config.store.is_none() || self.is_surely(config, found, id) => return Ok(id),
            (Found::Damaged(_, why), _) => {
                return Err(OpenError::Damaged {
                    tier: tier(),
                    what: format!("its label is damaged: {why}"),
                });
            }
            (Found::Missing, Some(_)) => return Err(OpenError::NotLabelled { tier: tier() }),
            (Found::Missing, None) => return Err(no_volume()),
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
    /// for: what is left of the label says so, or what is in it. An empty
    /// directory may be where the tier's file system was to be mounted.
    fn is_surely(&self, config: &TierConfig, found: &Found<Label>, id: TierId) -> bool {
        const DIFFERENT_MAX: usize = 8;
        let expected = self.expected(id, &config.name).encode();
        if let Found::Damaged(bytes, _) = found {
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
                super::tree::regular_if_there(&**self.braid, &path).is_ok_and(|found| found.is_some())
            })
    }
}

/// Whether a directory is labelled as this tier of the volume.
fn is_tier_of(core: &Core, root: &dyn NativeFd, id: TierId) -> bool {
    let label = root.read_small(".braid/label", TABLE_LEN).ok().flatten();
    let label = label.and_then(|bytes| Label::decode(&bytes).ok());
    label.is_some_and(|label| label.volume == core.id && label.tier == id)
}

/// The label if it is of the volume.
fn said_by<'a>(label: &'a Found<Label>, table: &VolumeTable) -> Option<&'a Label> {
    label.sound().filter(|label| label.volume == table.volume)
}

/// The volume table, or one made from the labels.
fn known_table(
    config: &Unmounted<'_>,
    label: &Found<Label>,
    table: &Found<VolumeTable>,
    labels: &[Found<Label>],
) -> Opening<VolumeTable> {
    let tier = || config.home.name.clone();
    if let Some(label) = label.sound() {
        if !label.home {
            return Err(OpenError::NotHome { tier: tier(), found: label.volume });
        }
        if label.name != config.home.name {
            return Err(OpenError::OtherTier { tier: tier(), found: label.name.clone() });
        }
    }
    match (label, table) {
        (Found::Sound(label), Found::Sound(table)) => {
            if table.volume != label.volume || table.home != label.tier {
                let what = "its label and its volume table are of different volumes".to_owned();
                return Err(OpenError::Damaged { tier: tier(), what });
            }
            Ok(table.clone())
        }
        (_, Found::Sound(table)) => {
            let name = table.tiers.iter().find(|(id, _)| *id == table.home).map(|(_, name)| name);
            match name.filter(|name| **name != config.home.name) {
                Some(name) => Err(OpenError::OtherTier { tier: tier(), found: name.clone() }),
                None => Ok(table.clone()),
            }
        }
        (Found::Sound(label), _) => Ok(table_from(label, labels)),
        (Found::Missing, Found::Missing) => Err(no_volume()),
        _ => {
            let what = format!("{} and {}", label.wrong("label"), table.wrong("volume table"));
            Err(OpenError::Damaged { tier: tier(), what })
        }
    }
}

fn table_from(home: &Label, labels: &[Found<Label>]) -> VolumeTable {
    let of_this = |label: &&Label| label.volume == home.volume;
    let of_volume = labels.iter().filter_map(Found::sound).filter(of_this);
    let mut tiers: Vec<_> =
        std::iter::once(home).chain(of_volume).map(|label| (label.tier, label.name.clone())).collect();
    tiers.sort();
    tiers.dedup_by_key(|(id, _)| *id);
    VolumeTable {
        volume: home.volume,
        range_size: home.range_size,
        // What rules gave files is known again when they are mounted with.
        range_sizes: RangeSizes::default(),
        home: home.tier,
        tiers,
        lost: Vec::new(),
        removed: Vec::new(),
        secret: home.secret.or_else(|| {
            labels.iter().filter_map(Found::sound).filter(of_this).find_map(|label| label.secret)
        }),
    }
}

fn no_volume() -> OpenError {
    let what = "there is no volume on these tiers; mount their devices (are they mounted?), or make one: braid create";
    OpenError::Other(Error::new(Errno::ENOENT, what))
}

fn read<T>(
    tier: &str,
    what: &str,
    bytes: Result<Option<Vec<u8>>>,
    decode: fn(&[u8]) -> std::result::Result<T, FormatError>,
) -> Opening<Found<T>> {
    let bytes = match bytes {
        Ok(None) => return Ok(Found::Missing),
        Ok(Some(bytes)) => bytes,
        Err(error) => {
            let error = error.context(format!("reading its {what}"));
            return Err(OpenError::Tier { tier: tier.into(), error });
        }
    };
    match decode(&bytes) {
        Ok(sound) => Ok(Found::Sound(sound)),
        Err(FormatError::Newer(found)) => {
            Err(OpenError::NewerFormat { tier: tier.into(), found, supported: FORMAT_VERSION })
        }
        Err(FormatError::Damaged(why)) => Ok(Found::Damaged(bytes, why)),
    }
}

impl super::Check<'_> {
    /// Writes the volume table that was made from labels, if they tell of all
    /// tiers that indexes name.
    pub(super) fn finish_table(&mut self) -> Result<()> {
        let Some((at, table)) = &self.ground.new_table else { return Ok(()) };
        let outcome = match (self.names_unknown_tier, self.options.repair) {
            _ if !self.options.paths.is_empty() => {
                ControlFlow::Break("nothing is done: only some of the files were looked at".to_owned())
            }
            (true, _) => {
                ControlFlow::Break("nothing is done: indexes name a tier that was not given".to_owned())
            }
            (false, false) => return Ok(()),
            (false, true) => match self.ground.braid.replace_small("volume", &table.encode()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    ControlFlow::Break(format!("makes it anew from the labels; that failed: {error}"))
                }
            },
        };
        // Labels come first in the report, and nothing before them is taken out.
        if let Some(problem) = self.report.problems.get_mut(*at) {
            match outcome {
                ControlFlow::Continue(()) => problem.repaired = true,
                ControlFlow::Break(why) => problem.repair = why,
            }
        }
        Ok(())
    }
}
