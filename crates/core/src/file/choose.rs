//! Chooses the tier of new ranges: by the rules, or else by the policy. Used by
//! `place.rs`, `leave_home.rs` and `full_range.rs`.

use crate::core::Core;
use crate::file::learned::{follow, learned_stream};
use crate::live::File;
use crate::reap::reap_for_room;
use braid_contract::{Errno, Hint, Result, StreamId, TierId, WriteLife};
use braid_format::{RangeSize, Reason};
use braid_hint::{FoundStream, Hints, KnownStream, Task, Writer};
use braid_placement::{Chosen, Credits, Facts, Origin, Policy, Rule, TierView, WriteSpan};
use braid_tiers::{Tier, bit};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// A request for the tier of new ranges.
pub struct PlacementRequest<'a> {
    /// The file.
    pub file: &'a File,
    /// Where the request comes from.
    pub origin: Origin,
    /// The bytes that are written.
    pub span: WriteSpan,
    /// The tier on which their space is set aside, if one has it: it needs no
    /// room for them.
    pub(super) set_aside_on: Option<TierId>,
}

/// The tier that was chosen, and the policy and reason behind it.
pub struct TierChoice {
    /// The tier that the range goes to.
    pub tier: Arc<Tier>,
    pub(crate) reason: Reason,
    policy: Arc<dyn Policy>,
    stream: Option<StreamId>,
    writer: WriterNames,
    pin: bool,
}

/// The rule and the policy that hold for a file at rest.
pub struct EffectivePlacement {
    /// The rule that holds, if one does.
    pub rule: Option<Arc<Rule>>,
    /// The policy that the rule names, or else the volume's.
    pub policy: Arc<dyn Policy>,
}

impl EffectivePlacement {
    /// Whether rule or policy say which share of the file each tier is to have.
    pub fn decides_shares(&self) -> bool {
        self.rule.as_ref().is_some_and(|rule| !rule.tiers.is_empty()) || self.policy.decides_shares()
    }
}

/// As [`choose`], for ranges that need a tier now: only figures that
/// are new can say that none has room, and no tier counts as full for data of files
/// that are removed.
pub fn find_room(
    core: &Core,
    request: &PlacementRequest<'_>,
    credits: &Credits,
    excluded: u64,
) -> Result<TierChoice> {
    match choose(core, request, credits, excluded) {
        Err(error) if error.is_full() => {
            core.tiers.measure_again();
            choose(core, request, credits, excluded)
        }
        Ok(choice)
            if choice.reason == Reason::Spill
                && core.tiers.any_is_full(request.span.needed_bytes(), excluded) =>
        {
            match reap_for_room(core) {
                true => choose(core, request, credits, excluded),
                false => Ok(choice),
            }
        }
        chosen => chosen,
    }
}

/// The tier for new ranges. Tiers in `excluded`, as bits, are left out.
/// `ENOSPC` if no tier has room, by figures that may be a moment old.
pub fn choose(
    core: &Core,
    request: &PlacementRequest<'_>,
    credits: &Credits,
    excluded: u64,
) -> Result<TierChoice> {
    let mut tiers = core.tiers.views(request.span.needed_bytes(), excluded);
    if let Some(on) = request.set_aside_on.filter(|on| excluded & bit(*on) == 0)
        && let Some(view) = tiers.iter_mut().find(|view| view.id == on)
    {
        let tier = core.tiers.get(on)?;
        view.has_room |= tier.is_healthy() && tier.takes_ranges();
    }
    let (rules, policy) = (core.placer.rules(), core.placer.policy());
    let facts = FileFacts::new(core, request.file);
    let number = |name: &str| core.tiers.number(name);
    let chosen = rules.choose(&policy, &request.context(credits, &tiers), &facts, &number);
    let Chosen { tier, reason, policy, rule, stream } = chosen.ok_or(Errno::ENOSPC)?;
    let writer = facts.writer;
    request.file.stream.set(rules.generation(), request.origin.thread, stream);
    let (tier, pin) = (core.tiers.get(tier)?, rule.is_some_and(|rule| rule.pin));
    Ok(TierChoice { tier, reason, policy, stream: stream.stream, writer, pin })
}

/// Reports to the policy that a plain file grows on home, as it chose.
pub(super) fn stays(core: &Core, request: &PlacementRequest<'_>, credits: &Credits, choice: &TierChoice) {
    let tiers = core.tiers.views(request.span.needed_bytes(), 0);
    choice.policy.placed(&request.context(credits, &tiers), choice.tier.id);
}

/// Notes in `credits` that the choice was carried out, for which no data is
/// written now.
pub(super) fn credited(
    core: &Core,
    request: &PlacementRequest<'_>,
    credits: &mut Credits,
    choice: &TierChoice,
) {
    choice.add_to(credits, &core.tiers.views(0, 0), request.span.new_bytes);
}

/// Reports to policy and credits that the choice was carried out.
pub fn placed(core: &Core, request: &PlacementRequest<'_>, credits: &mut Credits, choice: &TierChoice) {
    let tiers = core.tiers.views(request.span.needed_bytes(), 0);
    choice.policy.placed(&request.context(credits, &tiers), choice.tier.id);
    choice.add_to(credits, &tiers, request.span.new_bytes);
    let facts = FileFacts { writer: choice.writer.clone(), ..FileFacts::new(core, request.file) };
    follow(core, request.file, &facts, request.origin, choice.stream);
    if choice.pin {
        request.file.pinned.store(true, Ordering::Relaxed);
    }
}

/// A tier's share when ranges are dealt now.
pub(super) fn share_of(core: &Core, tier: &Tier) -> f64 {
    let policy = core.placer.policy();
    let tiers = core.tiers.views(0, 0);
    tiers.iter().find(|view| view.id == tier.id).map_or(1.0, |view| policy.share(view))
}

/// The credits of a file that has so many bytes, all of them on home.
pub(super) fn charge_home(core: &Core, file: &File, bytes: u64, ranges: RangeSize) -> Credits {
    let mut credits = Credits::new(file.inode.ino.0, ranges.get());
    if bytes > 0 {
        credits.add(core.tiers.home().id, bytes, share_of(core, core.tiers.home()));
    }
    credits
}

/// Whether a rule sends the file to other tiers than home from its first
/// byte on, however small it is.
pub(super) fn is_ruled_away(core: &Core, file: &File, origin: Origin, span: WriteSpan) -> bool {
    let number = |name: &str| core.tiers.number(name);
    let facts = FileFacts::new(core, file);
    core.placer.rules().sends_away((&facts, origin, span), core.tiers.home().id, &number)
}

/// The hint for a tier about data written to the file, which has this size: the stream
/// that its writer, a rule or a profile names. The caller may hold the layout.
pub(super) fn hint_of(core: &Core, file: &File, size: u64, origin: Origin) -> Hint {
    let rules = core.placer.rules();
    if !rules.hints().is_on() {
        return Hint::default();
    }
    let span = WriteSpan::at_rest(size);
    let ask = || rules.stream_of(&FileFacts::new(core, file), origin, span);
    // Each write asks: the rules are looked at once.
    let found = || file.stream.get_or(rules.generation(), origin.thread, ask).stream;
    let stream = origin.hint.stream.or_else(found);
    let known = stream.and_then(|stream| rules.hints().stream(stream));
    let life = known.and_then(|known| life_of(core, known));
    Hint { stream, life }
}

/// The stream that tiers get for the file, by its name, and the facts known of
/// it. The caller may hold the layout.
pub fn stream_now(core: &Core, file: &File, size: u64) -> Option<(String, Option<KnownStream>)> {
    let rules = core.placer.rules();
    let hint = hint_of(core, file, size, Origin::default());
    let known = |stream| {
        let known = rules.hints().stream(stream)?;
        Some(KnownStream { life: life_of(core, known)?, ..known.clone() })
    };
    hint.stream.map(|stream| (rules.hints().name(stream), known(stream)))
}

fn life_of(core: &Core, known: &KnownStream) -> Option<WriteLife> {
    known.learned.map_or(Some(known.life), |number| core.learning.life(number))
}

/// Whether movers leave the file where it is.
pub fn is_pinned(core: &Core, file: &File) -> Result<bool> {
    Ok(is_pinned_by_rule(core, file) || file.pin(&core.home)?.is_some())
}

/// Whether a rule that pins placed some of the file's ranges, or would now.
fn is_pinned_by_rule(core: &Core, file: &File) -> bool {
    if core.placer.rules().is_empty() {
        return false;
    }
    file.pinned.load(Ordering::Relaxed) || effective_placement(core, file).rule.is_some_and(|rule| rule.pin)
}

/// The rule and the policy that hold for a file at rest.
pub fn effective_placement(core: &Core, file: &File) -> EffectivePlacement {
    let rule = rule_for(core, file, Origin::default(), WriteSpan::at_rest(file.size_now()));
    let named = rule.as_deref().and_then(|rule| rule.policy.clone());
    let policy = named.unwrap_or_else(|| core.placer.policy());
    EffectivePlacement { rule, policy }
}

/// The rule that holds for a file and a span of it, if one does.
pub(super) fn rule_for(core: &Core, file: &File, origin: Origin, span: WriteSpan) -> Option<Arc<Rule>> {
    let rules = core.placer.rules();
    if rules.is_empty() {
        return None;
    }
    rules.find(&FileFacts::new(core, file), origin, span)
}

impl TierChoice {
    /// Whether the data may go elsewhere, where this is for space alone.
    pub(super) fn may_differ_at_write(&self) -> bool {
        !matches!(self.reason, Reason::Rule(_)) && self.policy.decides_at_write()
    }

    /// So many bytes are dealt to the tier.
    pub fn add_to(&self, credits: &mut Credits, tiers: &[TierView], bytes: u64) {
        if let Some(view) = tiers.iter().find(|view| view.id == self.tier.id) {
            credits.add(view.id, bytes, self.policy.share(view));
        }
    }
}

impl<'a> PlacementRequest<'a> {
    /// A request for the ranges that a write touches first.
    pub fn new(file: &'a File, origin: Origin, span: WriteSpan) -> Self {
        Self { file, origin, span, set_aside_on: None }
    }
}

impl PlacementRequest<'_> {
    fn context<'a>(&self, credits: &'a Credits, tiers: &'a [TierView]) -> braid_placement::Context<'a> {
        braid_placement::Context {
            origin: self.origin,
            span: self.span,
            file: self.file.inode.ino.0,
            credits,
            tiers,
        }
    }
}

/// The facts of a file that rules ask for.
pub(crate) struct FileFacts<'a> {
    pub(crate) core: &'a Core,
    pub(crate) file: &'a File,
    writer: WriterNames,
}

/// The names of the thread that an operation is for, once they were looked up.
type WriterNames = OnceLock<Option<Task>>;

impl<'a> FileFacts<'a> {
    /// The facts for one operation.
    pub(crate) fn new(core: &'a Core, file: &'a File) -> Self {
        Self { core, file, writer: OnceLock::new() }
    }

    /// The path below the mount that the file has now; empty if it has none.
    pub(crate) fn path_now(&self) -> String {
        let (path, root) = (self.file.data().path(), self.core.home.root().path());
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
        self.core.environment.wall_ns().saturating_sub(born_ns).max(0)
    }

    fn task(&self, thread: u32) -> Option<Task> {
        let look_up = || braid_sys::task_names(thread).map(|(program, thread)| Task { program, thread });
        self.writer.get_or_init(look_up).clone()
    }

    fn profiled(&self, hints: &Hints, generation: u32, origin: Origin, writer: &Writer<'_>) -> FoundStream {
        self.file.profiled.get_or(generation, origin.thread, || {
            let learned = || learned_stream(self.core, hints, (self.path(), writer), origin);
            let stream = hints.classify(self.path(), writer).or_else(learned);
            FoundStream { stream, is_sure: !writer.is_missed() }
        })
    }
}
