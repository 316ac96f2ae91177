//! `explain`: for each range of a file where it is, since when, why, how much
//! it is used, and the movers' present verdict.

use crate::heat::{Decay, key_of};
use crate::volume::Volume;
use braid_contract::{
    HoldingRule, HoldingStream, InodeId, Mover, NamedTier, ObjectId, PlacedRun, Result, TierId,
};
use braid_core::file;
use braid_core::file::{choose, effective_placement, file_of, is_pinned, range_size_in, stream_now};
use braid_core::live::{File, Spread};
use braid_format::{DEGREE_MAX, FileKey, RangeSize, Reason, RuleNumber};
use braid_placement::{Credits, Origin};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// How a file is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileLayout {
    /// All data is in the home file.
    Plain,
    /// All data is in one object on one tier other than home.
    Whole {
        /// The file's object id.
        id: ObjectId,
    },
    /// Ranges are where the index says.
    Spread {
        /// The file's object id.
        id: ObjectId,
    },
}

/// Where a file's bytes are, and why.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// How the file is stored.
    pub layout: FileLayout,
    /// Size of the file in bytes.
    pub size: u64,
    /// Length of the file's ranges in bytes; for a plain file, the length that
    /// they would have.
    pub range_size: u32,
    /// Length of ranges where no rule says otherwise, in bytes.
    pub volume_range_size: u32,
    /// The rule that holds for the file at rest: not always the one that placed
    /// its ranges.
    pub rule: Option<HoldingRule>,
    /// The policy that holds for the file now, and its settings: the one that
    /// `rule` names, or else the volume's.
    pub policy: String,
    /// The stream that its data belongs to, if one is known and passed to
    /// tiers.
    pub stream: Option<HoldingStream>,
    /// The user who owns the file.
    pub owner: u32,
    /// The tier that rules and policy would give a new range of the file now.
    pub next: Option<NamedTier>,
    /// Whether movers leave the file where it is, and the tier that it was
    /// pinned to, if one was named.
    pub pin: Option<Option<String>>,
    /// Runs of ranges with the same description, in order.
    pub runs: Vec<PlacedRun>,
}

impl Volume {
    /// Where the file's bytes are.
    ///
    /// # Errors
    /// `ESTALE` if the inode was never looked up, `EISDIR` or `EINVAL` if it is
    /// not a regular file.
    pub fn explain(&self, ino: InodeId) -> Result<Explanation> {
        let _entered = self.core.barrier.enter();
        let inode = self.core.inodes.get(ino)?;
        let file = file_of(&self.core, &inode)?;
        self.movers.heat.refresh();
        let pinned = is_pinned(&self.core, &file)?;
        let holding = effective_placement(&self.core, &file);
        let layout = file.layout.read();
        let ranges = range_size_in(&self.core, &file, &layout)?;
        let mut told = Explainer {
            volume: self,
            key: key_of(&inode),
            of_policy: (!pinned).then(|| holding.policy.usual_movers()),
            now: self.movers.heat.now(),
            verdicts: HashMap::new(),
            size: 0,
            ranges,
            runs: Vec::new(),
        };
        let (layout, next) = match &*layout {
            braid_core::live::Layout::Plain => {
                told.size = file.home_size()?;
                told.plain();
                (FileLayout::Plain, self.next_tier(&file, None, told.size, ranges))
            }
            braid_core::live::Layout::Spread(spread) => {
                told.size = spread.size();
                told.spread(spread)?;
                let layout = match spread.index.whole() {
                    Some(_) => FileLayout::Whole { id: spread.id() },
                    None => FileLayout::Spread { id: spread.id() },
                };
                (layout, self.next_tier(&file, Some(spread), told.size, ranges))
            }
        };
        let pin = file.pin(&self.core.home)?.map(|pin| pin.tier);
        let pin = pin.or_else(|| pinned.then_some(None));
        let (size, runs) = (told.size, told.runs);
        let (range_size, volume_range_size) = (ranges.get(), self.core.range_size.get());
        let policy = holding.policy.describe();
        let rule = holding.rule.map(|rule| HoldingRule {
            number: rule.number as u64,
            when: rule.when.text().to_owned(),
            tiers: rule.tiers.clone(),
            policy: rule.policy.as_ref().map(|policy| policy.describe()),
        });
        let stream = stream_now(&self.core, &file, told.size).map(|(name, known)| HoldingStream {
            name,
            profile: known.as_ref().and_then(|known| known.profile.clone()),
            life: known.map(|known| known.life.name().to_owned()),
        });
        let owner = self.core.home.identify(&**file.data())?.attr.uid;
        Ok(Explanation {
            owner,
            stream,
            layout,
            size,
            range_size,
            volume_range_size,
            rule,
            policy,
            next,
            pin,
            runs,
        })
    }

    /// The tier that rules and policy would give a new range at the end of the file.
    fn next_tier(
        &self,
        file: &File,
        spread: Option<&Spread>,
        size: u64,
        ranges: RangeSize,
    ) -> Option<NamedTier> {
        let bytes = ranges.bytes();
        let credits = match spread {
            Some(spread) => spread.placing.lock().clone(),
            None => Credits::new(file.inode.ino.0, ranges.get()),
        };
        let span = braid_placement::WriteSpan {
            offset: size,
            len: bytes,
            size,
            size_after: size + bytes,
            new_bytes: bytes,
        };
        let request = file::PlacementRequest::new(file, Origin::default(), span);
        let tier = choose(&self.core, &request, &credits, 0).ok()?.tier;
        Some(NamedTier { id: tier.id, name: tier.name.clone() })
    }
}

/// Collects the description of one file.
struct Explainer<'v> {
    volume: &'v Volume,
    key: FileKey,
    /// The movers of the file's policy; `None` if it is pinned.
    of_policy: Option<&'static [Mover]>,
    now: u32,
    /// The movers' verdict on a range on this tier and of this degree.
    verdicts: HashMap<(TierId, u8), String>,
    size: u64,
    ranges: RangeSize,
    runs: Vec<PlacedRun>,
}

/// A run includes ranges that came to their tier at most this many seconds
/// apart.
const SINCE_APART_MAX: u64 = 60;

impl Explainer<'_> {
    fn plain(&mut self) {
        let volume = self.volume;
        let home = volume.core.tiers.home().id;
        let ranges = 0..self.ranges.count(self.size);
        self.add(ranges, Some(home), 0, "plain file: all of it in the home tree");
    }

    fn spread(&mut self, spread: &Spread) -> Result<()> {
        let count = self.ranges.count(self.size);
        let mut next = 0;
        spread.index.for_each(0, |range, entry| {
            let entry = entry?;
            if range < count {
                self.add(next..range, None, range, NEVER);
                self.add(range..range + 1, Some(entry.tier), range, &describe(entry.reason));
                next = range + 1;
            }
            Ok(())
        })?;
        self.add(next..count, None, next, NEVER);
        Ok(())
    }

    /// Adds ranges to the last run, or begins a new one. Range `record` stands
    /// for the use of all.
    fn add(&mut self, ranges: Range<u64>, tier: Option<TierId>, record: u64, reason: &str) {
        if ranges.is_empty() {
            return;
        }
        let volume = self.volume;
        let record = tier.and_then(|_| volume.movers.heat.table().record(self.key, record as u32));
        let degree = record.map_or(0, |record| record.degree_at(self.now));
        let since = record.map(|record| u64::from(record.since)).filter(|since| *since > 0);
        let bytes = self.ranges.bytes_of(ranges.clone(), self.size);
        let run = PlacedRun {
            offset: bytes.start,
            len: bytes.end - bytes.start,
            ranges: ranges.end - ranges.start,
            tier: tier.map(|id| NamedTier { id, name: volume.core.tiers.name_of(id) }),
            reason: reason.to_owned(),
            since,
            heat: percent(degree),
            now: tier.map_or_else(String::new, |tier| self.verdict(tier, degree)),
        };
        match self.runs.last_mut().filter(|last| continues(last, &run)) {
            Some(last) => {
                last.len += run.len;
                last.ranges += run.ranges;
                last.since = last.since.min(run.since);
            }
            None => self.runs.push(run),
        }
    }

    fn verdict(&mut self, tier: TierId, degree: u8) -> String {
        let (volume, ranges, pinned) = (self.volume, self.ranges, self.of_policy);
        let verdict = || match volume.core.tiers.get(tier) {
            Ok(tier) => volume.movers.verdict(&tier, ranges, degree, pinned),
            Err(_) => "lost".into(),
        };
        self.verdicts.entry((tier, degree)).or_insert_with(verdict).clone()
    }
}

/// Whether both runs have the same description.
fn continues(last: &PlacedRun, run: &PlacedRun) -> bool {
    let about_as_long = match (last.since, run.since) {
        (Some(a), Some(b)) => a.abs_diff(b) <= SINCE_APART_MAX,
        (a, b) => a == b,
    };
    about_as_long
        && (&last.tier, &last.reason, last.heat, &last.now) == (&run.tier, &run.reason, run.heat, &run.now)
}

/// A degree of heat in percent.
fn percent(degree: u8) -> u8 {
    (f64::from(degree) / f64::from(DEGREE_MAX) * 100.0).round() as u8
}

const NEVER: &str = "never written: reads as zeros";

fn describe(reason: Reason) -> Cow<'static, str> {
    let rule = |number: RuleNumber| number.get().map_or("a rule".into(), |number| format!("rule {number}"));
    match reason {
        Reason::Rule(number) => return format!("placed by {}", rule(number)).into(),
        Reason::RulePolicy(number) => return format!("placed by the policy of {}", rule(number)).into(),
        Reason::WasPlain => "written while the file was plain",
        Reason::Policy => "placed by the policy",
        Reason::Spill => "the tier that the policy wanted had no room or was failing",
        Reason::Asked => "there by request",
        Reason::Promoted => "promoted: it is in use",
        Reason::Demoted => "demoted: its tier ran full and it was not in use",
        Reason::Rebalanced => "moved to give every tier its share",
        Reason::Evacuated => "moved off a tier that is to be empty",
        Reason::SetAside => "set aside before there is data: its first write decides anew",
        Reason::Moved => "moved off a tier that had no room for more of it, or can't write over it",
    }
    .into()
}
