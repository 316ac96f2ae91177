//! The contents of all tiers' `.braid` directories: indexes and objects, and
//! files that do not belong there.

use super::BraidDir;
use super::jobs::check_jobs;
use super::shards::{Listing, ShardLister, ShardedKind};
use crate::findings::Findings;
use crate::progress::ProgressReporter;
use crate::report::Problem;
use crate::target::{CheckTarget, TargetTier};
use crate::tree::dir_if_there;
use braid_contract::{Errno, Error, Fd, ObjectId, Result, Store};
use std::collections::HashSet;

/// Names in `.braid` of a home tier, and of any other tier.
const HOME_NAMES: &[&str] = &[
    "label", "volume", "index", "open", "counts", "ballast", "intent", "limbo", "heat", "jobs", "import",
    "README", "speeds", "streams",
];
const DATA_NAMES: &[&str] = &["label", "data", "README"];

/// The indexes and objects of the volume.
pub(crate) struct Listings {
    pub(crate) indexes: Listing,
    /// By the place of the tier in the target.
    objects: Vec<Listing>,
    /// Ids whose index or object is not a regular file.
    pub(crate) irregular: HashSet<ObjectId>,
}

impl Listings {
    /// Empty listings, for a check of some files only.
    pub(crate) fn none(target: &CheckTarget<'_>) -> Self {
        Self {
            indexes: Listing::default(),
            objects: target.tiers.iter().map(|_| Listing::default()).collect(),
            irregular: HashSet::new(),
        }
    }

    /// Each tier, and its objects.
    pub(crate) fn by_tier<'l>(
        &'l self,
        target: &'l CheckTarget<'_>,
    ) -> impl Iterator<Item = (&'l TargetTier, &'l Listing)> {
        target.tiers.iter().zip(&self.objects)
    }

    /// The number of objects on all tiers.
    pub(crate) fn object_count(&self) -> u64 {
        self.objects.iter().map(|listing| listing.ids.len() as u64).sum()
    }
}

/// Checks the `.braid` directories, and lists indexes and objects.
pub(crate) fn check_dirs(
    target: &CheckTarget<'_>,
    findings: &mut Findings,
    progress: &mut ProgressReporter<'_>,
) -> Result<Listings> {
    progress.phase("objects", None)?;
    let owner = if target.user_xattr { target.braid.stat()?.attr.uid } else { 0 };
    let mut irregular = HashSet::new();
    let mut lister = DirLister { target, owner, findings, progress, irregular: &mut irregular };
    let indexes = lister.home()?;
    let mut objects = Vec::new();
    for tier in &target.tiers {
        objects.push(lister.tier(tier).or_else(|error| not_listed(&tier.name, error, lister.findings))?);
    }
    Ok(Listings { indexes, objects, irregular })
}

/// Reports a tier whose objects are unknown, so that none count as orphans.
fn not_listed(tier: &str, error: Error, findings: &mut Findings) -> Result<Listing> {
    if error.errno() == Errno::EINTR {
        return Err(error);
    }
    let problem = Problem::damage("tier-unreadable", format!("what is on it can't be listed: {error}"));
    findings.found(problem.tier(tier).repair("nothing is done: check again when the tier can be read"));
    Ok(Listing::default())
}

/// The listing of the tiers, under way.
struct DirLister<'c, 'p> {
    target: &'c CheckTarget<'c>,
    owner: u32,
    findings: &'c mut Findings,
    progress: &'c mut ProgressReporter<'p>,
    irregular: &'c mut HashSet<ObjectId>,
}

impl DirLister<'_, '_> {
    /// The indexes on the home tier.
    fn home(&mut self) -> Result<Listing> {
        let (target, owner) = (self.target, self.owner);
        let is_mounted = target.is_mounted();
        let braid = BraidDir { fd: &target.braid, tier: &target.home_name, owner, is_mounted };
        braid.check(HOME_NAMES, self.findings)?;
        check_jobs(&braid, self.findings)?;
        self.shards(&braid, ShardedKind::Index)
    }

    /// The objects of a tier.
    fn tier(&mut self, tier: &TargetTier) -> Result<Listing> {
        match (&tier.root, &tier.store) {
            (_, None) => Ok(Listing::default()),
            (Some(root), _) => self.data_tier(root, &tier.name),
            (None, Some(store)) => list_store(&**store),
        }
    }

    /// The objects of a tier whose directory was given.
    fn data_tier(&mut self, root: &Fd, tier: &str) -> Result<Listing> {
        let Some(fd) = dir_if_there(&**root, ".braid")? else { return Ok(Listing::default()) };
        let braid = BraidDir { fd: &fd, tier, owner: self.owner, is_mounted: self.target.is_mounted() };
        braid.check(DATA_NAMES, self.findings)?;
        self.shards(&braid, ShardedKind::Object)
    }

    fn shards(&mut self, braid: &BraidDir<'_>, kind: ShardedKind) -> Result<Listing> {
        let (findings, progress) = (&mut *self.findings, &mut *self.progress);
        ShardLister { braid, kind, findings, progress, irregular: self.irregular }.list()
    }
}

fn list_store(store: &dyn Store) -> Result<Listing> {
    let mut listing = Listing::default();
    store.list(&mut |id| _ = listing.ids.insert(id))?;
    Ok(listing)
}
