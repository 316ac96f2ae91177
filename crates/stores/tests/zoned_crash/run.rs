//! Operations on a store and its model, side by side.

use super::disk::SimDisk;
use super::model::{CELL, Model, Write, bytes_of, id};
use super::op::{Kind, OBJECTS, Op, Step};
use braid_contract::{Errno, Error, Hint, SplitMix, Store, StoreIo, StreamId, ZonedDevice};
use braid_stores::zoned::{UnitDevice, ZonedSettings, ZonedStore};
use braid_testkit::sim::{SimClock, SimEnvironment, SimZoned, SimZones, ZoneEffect, ZonedMoment};
use std::io::IoSlice;
use std::sync::Arc;

/// The first label, which the others count from.
const LABEL: u8 = 3;

/// A device and a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) shape: SimZones,
    pub(crate) block: u64,
    pub(crate) settings: ZonedSettings,
    /// Most cells that an object has.
    pub(crate) longest: usize,
    pub(crate) with_faults: bool,
    /// It has no zones, and is cut into units.
    pub(crate) in_units: bool,
}

/// A store that is used.
pub(crate) struct Run {
    pub(crate) setup: Setup,
    pub(crate) device: Arc<SimZoned>,
    /// `None` only while the process is restarted.
    pub(crate) store: Option<ZonedStore>,
    pub(crate) model: Model,
    pub(crate) steps: Vec<Step>,
    chance: u64,
}

impl Setup {
    /// Draws a device.
    pub(crate) fn draw(random: &mut SplitMix) -> Self {
        let in_units = random.below(3) == 0;
        let is_fine = random.below(4) > 0 && !in_units;
        let (block, capacity, extent) = match is_fine {
            true => (512, random.pick(&[16 << 10, 32 << 10]), 4 << 10),
            false => (4096, random.pick(&[64 << 10, 96 << 10]), random.pick(&[4 << 10, 16 << 10])),
        };
        let active_max = 3 + random.below(5) as u32;
        let shape = if in_units {
            // The head, two for the index, and those for data.
            let zones = 1 + 2 + 6 + random.below(5) as u32;
            SimZones { zones, conventional: zones, capacity, active_max }
        } else {
            let conventional = random.pick(&[0, 0, 1, 2, 3]);
            let zones = conventional.max(2) + 4 + random.below(7) as u32;
            SimZones { zones, conventional, capacity, active_max }
        };
        let memory = extent * (1 + random.below(6));
        let settings = ZonedSettings { extent, memory, write_through: random.below(5) == 0, gc: 0 };
        let longest = (capacity / CELL) as usize * if is_fine { 2 } else { 1 };
        // What such a device did not flush counts as lost when that fails, whatever is there.
        let with_faults = random.below(4) == 0 && !in_units;
        Self { shape, block, settings, longest, with_faults, in_units }
    }
}

/// What is done at a moment.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&Model, ZoneEffect, ZonedMoment) -> Result<(), String>;

fn told(result: Result<(), Error>) -> Result<(), Errno> {
    result.map_err(|error| error.errno())
}

impl Run {
    /// A store on an empty device.
    pub(crate) fn new(setup: Setup, chance: u64) -> Result<Self, String> {
        let device = Arc::new(SimZoned::with_block(setup.shape, setup.block));
        Self::open(setup, device, Model::new(OBJECTS, setup.block), chance)
    }

    /// A store on a device.
    pub(crate) fn open(
        setup: Setup,
        device: Arc<SimZoned>,
        model: Model,
        chance: u64,
    ) -> Result<Self, String> {
        let store = Some(open(&setup, &device, chance)?);
        Ok(Self { setup, device, store, model, steps: Vec::new(), chance })
    }

    /// Its store.
    pub(crate) fn store(&self) -> Result<&ZonedStore, String> {
        self.store.as_ref().ok_or_else(|| "the store is closed".to_owned())
    }

    /// Carries out an operation. The moments between its beginning and its end are
    /// handed to `visit` with the model as it is until it ends.
    pub(crate) fn step(&mut self, op: Op, visit: Visit<'_>) -> Result<(), String> {
        let mut random = SplitMix::new(op.chance);
        self.steps.push(Step {
            op,
            span: (0, 0),
            stream: None,
            result: "it did not end".to_owned(),
            effects: Vec::new(),
        });
        if self.model.label.is_none() {
            self.label(LABEL, visit)?;
        }
        let result = self.carry_out(op, &mut random, visit)?;
        let step = self.steps.last_mut().ok_or("no step")?;
        step.result = match result {
            Ok(()) => "done".to_owned(),
            Err(errno) => format!("{errno:?}"),
        };
        match result {
            Ok(()) | Err(Errno::ENOSPC | Errno::EOPNOTSUPP) => {}
            Err(_) if self.setup.with_faults => self.take_as_it_is("after a fault")?,
            Err(errno) => return Err(format!("{errno:?}, though nothing failed")),
        }
        match &self.device.broken_rules()[..] {
            [] => Ok(()),
            [first, ..] => Err(format!("a rule of the device is broken: {first}")),
        }
    }

    fn carry_out(
        &mut self,
        op: Op,
        random: &mut SplitMix,
        visit: Visit<'_>,
    ) -> Result<Result<(), Errno>, String> {
        let number = op.object;
        if !self.model.objects[number].exists
            && !matches!(op.kind, Kind::SyncAll | Kind::Label | Kind::Restart | Kind::Clear | Kind::Compare)
        {
            self.model.created(number);
            self.store()?.create(id(number)).map_err(|error| format!("create: {error}"))?;
        }
        let size = self.model.objects[number].size;
        let drawn = self.span(op.kind, size, random);
        if let Some(step) = self.steps.last_mut() {
            step.span = drawn;
        }
        let (first, count) = drawn;
        let (from, len) = (first as u64 * CELL, count as u64 * CELL);
        match op.kind {
            Kind::Append | Kind::Write | Kind::Rewrite => self.write(op, drawn, random, visit),
            Kind::Truncate => {
                self.model.resized(number, first);
                let done = self.store()?.truncate(id(number), from);
                self.end(done, visit, |_| {})
            }
            Kind::Punch => {
                self.model.punched(number, first, count);
                let done = self.store()?.punch(id(number), from, len);
                self.end(done, visit, |_| {})
            }
            Kind::Allocate => {
                let keep_size = random.below(2) == 0;
                let done = self.store()?.allocate(id(number), from, len, keep_size);
                self.end(done, visit, |model| {
                    model.reserved(number, first, count);
                    if !keep_size {
                        model.grew(number, first + count);
                    }
                })
            }
            Kind::Sync => {
                let done = self.store()?.sync(&[id(number)], random.below(2) == 0);
                self.check_room(&done)?;
                self.end(done, visit, |model| model.synced(number))
            }
            Kind::SyncAll => {
                let done = self.store()?.sync_all();
                self.check_room(&done)?;
                self.end(done, visit, Model::all_synced)
            }
            Kind::Remove => {
                self.model.removed(number);
                let done = self.store()?.remove(&[id(number)]);
                self.end(done, visit, |_| {})
            }
            Kind::Label => self.label(LABEL + random.below(9) as u8, visit).map(Ok),
            Kind::Restart => self.restart(random).map(Ok),
            Kind::Clear => self.clear(visit),
            Kind::Compare => self.model.compare(self.store()?).map(Ok),
            Kind::Fail => {
                self.device.fail_after(random.below(4), random.below(6));
                Ok(Ok(()))
            }
        }
    }

    /// Where an operation is: the first cell, and how many.
    fn span(&self, kind: Kind, size: usize, random: &mut SplitMix) -> (usize, usize) {
        let longest = self.setup.longest as u64;
        let per_extent = self.setup.settings.extent / CELL;
        let within = |random: &mut SplitMix, most: u64| {
            let at = random.below(most.max(1));
            // Often where a block or an extent begins.
            let unit = random.pick(&[1, 1, self.setup.block / CELL, per_extent]);
            (at / unit * unit) as usize
        };
        match kind {
            Kind::Append => {
                let most = random.pick(&[per_extent / 2, per_extent, per_extent * 2, per_extent * 3]);
                let count = 1 + random.below(most);
                (size, count.min(longest.saturating_sub(size as u64)) as usize)
            }
            Kind::Write => {
                let first = within(random, (size as u64 + per_extent).min(longest));
                (first, (1 + random.below(per_extent)).min(longest - first as u64) as usize)
            }
            Kind::Rewrite => {
                let first = within(random, size as u64 + 1);
                (first, (1 + random.below(per_extent)).min(longest.saturating_sub(first as u64)) as usize)
            }
            Kind::Truncate => {
                let most = if random.below(4) == 0 { longest } else { size as u64 + 1 };
                (within(random, most), 0)
            }
            Kind::Punch => (within(random, size as u64 + 1), 1 + random.below(per_extent * 2) as usize),
            Kind::Allocate => {
                let first = within(random, longest);
                (first, (1 + random.below(per_extent * 2)).min(longest - first as u64) as usize)
            }
            _ => (0, 0),
        }
    }

    /// What was written had room, though its index may not.
    fn check_room(&self, synced: &braid_contract::Result<()>) -> Result<(), String> {
        let error = synced.as_ref().err().filter(|_| !self.setup.with_faults);
        match error.map(ToString::to_string).filter(|error| !error.contains("too long for its region")) {
            Some(error) => Err(format!("what was written can't be synced: {error}")),
            None => Ok(()),
        }
    }

    /// An operation is over. If it was done, so is the model's.
    fn end(
        &mut self,
        done: braid_contract::Result<()>,
        visit: Visit<'_>,
        is_done: impl FnOnce(&mut Model),
    ) -> Result<Result<(), Errno>, String> {
        self.visit(visit)?;
        if done.is_ok() {
            is_done(&mut self.model);
        }
        Ok(told(done))
    }

    fn visit(&mut self, visit: Visit<'_>) -> Result<(), String> {
        for (effect, moment) in self.device.recorded() {
            if let Some(step) = self.steps.last_mut() {
                step.effects.push(effect);
            }
            visit(&self.model, effect, moment)?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        op: Op,
        (first, count): (usize, usize),
        random: &mut SplitMix,
        visit: Visit<'_>,
    ) -> Result<Result<(), Errno>, String> {
        if count == 0 {
            return Ok(Ok(()));
        }
        let (number, stream) = (op.object, random.below(5) as u32);
        let stream = (stream > 0).then_some(stream);
        if let Some(step) = self.steps.last_mut() {
            step.stream = stream;
        }
        let (writes, is_taken) = self.model.next_write(number, first, count, op.kind == Kind::Rewrite);
        if is_taken {
            self.model.wrote(number, first, &writes);
        }
        let hint = Hint { stream: stream.map(StreamId), ..Hint::default() };
        let io = StoreIo { direct: random.below(8) == 0, hint };
        let available = self.store()?.usage().map_err(|error| format!("usage: {error}"))?.available;
        let done = self.put(number, first, &writes, io)?;
        self.visit(visit)?;
        let fits = (count as u64 * CELL).next_multiple_of(self.setup.block) + self.setup.block <= available;
        let is_less = done.is_err_and(|errno| errno == Errno::ENOSPC) || done.is_ok_and(|done| done < count);
        if fits && is_less && !self.setup.with_faults {
            return Err(format!("no room, though {available} bytes are available"));
        }
        match done {
            Ok(_) if !is_taken => Err("data was overwritten".to_owned()),
            Ok(done) if done == count => Ok(Ok(())),
            Ok(_) => self.take_as_it_is("after a short write").map(|()| Err(Errno::ENOSPC)),
            Err(Errno::EOPNOTSUPP) if is_taken => Err("data was refused".to_owned()),
            Err(errno) if is_taken => self.take_as_it_is("after a failed write").map(|()| Err(errno)),
            Err(errno) => Ok(Err(errno)),
        }
    }

    /// Writes; answers how many cells were.
    fn put(
        &self,
        number: usize,
        first: usize,
        writes: &[Write],
        io: StoreIo,
    ) -> Result<Result<usize, Errno>, String> {
        let bytes = bytes_of(number, first, writes);
        match self.store()?.write_at(id(number), first as u64 * CELL, &[IoSlice::new(&bytes)], io) {
            Ok(done) if !(done as u64).is_multiple_of(CELL) => Err(format!("{done} bytes were written")),
            Ok(done) => Ok(Ok(done / CELL as usize)),
            Err(error) => Ok(Err(error.errno())),
        }
    }

    fn label(&mut self, label: u8, visit: Visit<'_>) -> Result<(), String> {
        self.model.labelling(Some(label));
        let done = self.store()?.set_label(&Model::label_bytes(label));
        self.visit(visit)?;
        match done {
            Ok(()) => self.model.labelled(),
            Err(error) if self.setup.with_faults || error.errno() == Errno::ENOSPC => {
                self.model.not_labelled()
            }
            Err(error) => return Err(format!("the label is refused: {error}")),
        }
        Ok(())
    }

    fn restart(&mut self, random: &mut SplitMix) -> Result<(), String> {
        self.store = None;
        // What is in the other process is not lost.
        self.chance = random.next_u64();
        self.store = Some(open(&self.setup, &self.device, self.chance)?);
        self.take_as_it_is("after a restart")
    }

    fn clear(&mut self, visit: Visit<'_>) -> Result<Result<(), Errno>, String> {
        (0..OBJECTS).for_each(|number| self.model.removed(number));
        self.model.labelling(None);
        let done = self.store()?.clear();
        self.visit(visit)?;
        match done {
            Ok(()) => {
                self.model.all_synced();
                self.model.labelled();
                Ok(Ok(()))
            }
            Err(error) => {
                self.model.not_labelled();
                Ok(Err(error.errno()))
            }
        }
    }

    /// Everything is removed, and as much as there is room for written and removed
    /// again, so that all zones are emptied.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        let store = self.store()?;
        let told = |what: &str, error: &Error| format!("{what}: {error}");
        let ids: Vec<_> = (0..OBJECTS).map(id).collect();
        for _ in 0..2 {
            store.remove(&ids).map_err(|error| told("remove of all", &error))?;
            store.sync_all().map_err(|error| told("sync without objects", &error))?;
            let usage = store.usage().map_err(|error| told("usage", &error))?;
            if usage.available != usage.total {
                return Err(format!(
                    "nothing is there, and of {} bytes {} are available",
                    usage.total, usage.available
                ));
            }
            store.create(ids[0]).map_err(|error| told("create", &error))?;
            let writes = vec![self.model.next; (usage.available / CELL) as usize];
            let done = self.put(0, 0, &writes, StoreIo::default())?;
            if done != Ok(writes.len()) {
                return Err(format!("of {} bytes that are available, {done:?} cells are", usage.available));
            }
            store.sync_all().map_err(|error| told("sync of a full store", &error))?;
        }
        let failed = store.zones().map_or(0, |zones| zones.failed);
        if failed > 0 { Err(format!("{failed} zones are said to have failed")) } else { Ok(()) }
    }

    /// The store is taken as it is, as far as it may be so.
    fn take_as_it_is(&mut self, when: &str) -> Result<(), String> {
        let store = self.store.as_ref().ok_or("the store is closed")?;
        self.model.recover(store, false).map_err(|why| format!("{when}: {why}"))
    }
}

fn open(setup: &Setup, device: &Arc<SimZoned>, chance: u64) -> Result<ZonedStore, String> {
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), chance));
    let device = if setup.in_units {
        let disk = SimDisk::new(Arc::clone(device), setup.shape.capacity);
        let device = UnitDevice::open(Arc::new(disk), Some(setup.shape.capacity));
        device.map(|device| Arc::new(device) as Arc<dyn ZonedDevice>)
    } else {
        Ok(Arc::clone(device) as _)
    };
    device
        .and_then(|device| ZonedStore::open(device, setup.settings, environment))
        .map_err(|error| format!("it can't be opened: {error}"))
}
