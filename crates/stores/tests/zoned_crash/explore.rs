//! Takes the power at every moment of a sequence of operations, and looks at what is
//! found then.

use super::model::Model;
use super::op::{Kind, OBJECTS, Op, draw};
use super::run::{Run, Setup};
use braid_contract::{SplitMix, Store};
use braid_testkit::sim::{AllKept, AllLost, Chooser, Seeded, SimZoned, ZoneEffect, ZonedMoment};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Times that the power is lost in a row.
const DEPTH_MAX: u32 = 3;

/// A sequence of operations on a device.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) setup: Setup,
    pub(crate) ops: Vec<Op>,
    chance: u64,
}

/// What was done.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) cases: u64,
    pub(crate) moments: u64,
    pub(crate) states: u64,
    /// Those of them after the power was lost in or after a recovery.
    pub(crate) again: u64,
    /// Moments before a reset or a finish of a zone.
    pub(crate) emptied: u64,
    /// Cases that end since a failure of the device keeps the log from going on.
    pub(crate) stuck: u64,
    /// Bytes that were moved so that zones could be emptied.
    pub(crate) moved_bytes: u64,
}

impl Case {
    /// Draws a case.
    pub(crate) fn draw(seed: u64, which: u64) -> Self {
        let mut random = SplitMix::of(seed, which);
        let setup = Setup::draw(&mut random);
        let most = random.pick(&[8, 20, 40, 120]);
        let count = 1 + random.below(most);
        let ops = (0..count).map(|_| draw(&mut random, setup.with_faults)).collect();
        Self { setup, ops, chance: random.next_u64() }
    }

    /// Carries it out, with up to `outcomes` states for each moment.
    pub(crate) fn explore(&self, outcomes: u64, totals: &mut Totals) -> Result<(), String> {
        totals.cases += 1;
        let explored = catch_unwind(AssertUnwindSafe(|| self.try_explore(outcomes, totals)));
        match explored.unwrap_or_else(|_| Err("it panics".to_owned())) {
            // A zone that could not be finished or flushed holds resources of the device,
            // and the log needs them: a sync fails until a zone is emptied.
            Err(why) if self.setup.with_faults && why.contains("too many zones are active") => {
                totals.stuck += 1;
                Ok(())
            }
            explored => explored,
        }
    }

    fn try_explore(&self, outcomes: u64, totals: &mut Totals) -> Result<(), String> {
        let mut run = Run::new(self.setup, self.chance)?;
        run.device.record();
        for op in &self.ops {
            let mut random = SplitMix::of(op.chance, 1);
            let mut moments = 0;
            let stepped = run.step(*op, &mut |model, effect, moment| {
                moments += 1;
                totals.emptied += u64::from(matches!(effect, ZoneEffect::Reset(_) | ZoneEffect::Finish(_)));
                let when = || format!("power lost before the {effect}");
                self.lose_power(&when, model, &moment, (outcomes, &mut random), totals)
            });
            // What it acknowledged.
            let stepped = stepped.and_then(|()| {
                let moment = run.device.moment();
                let when = || "power lost afterwards".to_owned();
                match moments {
                    0 => Ok(()),
                    _ => self.lose_power(&when, &run.model, &moment, (outcomes, &mut random), totals),
                }
            });
            stepped.map_err(|why| tell(&run, &why))?;
        }
        let store = run.store()?;
        totals.moved_bytes += store.zones().map_or(0, |zones| zones.moved_bytes);
        run.model.compare(store).map_err(|why| tell(&run, &why))?;
        if self.setup.with_faults { Ok(()) } else { run.drain().map_err(|why| tell(&run, &why)) }
    }

    fn lose_power(
        &self,
        when: &dyn Fn() -> String,
        model: &Model,
        moment: &ZonedMoment,
        (outcomes, random): (u64, &mut SplitMix),
        totals: &mut Totals,
    ) -> Result<(), String> {
        totals.moments += 1;
        let outcomes = if moment.is_durable() { 1 } else { outcomes };
        for outcome in 0..outcomes {
            let mut random = SplitMix::new(random.next_u64());
            let device = match outcome {
                0 => moment.after_power_loss(&mut AllLost),
                1 => moment.after_power_loss(&mut AllKept),
                _ => moment.after_power_loss(&mut Seeded::new(random.next_u64())),
            };
            let setup = Setup { with_faults: false, ..self.setup };
            examine(setup, device, model, (&mut random, 1), totals)
                .map_err(|why| format!("{}, outcome {outcome}\n{why}", when()))?;
        }
        Ok(())
    }

    /// Leaves out what is not needed for it to fail.
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

/// The store is what it has to be after power loss, and goes on working; the power is
/// lost again on the way.
fn examine(
    setup: Setup,
    device: SimZoned,
    model: &Model,
    (random, depth): (&mut SplitMix, u32),
    totals: &mut Totals,
) -> Result<(), String> {
    totals.states += 1;
    totals.again += u64::from(depth > 1);
    let mut run = Run::open(setup, Arc::new(device), model.clone(), random.next_u64())?;
    let store = run.store.as_ref().ok_or("the store is closed")?;
    run.model.recover(store, true)?;
    go_on(&mut run, (random, depth), totals).map_err(|why| tell(&run, &why))
}

fn go_on(run: &mut Run, (random, depth): (&mut SplitMix, u32), totals: &mut Totals) -> Result<(), String> {
    let object = random.below(OBJECTS as u64) as usize;
    let mut ops: Vec<Op> = [Kind::Append, Kind::Sync]
        .into_iter()
        .map(|kind| Op { kind, object, chance: random.next_u64() })
        .collect();
    if random.below(4) == 0 {
        ops.extend((0..random.below(12)).map(|_| draw(random, false)));
    }
    let compares = random.below(4) == 0;
    let mut left = match depth < DEPTH_MAX && random.below(3) == 0 {
        true => Some(random.below(ops.len() as u64 * 2 + 4)),
        false => None,
    };
    run.device.record();
    let setup = run.setup;
    for op in ops {
        run.step(op, &mut |model: &Model, effect: ZoneEffect, moment: ZonedMoment| match &mut left {
            Some(0) => {
                left = None;
                let mut chooser: Box<dyn Chooser> = match random.below(4) {
                    0 => Box::new(AllLost),
                    1 => Box::new(AllKept),
                    _ => Box::new(Seeded::new(random.next_u64())),
                };
                let device = moment.after_power_loss(&mut *chooser);
                examine(setup, device, model, (random, depth + 1), totals)
                    .map_err(|why| format!("power lost before the {effect}\n{why}"))
            }
            Some(more) => {
                *more -= 1;
                Ok(())
            }
            None => Ok(()),
        })?;
    }
    if compares {
        run.model.compare(run.store()?)?;
    }
    if random.below(64) == 0 { run.drain() } else { Ok(()) }
}

/// What led to it.
fn tell(run: &Run, why: &str) -> String {
    let mut told = String::new();
    for step in &run.steps {
        _ = writeln!(told, "  {step}");
    }
    told + why
}
