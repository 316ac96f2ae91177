//! Moving the ranges of one file in a run: a batch at a time, those between
//! different tiers side by side. `run` calls this for each file.

use super::goal::{Goal, RangeStep, Target, steps, target};
use super::list::RunStop;
use super::run::{BATCH, Run, is_gone};
use braid_contract::units::show_size_up;
use braid_contract::{Amount, Errno, Error, Result, counted};
use braid_core::file::{range_size_of, relocate};
use braid_core::live::File;
use braid_tiers::rate::MoveRate;
use braid_tiers::{Tier, bit};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The outcome for some ranges.
#[derive(Default)]
struct Done {
    moved: Amount,
    /// Ranges that stay where they are, for lack of room.
    stayed: u64,
    errors: Vec<Error>,
}

impl Run<'_> {
    /// Moves all ranges of a file that the job's goal asks for.
    pub(super) fn move_file(&mut self, shown: &str, file: &File) -> Result<Option<RunStop>> {
        let (mut first, mut moved, mut stayed) = (0, 0, 0_u64);
        loop {
            let steps = steps(&self.jobs.core, &self.goal, file, first, self.batch())?;
            let Some(last) = steps.last() else { break };
            let next = last.end();
            for chunk in steps.chunks(BATCH) {
                let mut done = Done::default();
                let result = self.move_steps(file, chunk, &mut done);
                moved += done.moved.ranges;
                stayed += done.stayed;
                for error in done.errors {
                    if let Err(stop) = self.error(shown, &error) {
                        return Ok(Some(stop));
                    }
                }
                match result {
                    Err(error) if error.is_full() => {
                        return Ok(Some(RunStop::Failed(format!("{shown}: {}", self.no_room()))));
                    }
                    result => result?,
                }
            }
            // A write by a user whom another rule covers may have spread the
            // file meanwhile: then these were not all of its ranges, and the
            // others have other boundaries.
            first = if range_size_of(&self.jobs.core, file)? == steps[0].ranges { next } else { 0 };
        }
        if stayed > 0 {
            *self.skipped.entry("no room on a better tier".into()).or_default() += 1;
        }
        if moved > 0 {
            self.note(Amount { files: 1, ..Amount::default() });
        }
        Ok(None)
    }

    /// Moves some ranges; those between different tiers, side by side.
    fn move_steps(&self, file: &File, steps: &[RangeStep], done: &mut Done) -> Result<()> {
        let mut by_route: BTreeMap<_, (Arc<Tier>, Vec<&RangeStep>)> = BTreeMap::new();
        for step in steps {
            match target(&self.jobs.core, &self.goal, file, step, 0)? {
                Target::Tier(tier) => {
                    let route = (step.from, tier.id);
                    by_route.entry(route).or_insert_with(|| (tier, Vec::new())).1.push(step);
                }
                Target::Stay => done.stayed += 1,
                Target::NoRoom => return Err(Errno::ENOSPC.into()),
            }
        }
        let all = Mutex::new(std::mem::take(done));
        let result = self.jobs.core.side_by_side(by_route.into_values(), |(tier, steps)| {
            steps.into_iter().try_for_each(|step| self.move_step(file, step, &tier, &all))
        });
        *done = std::mem::take(&mut *all.lock());
        result
    }

    /// Moves one range, to `first` or to another tier that suits. Errors end
    /// the file; those of this range alone are noted.
    fn move_step(&self, file: &File, step: &RangeStep, first: &Arc<Tier>, done: &Mutex<Done>) -> Result<()> {
        let jobs = self.jobs;
        let (mut excluded, mut wished) = (0, Some(Arc::clone(first)));
        loop {
            if jobs.list.is_interrupted(self.id) {
                return Err(Errno::ECANCELED.into());
            }
            let fits = wished.take().filter(|tier| !tier.is_draining() && tier.room() >= step.len);
            let to = match fits {
                Some(tier) => tier,
                None => match target(&jobs.core, &self.goal, file, step, excluded)? {
                    Target::Tier(tier) => tier,
                    Target::Stay => {
                        done.lock().stayed += 1;
                        return Ok(());
                    }
                    Target::NoRoom => return Err(Errno::ENOSPC.into()),
                },
            };
            let offset = step.offset;
            let rate =
                MoveRate { throttles: &jobs.throttles, pace: self.pace, class: jobs.list.io_class(self.id) };
            match relocate(&jobs.core, file, offset, &to, (self.goal.reason(), rate)) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    let moved = Amount { bytes: step.len, ranges: 1, files: 0 };
                    done.lock().moved += moved;
                    self.note(moved);
                    return Ok(());
                }
                // It has no room, or can't have this range.
                Err(error) if error.is_full() || error.errno() == Errno::EOPNOTSUPP => {
                    excluded |= bit(to.id);
                }
                Err(error) if matches!(error.errno(), Errno::EBUSY | Errno::ECANCELED) || is_gone(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    done.lock().errors.push(error.context(format!("offset {offset}")));
                    return Ok(());
                }
            }
        }
    }

    fn note(&self, more: Amount) {
        if let Some(record) = self.jobs.list.moved(self.id, more) {
            self.jobs.try_keep(&record);
        }
    }

    fn no_room(&self) -> String {
        let tiers = self.jobs.core.tiers.iter();
        let rooms: Vec<String> = match &self.goal {
            Goal::To(tier) => vec![format!("{} {}", tier.name, show_size_up(tier.room()))],
            _ => tiers
                .filter(|tier| !tier.is_draining() && tier.is_healthy())
                .map(|tier| format!("{} {}", tier.name, show_size_up(tier.room())))
                .collect(),
        };
        let of = match &self.goal {
            Goal::Off { tier, .. } => {
                let ranges = tier.ranges.get();
                format!("; {} left on {}", counted(ranges, "range"), tier.name)
            }
            _ => String::new(),
        };
        format!("there is no room for it: {}{of}", rooms.join(", "))
    }
}
