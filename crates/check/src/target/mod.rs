//! The volume that is checked, mounted or not: its home, its tiers, and how to
//! change it.

pub(crate) mod decoded;
pub(crate) mod labels;
pub(crate) mod table;

use crate::report::CheckOptions;
use braid_contract::{Environment, Fd, NativeFd, Result, Store, TierId, VolumeId};
use braid_core::Core;
use braid_format::{Label, RangeSize, RangeSizes, TABLE_LEN};
use braid_home::Home;
use braid_tiers::{Backend, HomeConfig, TierConfig};
use std::sync::Arc;

/// An unmounted volume that is to be checked.
pub struct Unmounted<'a> {
    /// The home tier.
    pub home: &'a HomeConfig,
    /// All other tiers.
    pub tiers: &'a [TierConfig],
    /// Range sizes of rules, beside those in the volume table.
    pub range_sizes: RangeSizes,
    /// The clock.
    pub environment: Arc<dyn Environment>,
}

/// A mounted volume that is to be checked.
pub struct Mounted<'a> {
    /// Its core.
    pub core: &'a Core,
    /// Range sizes of rules, by the volume table.
    pub range_sizes: RangeSizes,
}

/// A tier other than home.
pub(crate) struct TargetTier {
    pub(crate) id: TierId,
    pub(crate) name: String,
    /// `None` where the tier is absent.
    pub(crate) store: Option<Arc<dyn Store>>,
    /// Its directory, where it is one and was given.
    pub(crate) root: Option<Fd>,
}

/// The volume that is checked.
pub(crate) struct CheckTarget<'a> {
    pub(crate) volume: VolumeId,
    /// Range size of files to which no rule gives another one.
    pub(crate) range_size: RangeSize,
    /// Range sizes of the rules of this mount or of earlier ones.
    pub(crate) range_sizes: RangeSizes,
    pub(crate) home_id: TierId,
    pub(crate) home_name: String,
    pub(crate) home: Home,
    /// The home tier's `.braid`.
    pub(crate) braid: Fd,
    pub(crate) user_xattr: bool,
    pub(crate) tiers: Vec<TargetTier>,
    /// Tiers that were lost.
    pub(crate) lost: Vec<(TierId, String)>,
    /// The core of the volume, if it is mounted.
    pub(crate) mounted: Option<&'a Core>,
}

impl<'a> CheckTarget<'a> {
    /// A mounted volume, whose labels were verified by the mount.
    pub(crate) fn of_mounted(mounted: &Mounted<'a>, options: &CheckOptions) -> Result<Self> {
        let core = mounted.core;
        let mut tiers = Vec::new();
        for tier in core.tiers.iter() {
            if let Backend::Store(store) = &tier.backend {
                let store = (!tier.is_absent()).then(|| Arc::clone(store));
                // A tier in trouble may not answer, and another file system may
                // be mounted there by now.
                let root = options.root_of(&tier.name).filter(|_| tier.is_healthy());
                let root = root.filter(|root| is_tier_of(core, &**root, tier.id));
                tiers.push(TargetTier { id: tier.id, name: tier.name.clone(), store, root });
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
        })
    }

    pub(crate) fn is_mounted(&self) -> bool {
        self.mounted.is_some()
    }

    pub(crate) fn is_tier(&self, id: TierId) -> bool {
        id == self.home_id || self.tiers.iter().any(|tier| tier.id == id)
    }

    /// The name of a tier that was lost.
    pub(crate) fn lost_name(&self, id: TierId) -> Option<&str> {
        self.lost.iter().find(|(lost, _)| *lost == id).map(|(_, name)| name.as_str())
    }

    /// The extended attribute with the id of a file.
    pub(crate) fn attr_name(&self) -> &'static str {
        if self.user_xattr { "user.braid.id" } else { "trusted.braid.id" }
    }

    /// Whether a file lost its last name since it was opened, so that its index
    /// and objects may be gone.
    pub(crate) fn is_gone(&self, fd: &Fd) -> bool {
        self.is_mounted() && self.home.identify(&**fd).map_or(true, |identity| identity.attr.nlink == 0)
    }

    /// Takes index entries away, or replaces them, by `act`. The saved counts of
    /// ranges must not be believed after that.
    pub(crate) fn change_entries(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(core) = self.mounted {
            let done = act();
            core.tiers.distrust_counts();
            return done;
        }
        self.braid.ensure_gone_at("counts")?;
        self.braid.sync(false)?;
        act()
    }
}

/// Whether a directory is labelled as this tier of the volume.
fn is_tier_of(core: &Core, root: &dyn NativeFd, id: TierId) -> bool {
    let label = root.read_small(".braid/label", TABLE_LEN).ok().flatten();
    let label = label.and_then(|bytes| Label::decode(&bytes).ok());
    label.is_some_and(|label| label.volume == core.id && label.tier == id)
}
