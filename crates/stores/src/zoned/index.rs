//! The objects of a zoned store, and their index on the device.

use super::log::IndexRoom;
use super::object::{Object, Shared};
use super::replay::Replay;
use super::table::Resident;
use braid_contract::{Errno, Error, ObjectId, Result, ZonedDevice};
use braid_format::ZoneRecord;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All objects.
pub(super) struct Index {
    pub(super) shared: Shared,
    pub(super) objects: RwLock<HashMap<ObjectId, Arc<Object>>>,
    pub(super) label: Mutex<Option<Vec<u8>>>,
    /// The work to be done before anything is written.
    unsettled: Mutex<Option<Unsettled>>,
    losses: Mutex<Losses>,
    /// The [doubts](super::watched::Watched::doubts) about the device that objects know.
    settled: AtomicU64,
}

/// Known losses of the device.
#[derive(Default)]
struct Losses {
    /// Flushes that had failed when the zones were last asked.
    failures: u64,
    /// Zones whose losses objects know, and the log may not yet.
    zones: Vec<u32>,
}

/// The part of recovery that is left to the first write.
struct Unsettled {
    /// The log must not go on where it ends: it leads to data that is not there.
    checkpoint: bool,
    /// Zones that are to be finished.
    zones: Vec<u32>,
}

impl Index {
    /// The objects that the log has.
    pub(super) fn new(shared: Shared, replay: Replay) -> Self {
        let (objects, label, unsettled) = (RwLock::default(), Mutex::default(), Mutex::default());
        let index =
            Self { shared, objects, label, unsettled, losses: Mutex::default(), settled: AtomicU64::new(0) };
        index.adopt(replay);
        index
    }

    /// Takes over the log's state.
    fn adopt(&self, replay: Replay) {
        if replay.lost > 0 {
            let bytes = replay.lost.saturating_mul(self.shared.block);
            tracing::error!(bytes, "the device has lost data that it had said was durable; reading it fails");
        }
        // Lost data must not be taken for data that is written there next.
        let misleads = replay.passed_over || replay.lost > 0;
        *self.label.lock() = replay.label;
        for (zone, stream) in replay.streams {
            self.shared.zones.is_for(zone, stream);
        }
        let mut objects = self.objects.write();
        // Should an id have two, the object that was made last counts.
        let mut known: Vec<_> = replay.objects.into_iter().collect();
        known.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        for (number, known) in known {
            if objects.contains_key(&known.id) {
                continue;
            }
            for (first, place) in known.extents.iter() {
                self.shared.zones.found(place, Resident { object: known.id, first, blocks: place.blocks });
            }
            self.shared.zones.has_promised(known.reserved.count());
            let object = Object::new(known.id, number, known.mtime);
            {
                let mut state = object.state.write();
                (state.size, state.atime) = (known.size, known.atime);
                state.placed = known.present.clone();
                (state.present, state.extents) = (known.present, known.extents);
                state.reserved = known.reserved;
                state.times_logged();
            }
            objects.insert(known.id, object);
        }
        drop(objects);
        let zones = self.shared.zones.resume();
        let checkpoint = misleads || (self.label.lock().is_some() && self.shared.log.is_torn());
        *self.unsettled.lock() = Some(Unsettled { checkpoint, zones });
    }

    /// Does the work that comes before any write. The caller holds no object.
    pub(super) fn settle(&self) -> Result<()> {
        self.settle_recovery()?;
        self.settle_losses()
    }

    /// Finishes recovery, once: opening a store alone writes nothing.
    fn settle_recovery(&self) -> Result<()> {
        let mut unsettled = self.unsettled.lock();
        let Some(left) = &*unsettled else { return Ok(()) };
        if left.checkpoint {
            self.shared.log.checkpoint(self.shared.device.failures(), &|emit| self.snapshot(emit))?;
        }
        left.zones.iter().for_each(|zone| self.shared.zones.finish(*zone));
        // The process may have ended before it flushed the log.
        self.shared.device.flush()?;
        *unsettled = None;
        Ok(())
    }

    /// `ENOSPC` unless the index has room for more. The caller holds no object.
    pub(super) fn check_room(&self) -> Result<()> {
        if self.shared.log.room() == IndexRoom::Unsure
            && let Err(error) = self.checkpoint()
        {
            if error.errno() == Errno::ENOSPC {
                return Err(error);
            }
            // The next sync reports it.
            tracing::debug!(%error, "it is not known whether the index has room");
        }
        match self.shared.log.room() {
            IndexRoom::Enough | IndexRoom::Unsure => Ok(()),
            IndexRoom::Full => Err(Error::new(Errno::ENOSPC, "the object index is full")),
        }
    }

    /// Before data is read: lost data may read as zeros.
    pub(super) fn settle_doubts(&self) {
        if self.settled.load(Ordering::Acquire) != self.shared.device.doubts()
            && let Err(error) = self.settle()
        {
            tracing::debug!(%error, "it is not known yet what the device has lost");
        }
    }

    /// After a flush that failed, asks the zones whether the device has lost written
    /// data. Objects know their losses then, by that or otherwise: a place behind a
    /// write pointer must not be taken for one that is written again.
    fn settle_losses(&self) -> Result<()> {
        let zones = &self.shared.zones;
        let (mut losses, failures) = (self.losses.lock(), self.shared.device.failures());
        if losses.failures != failures {
            zones.ask_all()?;
            losses.failures = failures;
        }
        let doubts = self.shared.device.doubts();
        for (zone, lost) in zones.take_lost() {
            for resident in lost {
                let Ok(object) = self.object(resident.object) else { continue };
                object.lose_in(&self.shared, &mut object.state.write(), zone, resident);
            }
            losses.zones.push(zone);
        }
        self.settled.store(doubts, Ordering::Release);
        if !losses.zones.is_empty() {
            self.shared.log.commit(failures, &|emit| self.snapshot(emit))?;
            losses.zones.drain(..).for_each(|zone| zones.loss_is_known(zone));
        }
        Ok(())
    }

    /// Fails once if the device has lost data of some of the objects, as the next sync
    /// does after a write-back that failed.
    pub(super) fn tell_lost(&self, ids: &[ObjectId]) -> Result<()> {
        let is_untold = |id: &&ObjectId| {
            self.object(**id).is_ok_and(|object| std::mem::take(&mut object.state.write().untold))
        };
        // This error reports all of them.
        if ids.iter().filter(is_untold).count() > 0 { Err(lost_error()) } else { Ok(()) }
    }

    /// Fails once if the device has lost data of any object.
    pub(super) fn tell_any_lost(&self) -> Result<()> {
        if self.shared.untold.swap(false, Ordering::AcqRel) { Err(lost_error()) } else { Ok(()) }
    }

    pub(super) fn object(&self, id: ObjectId) -> Result<Arc<Object>> {
        self.objects.read().get(&id).map(Arc::clone).ok_or_else(|| Errno::ENOENT.into())
    }

    /// All objects, in the order in which they were made, so that a run can be repeated
    /// exactly.
    pub(super) fn all(&self) -> Vec<Arc<Object>> {
        let mut objects: Vec<Arc<Object>> = self.objects.read().values().map(Arc::clone).collect();
        objects.sort_unstable_by_key(|object| object.number);
        objects
    }

    /// Makes the data written to the device and its index durable. The caller
    /// holds no object.
    pub(super) fn commit(&self) -> Result<()> {
        // Those are settled, and later ones are not.
        let failures = self.shared.device.failures();
        self.settle()?;
        self.shared.log.commit(failures, &|emit| self.snapshot(emit))
    }

    /// Has the log begin with the index as it is. The caller holds no object.
    fn checkpoint(&self) -> Result<()> {
        let failures = self.shared.device.failures();
        self.settle()?;
        self.shared.log.checkpoint(failures, &|emit| self.snapshot(emit))
    }

    /// All of the index, as records.
    fn snapshot(&self, emit: &mut dyn FnMut(&ZoneRecord)) {
        if let Some(label) = self.label.lock().clone() {
            emit(&ZoneRecord::Label(label));
        }
        for (zone, stream) in self.shared.zones.streams() {
            emit(&ZoneRecord::Zone { zone, stream: stream.map(|stream| stream.0) });
        }
        for object in self.all() {
            object.describe(&self.shared, &object.state.read(), emit);
        }
    }
}

fn lost_error() -> Error {
    Error::new(Errno::EIO, "the device has lost data that was written and not durable")
}
