//! Which tier new ranges get: what the rules say, or else the policy. `place.rs`
//! and `relocate.rs` ask here.

use super::File;
use crate::Volume;
use crate::format::Reason;
use crate::placement::{self, Deal, Origin, Policy, Span, TierView};
use crate::rules::{Chosen, Facts, Rule, Subject};
use crate::tiers::Tier;
use braid_contract::{Errno, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a tier is asked for.
pub(crate) struct Asking<'a> {
    pub(crate) file: &'a File,
    pub(crate) origin: Origin,
    pub(crate) span: Span,
}

/// The tier that was chosen, by whom and why.
pub(crate) struct Choice {
    pub(crate) tier: Arc<Tier>,
    pub(crate) reason: Reason,
    policy: Arc<dyn Policy>,
    pin: bool,
}

impl Volume {
    /// As [`choose`](Self::choose), for ranges that need a tier now: that none
    /// has room is believed only of figures that are new.
    pub(crate) fn find_room(&self, asking: &Asking<'_>, deal: &Deal, excluded: u64) -> Result<Choice> {
        match self.choose(asking, deal, excluded) {
            Err(error) if error.is_full() => {
                self.tiers.measure_again();
                self.choose(asking, deal, excluded)
            }
            chosen => chosen,
        }
    }

    /// The tier for new ranges. Those in `excluded`, as bits, are out of the
    /// question. `ENOSPC` if no tier has room, by figures that may be a moment
    /// old.
    pub(crate) fn choose(&self, asking: &Asking<'_>, deal: &Deal, excluded: u64) -> Result<Choice> {
        let tiers = self.tiers.views(asking.span.needed_bytes(), excluded);
        let (rules, policy) = (Arc::clone(&self.rules.read()), Arc::clone(&self.policy.read()));
        let facts = FileFacts { volume: self, file: asking.file };
        let number = |name: &str| self.tiers.number(name);
        let chosen = rules.choose(&policy, &asking.context(deal, &tiers), &facts, &number);
        let Chosen { tier, reason, policy, rule } = chosen.ok_or(Errno::ENOSPC)?;
        Ok(Choice { tier: self.tiers.get(tier)?, reason, policy, pin: rule.is_some_and(|rule| rule.pin) })
    }

    /// A plain file grows on home, as was chosen: the policy goes on from there.
    pub(super) fn stays(&self, asking: &Asking<'_>, deal: &Deal, choice: &Choice) {
        let tiers = self.tiers.views(asking.span.needed_bytes(), 0);
        choice.policy.placed(&asking.context(deal, &tiers), choice.tier.id);
    }

    /// The choice was carried out: the policy and the deal go on from there.
    pub(crate) fn placed(&self, asking: &Asking<'_>, deal: &mut Deal, choice: &Choice) {
        let tiers = self.tiers.views(asking.span.needed_bytes(), 0);
        let tier = choice.tier.id;
        choice.policy.placed(&asking.context(deal, &tiers), tier);
        if let Some(view) = tiers.iter().find(|view| view.id == tier) {
            deal.add(tier, asking.span.new_bytes, choice.policy.share(view));
        }
        if choice.pin {
            asking.file.pinned.store(true, Ordering::Relaxed);
        }
    }

    /// A tier's share when ranges are dealt now.
    pub(super) fn share_of(&self, tier: &Tier) -> f64 {
        let policy = Arc::clone(&self.policy.read());
        let tiers = self.tiers.views(0, 0);
        tiers.iter().find(|view| view.id == tier.id).map_or(1.0, |view| policy.share(view))
    }

    /// Whether a rule sends the file to other tiers than home from its first
    /// byte on, however small it is.
    pub(super) fn is_ruled_away(&self, file: &File, origin: Origin, span: Span) -> bool {
        let subject = Subject { facts: &FileFacts { volume: self, file }, origin, span };
        let number = |name: &str| self.tiers.number(name);
        Arc::clone(&self.rules.read()).sends_away(&subject, self.tiers.home().id, &number)
    }

    /// Whether a rule that pins placed some of the file's ranges, or would now.
    pub(crate) fn is_pinned_by_rule(&self, file: &File) -> bool {
        if self.rules.read().is_empty() {
            return false;
        }
        let size = file.ahead().map(|ahead| ahead.size).or_else(|| file.home_size().ok()).unwrap_or(0);
        file.pinned.load(Ordering::Relaxed)
            || self.rule_for(file, Origin::default(), Span::at_rest(size)).is_some_and(|rule| rule.pin)
    }

    pub(super) fn rule_for(&self, file: &File, origin: Origin, span: Span) -> Option<Arc<Rule>> {
        let rules = Arc::clone(&self.rules.read());
        if rules.is_empty() {
            return None;
        }
        rules.find(&Subject { facts: &FileFacts { volume: self, file }, origin, span })
    }
}

impl Asking<'_> {
    fn context<'a>(&self, deal: &'a Deal, tiers: &'a [TierView]) -> placement::Context<'a> {
        placement::Context { origin: self.origin, span: self.span, file: self.file.inode.ino.0, deal, tiers }
    }
}

/// What a rule may ask of a file.
pub(crate) struct FileFacts<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) file: &'a File,
}

impl FileFacts<'_> {
    /// The path below the mount that the file has now; empty if it has none.
    pub(crate) fn path_now(&self) -> String {
        let (path, root) = (self.file.data().path(), self.volume.home.root().path());
        let (Ok(path), Ok(root)) = (path, root) else { return String::new() };
        path.strip_prefix(root).unwrap_or(Path::new("")).to_string_lossy().into_owned()
    }
}

impl Facts for FileFacts<'_> {
    fn path(&self) -> &str {
        self.file.path.get_or_init(|| self.path_now())
    }

    fn owner(&self) -> i64 {
        self.file.data().stat().map_or(-1, |stat| stat.attr.uid.into())
    }

    fn age_ns(&self) -> i64 {
        let Ok(stat) = self.file.data().stat() else { return 0 };
        let born = stat.attr.btime.unwrap_or(stat.attr.ctime);
        let born_ns = born.secs.saturating_mul(1_000_000_000).saturating_add(born.nanos.into());
        self.volume.environment.wall_ns().saturating_sub(born_ns).max(0)
    }
}
