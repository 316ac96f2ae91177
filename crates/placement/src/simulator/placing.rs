//! Placing the bytes of an operation, as a volume would.

use super::clock::Clock;
use super::config::SimulatorConfig;
use super::file::{File, Piece};
use super::outcome::PlacedBy;
use super::tiers::{HOME, Tiers};
use crate::context::{Context, Origin, TierView, WriteSpan};
use crate::credits::Credits;
use crate::epoch::Epoch;
use crate::policy::{Policy, TURNS_MAX};
use crate::policy_config::make_policy;
use crate::rules::{Chosen, Facts, Rules};
use crate::trace::{TraceFile, TraceOp, TraceOpKind};
use braid_contract::{Environment, Hint, StreamId, TierId};
use braid_format::{RangeSize, Reason};
use braid_hint::Task;
use std::sync::Arc;

/// The facts of a file, for rules.
struct About<'a> {
    file: &'a TraceFile,
    now_ns: u64,
}

impl Facts for About<'_> {
    fn path(&self) -> &str {
        &self.file.path
    }

    fn owner(&self) -> i64 {
        self.file.uid.into()
    }

    fn age_ns(&self) -> i64 {
        let since_ns = self.now_ns.saturating_sub(self.file.at_ns);
        i64::try_from(self.file.age_ns.saturating_add(since_ns)).unwrap_or(i64::MAX)
    }

    fn task(&self, _thread: u32) -> Option<Task> {
        // Traces have no names of threads.
        None
    }
}

/// The policy and rules, and the tiers.
pub(super) struct Placing {
    /// Range size of files without a rule that says otherwise.
    pub(super) range_size: RangeSize,
    pub(super) tiers: Tiers,
    policy: Arc<dyn Policy>,
    rules: Rules,
    clock: Arc<Clock>,
    /// Bytes of writes for which no tier had room.
    pub(super) refused_bytes: u64,
}

impl Placing {
    /// `None` if a policy or rule names an unknown tier, or there are no tiers.
    pub(super) fn new(config: &SimulatorConfig, clock: &Arc<Clock>) -> Option<Self> {
        let tiers = Tiers::new(config, clock)?;
        let number = |name: &str| tiers.number(name);
        Some(Self {
            range_size: config.range_size,
            policy: make_policy(&config.policy, number)?,
            rules: Rules::make(&config.rules, &config.hints, number)?,
            tiers,
            clock: Arc::clone(clock),
            refused_bytes: 0,
        })
    }

    /// Passes a completed epoch to the policies.
    pub(super) fn end_epoch(&self, epoch: &Epoch) {
        self.policy.epoch(epoch);
        self.rules.policies().for_each(|policy| policy.epoch(epoch));
    }

    /// Carries out the part that takes no time, and answers the rest.
    pub(super) fn carry_out(&mut self, op: &TraceOp, about: &TraceFile, file: &mut File) -> Vec<Piece> {
        let end = op.offset + op.len;
        self.settle(op, about, file, end);
        match op.kind {
            TraceOpKind::Read => {
                let end = end.min(file.size);
                self.find(op, about, file, end);
                file.pieces(op.offset, end)
            }
            TraceOpKind::Write => {
                self.find(op, about, file, end.min(file.found));
                self.write(op, about, file, end)
            }
            TraceOpKind::Allocate => {
                self.spread_ahead(op, about, file, end);
                // Range by range, like a volume.
                for range in file.ranges_of(op.offset, end) {
                    let offset = (range * file.range_size()).max(op.offset);
                    let end = ((range + 1) * file.range_size()).min(end);
                    let part = TraceOp { offset, len: end - offset, ..*op };
                    self.find(&part, about, file, end.min(file.found));
                    self.write(&part, about, file, end);
                }
                Vec::new()
            }
            TraceOpKind::Truncate => {
                self.tiers.free(&file.cut(op.size));
                Vec::new()
            }
            TraceOpKind::Remove => {
                self.tiers.free(&file.cut(0));
                Vec::new()
            }
            TraceOpKind::Create | TraceOpKind::Open | TraceOpKind::Sync => Vec::new(),
        }
    }

    /// Fixes a file's range size at the first operation on its data, by the
    /// rules for that moment.
    fn settle(&self, op: &TraceOp, about: &TraceFile, file: &mut File, end: u64) {
        let (origin, span) = match op.kind {
            _ if file.is_settled() => return,
            _ if file.found > 0 => {
                (Origin { uid: about.uid, ..Origin::default() }, WriteSpan::at_rest(file.found))
            }
            TraceOpKind::Write | TraceOpKind::Allocate => (origin(op), span(op, file.size, end, 0)),
            _ => return,
        };
        let facts = About { file: about, now_ns: self.now() };
        let rule = self.rules.find(&facts, origin, span);
        file.settle(rule.and_then(|rule| rule.range_size).unwrap_or(self.range_size));
    }

    /// Decides the tiers of ranges in `offset .. end` that existed before, as
    /// the policy would for one thread, without taking time.
    fn find(&mut self, op: &TraceOp, about: &TraceFile, file: &mut File, end: u64) {
        for range in file.ranges_of(op.offset, end) {
            if file.is_placed(range) || !file.is_found(range) {
                continue;
            }
            let start = range * file.range_size();
            let span = WriteSpan {
                offset: start,
                len: file.range_size(),
                size: start,
                size_after: file.found,
                new_bytes: file.range_size(),
            };
            let request = (about, Origin { uid: about.uid, ..Origin::default() }, span);
            let home_first = range == 0 && !self.sends_away(request);
            let chosen = if home_first { None } else { self.choose(request, &file.credits, None) };
            let tier = chosen.as_ref().map_or(HOME, |chosen| chosen.tier);
            let share =
                chosen.as_ref().map_or(&self.policy, |chosen| &chosen.policy).share(&self.tiers.view(tier));
            file.credits.add(tier, file.range_size(), share);
            self.put(file, range, tier, PlacedBy::Before);
            self.tiers.take(&file.fill(start, start + file.found_bytes(range)));
        }
    }

    /// Gives the bytes of a write their tiers, like a volume, and answers
    /// these.
    fn write(&mut self, op: &TraceOp, about: &TraceFile, file: &mut File, end: u64) -> Vec<Piece> {
        if op.len == 0 {
            return Vec::new();
        }
        let grows = end.saturating_sub(file.size.max(op.offset));
        let is_full = grows > self.tiers.home_room();
        let stays = if file.spread || is_full { None } else { self.stays_plain(op, about, file, end) };
        if !file.spread && stays.is_none() {
            self.spread(file);
        }
        let reserves = op.kind == TraceOpKind::Allocate;
        let is_new = |range: &u64| {
            if reserves { !file.is_placed(*range) } else { file.is_undealt(*range) }
        };
        let new: Vec<u64> = file.ranges_of(op.offset, end).filter(is_new).collect();
        if let Some(by) = stays {
            new.into_iter().for_each(|range| self.put(file, range, HOME, by));
        } else if !new.is_empty() && !self.deal(op, about, file, end, &new) {
            self.refused_bytes += op.len;
            return Vec::new();
        }
        file.size = file.size.max(end);
        self.tiers.take(&file.fill(op.offset, end));
        file.pieces(op.offset, end)
    }

    /// Makes a plain file a spread one.
    fn spread(&self, file: &mut File) {
        file.spread = true;
        let home_bytes = file.placed_count() * file.range_size();
        if home_bytes > 0 {
            let share = self.policy.share(&self.tiers.view(HOME));
            file.credits.add(HOME, home_bytes, share);
        }
        file.set_aside = file.credits.clone();
    }

    /// Spreads a plain file before it gets room, if some of it may be wanted on
    /// another tier.
    fn spread_ahead(&self, op: &TraceOp, about: &TraceFile, file: &mut File, end: u64) {
        let range_size = file.range_size();
        if file.spread || end <= range_size || self.tiers.count() == 1 {
            return;
        }
        let mut credits = file.fresh_deal();
        let home_bytes = file.size.min(op.offset).next_multiple_of(range_size);
        if home_bytes > 0 {
            credits.add(HOME, home_bytes, self.policy.share(&self.tiers.view(HOME)));
        }
        for range in file.ranges_of(op.offset, end).take(TURNS_MAX) {
            let span = WriteSpan {
                offset: range * range_size,
                len: range_size,
                size: file.size,
                size_after: file.size.max(end),
                new_bytes: range_size,
            };
            let Some(chosen) = self.choose((about, origin(op), span), &credits, None) else { return };
            let is_ruled = matches!(chosen.reason, Reason::Rule(_));
            if chosen.tier != HOME || !is_ruled && chosen.policy.decides_at_write() {
                return self.spread(file);
            }
            credits.add(HOME, range_size, chosen.policy.share(&self.tiers.view(HOME)));
        }
    }

    /// Gives `new` ranges of a spread file their tier, for data or for space
    /// that is set aside. Answers whether there is room.
    fn deal(&mut self, op: &TraceOp, about: &TraceFile, file: &mut File, end: u64, new: &[u64]) -> bool {
        let new_bytes = new.len() as u64 * file.range_size();
        let (origin, span) = (origin(op), span(op, file.size, end, new_bytes));
        let set_aside_on = new.iter().find_map(|range| file.set_aside_on(*range));
        let is_whole = |at: u64| at.is_multiple_of(file.range_size());
        let aside = origin.reserves && is_whole(op.offset) && (is_whole(end) || end >= file.size);
        let credits = if aside { &file.set_aside } else { &file.credits };
        let Some(chosen) = self.choose((about, origin, span), credits, set_aside_on) else { return false };
        let tiers = self.tiers.views(span.needed_bytes());
        let share = chosen.policy.share(&tiers[usize::from(chosen.tier.0)]);
        if aside {
            // Writes decide the file's shares.
            file.set_aside.add(chosen.tier, new_bytes, share);
        } else {
            chosen.policy.placed(&context(about, origin, span, credits, &tiers), chosen.tier);
            file.credits.add(chosen.tier, new_bytes, share);
        }
        for range in new.iter().copied() {
            let before = file.take_back(range);
            self.put(file, range, chosen.tier, placed_by(&chosen));
            if aside {
                file.sets_aside(range, placed_by(&chosen));
            } else if let Some((space, by)) = before {
                // Its space follows.
                self.tiers.take_back(space.tier, by);
                self.tiers.free(&[space]);
                let start = range * file.range_size();
                self.tiers.take(&file.fill(start, start + space.bytes));
            }
        }
        true
    }

    /// Whether a plain file stays plain with a write, and the origin of the
    /// placement of its growth on home.
    fn stays_plain(&self, op: &TraceOp, about: &TraceFile, file: &File, end: u64) -> Option<PlacedBy> {
        let (origin, range_size) = (origin(op), file.range_size());
        let room = self.tiers.home_room();
        if end <= range_size && room >= op.len {
            let new = op.offset == 0 && file.size == 0;
            let goes = new && self.sends_away((about, origin, span(op, 0, end, range_size)));
            return (!goes).then_some(PlacedBy::Plain);
        }
        let grows_from = file.size.next_multiple_of(range_size).max(op.offset);
        if grows_from >= end {
            return (end <= file.size || room > 0).then_some(PlacedBy::Plain);
        }
        let new_bytes = end.next_multiple_of(range_size) - op.offset / range_size * range_size;
        let mut credits = file.fresh_deal();
        if file.size > 0 {
            let share = self.policy.share(&self.tiers.view(HOME));
            credits.add(HOME, file.size.next_multiple_of(range_size), share);
        }
        let request = (about, origin, span(op, file.size, end, new_bytes));
        let Some(chosen) = self.choose(request, &credits, None) else { return Some(PlacedBy::Plain) };
        if chosen.tier != HOME {
            return None;
        }
        let tiers = self.tiers.views(request.2.needed_bytes());
        chosen.policy.placed(&context(about, origin, request.2, &credits, &tiers), HOME);
        Some(placed_by(&chosen))
    }

    fn choose(
        &self,
        (about, origin, span): (&TraceFile, Origin, WriteSpan),
        credits: &Credits,
        set_aside_on: Option<TierId>,
    ) -> Option<Chosen> {
        let tiers = self.tiers.views_with(span.needed_bytes(), set_aside_on);
        let context = context(about, origin, span, credits, &tiers);
        let facts = About { file: about, now_ns: self.now() };
        self.rules.choose(&self.policy, &context, &facts, &|name| self.tiers.number(name))
    }

    fn sends_away(&self, (about, origin, span): (&TraceFile, Origin, WriteSpan)) -> bool {
        let facts = About { file: about, now_ns: self.now() };
        self.rules.sends_away((&facts, origin, span), HOME, &|name| self.tiers.number(name))
    }

    fn put(&mut self, file: &mut File, range: u64, tier: TierId, by: PlacedBy) {
        file.put(range, tier);
        self.tiers.put(tier, by);
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_ns()
    }
}

fn origin(op: &TraceOp) -> Origin {
    Origin {
        uid: op.uid,
        gid: op.gid,
        thread: op.thread,
        sync: op.sync,
        direct: op.direct,
        written_back: false,
        reserves: op.kind == TraceOpKind::Allocate,
        hint: Hint { stream: op.stream.map(StreamId), ..Hint::default() },
    }
}

fn span(op: &TraceOp, size: u64, end: u64, new_bytes: u64) -> WriteSpan {
    WriteSpan { offset: op.offset, len: end - op.offset, size, size_after: size.max(end), new_bytes }
}

fn context<'a>(
    about: &TraceFile,
    origin: Origin,
    span: WriteSpan,
    credits: &'a Credits,
    tiers: &'a [TierView],
) -> Context<'a> {
    Context { origin, span, file: about.number, credits, tiers }
}

fn placed_by(chosen: &Chosen) -> PlacedBy {
    match (&chosen.rule, chosen.reason) {
        (Some(rule), Reason::Rule(_) | Reason::RulePolicy(_)) => PlacedBy::Rule(rule.number),
        (_, Reason::Spill) => PlacedBy::Spill,
        _ => PlacedBy::Policy,
    }
}
