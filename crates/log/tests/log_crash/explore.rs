//! Takes the power at every moment of a sequence of operations, and examines the file system then.

use super::common::{Fault, Left, Moment};
use super::op::{Kind, Op, draw};
use super::run::{Held, History, Left as LeftByProcess, Run, Setup};
use braid_contract::SplitMix;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Times that the power is lost in a row.
const DEPTH_MAX: u32 = 3;
/// Moments examined of one operation: only some of one that fills the device.
const MOMENTS_MAX: usize = 24;

/// A sequence of operations.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) setup: Setup,
    ops: Vec<Op>,
}

/// The totals of the work.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) cases: u64,
    pub(crate) moments: u64,
    pub(crate) states: u64,
    /// Those after the power was lost in or after a recovery.
    pub(crate) again: u64,
    /// Times that the process was killed.
    pub(crate) kills: u64,
}

impl Case {
    pub(crate) fn draw(seed: u64, which: u64, fault: Option<Fault>) -> Self {
        let mut random = SplitMix::of(seed, which);
        let setup = Setup::draw(&mut random, fault);
        let most = random.pick(&[8, 20, 40, 100]);
        let count = 1 + random.below(most);
        Self { setup, ops: (0..count).map(|_| draw(&mut random)).collect() }
    }

    /// Carries it out, with up to `outcomes` states for each moment.
    pub(crate) fn explore(&self, outcomes: u64, totals: &mut Totals) -> Result<(), String> {
        totals.cases += 1;
        let explored = catch_unwind(AssertUnwindSafe(|| self.try_explore(outcomes, totals)));
        explored.unwrap_or_else(|_| Err("it panics".to_owned()))
    }

    fn try_explore(&self, outcomes: u64, totals: &mut Totals) -> Result<(), String> {
        let mut run = Run::new(self.setup)?;
        run.device.record();
        for op in &self.ops {
            // The durable state at its end was not durable at its beginning.
            let synced = run.history.synced;
            let killed = op.kind == Kind::Kill;
            let (answered, held) = (run.history.now(), run.held);
            let history = killed.then(|| run.history.clone());
            let stepped = run.step(*op);
            let mut moments = run.device.moments();
            stepped.map_err(|why| tell(&run, &why))?;
            let mut random = SplitMix::of(op.chance, 1);
            if !killed {
                kill(&run, &moments, (answered, synced, held), &mut random, totals)
                    .map_err(|why| tell(&run, &why))?;
            }
            while moments.len() > MOMENTS_MAX {
                moments.swap_remove(random.below(moments.len() as u64) as usize);
            }
            let setup = run.setup;
            let mut during = history.unwrap_or_else(|| run.history.clone());
            let after = (!moments.is_empty()).then(|| run.device.moment());
            let now = std::mem::replace(&mut during.synced, synced);
            for moment in &moments {
                lose(setup, &during, moment, (outcomes, &mut random), totals).map_err(|why| {
                    tell(&run, &format!("power lost before the {:?}\n{why}", moment.effect))
                })?;
            }
            during.synced = now;
            let during = if killed { run.history.clone() } else { during };
            if let Some(moment) = &after {
                lose(setup, &during, moment, (outcomes, &mut random), totals)
                    .map_err(|why| tell(&run, &format!("power lost afterwards\n{why}")))?;
            }
        }
        run.fs.audit().map_err(|error| tell(&run, &format!("audit at the end: {error}")))
    }

    /// Leaves out steps that are not needed for it to fail.
    pub(crate) fn shrink(&self, outcomes: u64) -> Self {
        let mut case = self.clone();
        for size in [32, 8, 3, 1, 1] {
            let mut at = case.ops.len();
            while at > 0 {
                let from = at.saturating_sub(size);
                let mut less = case.clone();
                less.ops.drain(from..at);
                if less.explore(outcomes, &mut Totals::default()).is_err() {
                    case = less;
                }
                at = from;
            }
        }
        case
    }
}

/// Kills the process at one of the moments of an operation, or right after it: another one finds all
/// that was answered before, and goes on.
fn kill(
    run: &Run,
    moments: &[Moment],
    (answered, synced, held): (usize, usize, Held),
    random: &mut SplitMix,
    totals: &mut Totals,
) -> Result<(), String> {
    totals.kills += 1;
    let mut history = run.history.clone();
    let at = random.below(moments.len() as u64 + 1) as usize;
    let (moment, held) = match moments.get(at) {
        None => (run.device.moment(), run.held),
        Some(moment) => (moment.clone(), held),
    };
    history.synced = if at < moments.len() { answered } else { history.now() };
    let next = if at < moments.len() { moments.get(at + 1) } else { None };
    let (device, memory) = moment.after_kill(next, random);
    let again = random.below(3) == 0;
    if again {
        device.record();
    }
    let setup =
        Setup { workers: random.pick(&[run.setup.workers, 1, 2]), chance: random.next_u64(), ..run.setup };
    let told = |why| format!("killed before the {:?}\n{why}", moment.effect);
    let kept = copies(&memory);
    let mut next = Run::go_on(setup, LeftByProcess { device, memory, held }, &history).map_err(told)?;
    if again {
        let moments = next.device.moments();
        let moment = &moments[random.below(moments.len() as u64) as usize];
        // The power is lost while it goes on: what was synced is there.
        let mut durable = run.history.clone();
        durable.synced = synced;
        lose(setup, &durable, moment, (2, random), totals)
            .map_err(|why| told(format!("power lost before the {:?}\n{why}", moment.effect)))?;
        // It is killed, too, before it is ready: the memory is the same still.
        let (device, _) = moment.after_kill(None, random);
        next = Run::go_on(setup, LeftByProcess { device, memory: kept, held }, &history).map_err(told)?;
    }
    go_on(&mut next, (random, 1), totals).map_err(told)
}

fn copies(memory: &[OwnedFd]) -> Vec<OwnedFd> {
    memory.iter().map(|fd| fd.try_clone().expect("a descriptor")).collect()
}

fn lose(
    setup: Setup,
    history: &History,
    moment: &Moment,
    (outcomes, random): (u64, &mut SplitMix),
    totals: &mut Totals,
) -> Result<(), String> {
    totals.moments += 1;
    let outcomes = if moment.is_durable() { 1 } else { outcomes };
    for outcome in 0..outcomes {
        let mut random = SplitMix::new(random.next_u64());
        let left = match outcome {
            0 => Left::Nothing,
            1 => Left::All,
            _ => left(&mut random),
        };
        examine(setup, history, moment, left, (&mut random, 1), totals)
            .map_err(|why| format!("outcome {outcome}\n{why}"))?;
    }
    Ok(())
}

fn left(random: &mut SplitMix) -> Left {
    match random.below(4) {
        0 => Left::Nothing,
        1 => Left::All,
        2 => Left::Most(random.next_u64()),
        _ => Left::Some(random.next_u64()),
    }
}

/// The file system is in an allowed state after power loss, and goes on working; the power is lost
/// again on the way.
fn examine(
    setup: Setup,
    history: &History,
    moment: &Moment,
    left: Left,
    (random, depth): (&mut SplitMix, u32),
    totals: &mut Totals,
) -> Result<(), String> {
    totals.states += 1;
    totals.again += u64::from(depth > 1);
    let device = moment.after_power_loss(left);
    let again = depth < DEPTH_MAX && random.below(3) == 0;
    if again {
        device.record();
    }
    let setup = Setup { workers: random.pick(&[setup.workers, 1, 2]), chance: random.next_u64(), ..setup };
    let mut run = Run::open(setup, device, history)?;
    if again {
        let moments = run.device.moments();
        if !moments.is_empty() && random.below(2) == 0 {
            let moment = &moments[random.below(moments.len() as u64) as usize];
            let left = self::left(random);
            return examine(setup, history, moment, left, (random, depth + 1), totals)
                .map_err(|why| format!("power lost during recovery, before the {:?}\n{why}", moment.effect));
        }
    }
    go_on(&mut run, (random, depth), totals).map_err(|why| tell(&run, &why))
}

fn go_on(run: &mut Run, (random, depth): (&mut SplitMix, u32), totals: &mut Totals) -> Result<(), String> {
    // The recovered state is durable.
    let count = if random.below(4) == 0 { random.below(12) } else { 1 };
    let mut ops: Vec<Op> = (0..count).map(|_| draw(random)).collect();
    ops.push(Op { kind: Kind::Sync, chance: random.next_u64() });
    let again = depth < DEPTH_MAX && random.below(3) == 0;
    let at = random.below(ops.len() as u64) as usize;
    for (index, op) in ops.into_iter().enumerate() {
        if again && index == at && op.kind != Kind::Kill {
            run.device.record();
            let synced = run.history.synced;
            run.step(op)?;
            let moments = run.device.moments();
            let mut history = run.history.clone();
            let after = history.synced;
            history.synced = synced;
            let (moment, when) = match moments.is_empty() || random.below(3) == 0 {
                true => {
                    history.synced = after;
                    (run.device.moment(), "afterwards")
                }
                false => (moments[random.below(moments.len() as u64) as usize].clone(), "again"),
            };
            let left = left(random);
            return examine(run.setup, &history, &moment, left, (random, depth + 1), totals)
                .map_err(|why| format!("power lost {when}, before the {:?}\n{why}", moment.effect));
        }
        run.step(op)?;
    }
    run.fs.audit().map_err(|error| format!("audit: {error}"))
}

/// The steps that led to a failure.
fn tell(run: &Run, why: &str) -> String {
    let mut told = String::new();
    for step in &run.steps {
        _ = writeln!(told, "  {step}");
    }
    told + why
}
