//! A queue of a session, from the side of the workers: takes requests out of the shared
//! memory, has them carried out, and puts the answers back. Nothing that the application stores is
//! trusted, and all of it is copied before it is checked.

use crate::asked::Asked;
use crate::entries::Gathered;
use crate::layout::{DOORBELL, Geometry, NAME_MAX, Slot, state};
use crate::ledger::{Phase, RequestRecord, Unanswered};
use crate::load::Load;
use crate::once::{Names, Once};
use crate::words;
use braid_contract::{Caller, Errno, HandleId, Operation};
use braid_sdk::abi::{self, Answer, Entries, Failure, Message, Numbers, Target};
use braid_sys::{AlignedBuf, FutexScope, SharedWords, futex_wake};
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Instant;

/// Bytes of the text of an error, at most: as many as a name has.
const WHY_MAX: usize = NAME_MAX;

/// The shared part of a session's queues.
pub(crate) struct SessionShared {
    pub(crate) memory: SharedWords,
    pub(crate) geometry: Geometry,
    /// The session's application; requests can't name another caller.
    caller: Caller,
    /// But each request is of the caller that it names.
    for_others: bool,
    /// Carries requests out in the name of the session's application.
    pub(crate) target: Box<dyn Target>,
    /// Where requests outlive this process: has each carried out once.
    once: Option<Once>,
    /// The user of this process.
    served_by: u32,
    /// The application broke the rules: nothing of the session is served any more.
    broken: AtomicBool,
}

impl SessionShared {
    pub(crate) fn new(
        memory: SharedWords,
        geometry: Geometry,
        (caller, for_others): (Caller, bool),
        (target, once): (Box<dyn Target>, Option<Once>),
    ) -> Self {
        let served_by = rustix::process::geteuid().as_raw();
        Self { memory, geometry, caller, for_others, target, once, served_by, broken: AtomicBool::new(false) }
    }

    /// The word that the application raises to wake workers that sleep.
    pub(crate) fn doorbell(&self) -> &AtomicU64 {
        &self.memory.words()[DOORBELL]
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

/// Whether the requests of a queue are carried out one after another, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// One at a time.
    Kept,
    /// Several workers may have some at the same time.
    Free,
}

/// A queue of a session.
pub(crate) struct Queue {
    pub(crate) shared: Arc<SessionShared>,
    index: usize,
    order: Order,
    /// How many requests were taken. Locked while one is taken, or, where the order is kept,
    /// carried out.
    head: Mutex<u64>,
    /// The same, readable without the lock.
    taken: AtomicU64,
    /// Requests that an earlier process took and did not answer; the next comes last.
    again: Mutex<Vec<Unanswered>>,
    /// Their number, readable without the lock.
    to_repeat: AtomicUsize,
    pub(crate) load: Load,
}

/// A request to be carried out.
struct Job {
    number: u64,
    slot: usize,
    asked: Result<Asked, Failure>,
    /// The [generation](state::generation) of its slot.
    generation: u64,
    /// Its record, if an earlier process took it.
    found: Option<RequestRecord>,
}

/// Others stop waiting for a request when this is dropped.
struct Settles<'a>(&'a Names);

impl Drop for Settles<'_> {
    fn drop(&mut self) {
        self.0.settle(1);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The session ended before these were repeated.
        if let Some(once) = &self.shared.once {
            once.names.settle(self.again.get_mut().iter().filter(|one| one.found.is_noted()).count());
        }
    }
}

/// Memory that a worker keeps for the data of requests.
#[derive(Default)]
pub(crate) struct Buffers {
    written: Vec<u8>,
    read: AlignedBuf,
}

impl Queue {
    /// A queue of which `head` requests were taken already.
    pub(crate) fn new(shared: Arc<SessionShared>, index: usize, order: Order, head: u64, load: Load) -> Self {
        let queue = Self {
            shared,
            index,
            order,
            head: Mutex::new(head),
            taken: AtomicU64::new(head),
            again: Mutex::default(),
            to_repeat: AtomicUsize::new(0),
            load,
        };
        queue.asleep().store(0, Ordering::Relaxed);
        queue
    }

    /// How many requests were taken.
    pub(crate) fn head(&self) -> u64 {
        *self.head.lock()
    }

    /// First, these are carried out or answered, the oldest first.
    pub(crate) fn repeat(&self, mut unanswered: Vec<Unanswered>) {
        if let Some(once) = &self.shared.once {
            once.names.unsettle(unanswered.iter().filter(|one| one.found.is_noted()).count());
        }
        unanswered.reverse();
        // Those that others wait for come first.
        unanswered.sort_by_key(|one| one.found.is_noted());
        self.to_repeat.store(unanswered.len(), Ordering::Release);
        *self.again.lock() = unanswered;
    }

    /// Whether some of these are left.
    pub(crate) fn repeats(&self) -> bool {
        self.to_repeat.load(Ordering::Acquire) > 0
    }

    /// Whether no request of any session that others have to wait for is yet to be repeated.
    fn is_settled(&self) -> bool {
        self.shared.once.as_ref().is_none_or(|once| once.names.is_settled())
    }

    /// Whether several workers may serve it at the same time.
    pub(crate) fn is_free(&self) -> bool {
        self.order == Order::Free
    }

    /// Requests that wait to be taken.
    pub(crate) fn backlog(&self) -> u64 {
        self.waiting().min(self.shared.geometry.depth as u64)
    }

    fn waiting(&self) -> u64 {
        self.tail().wrapping_sub(self.taken.load(Ordering::Acquire))
    }

    /// Whether a request waits that could be taken now. A worker that finds none may sleep:
    /// where the order is kept, the worker that carries a request out wakes it for the next one.
    pub(crate) fn has_work(&self) -> bool {
        (self.repeats() || !self.shared.is_broken() && self.waiting() > 0)
            && (self.is_free() || !self.head.is_locked())
    }

    fn asleep(&self) -> &AtomicU64 {
        &self.shared.memory.words()[self.shared.geometry.asleep(self.index)]
    }

    /// Has the application wake this worker from now on, or not any more. Others may sleep
    /// too.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        if asleep {
            self.asleep().fetch_add(1, Ordering::Relaxed);
            // Before the worker looks for requests for the last time; the application
            // has one like it between its request and its look at this word.
            fence(Ordering::SeqCst);
        } else {
            self.asleep().fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Wakes a worker that went to sleep since the queue was locked, for requests that came then.
    fn wake(&self) {
        // Either this sees that it sleeps, or it sees that the queue is free.
        fence(Ordering::SeqCst);
        if self.asleep().load(Ordering::Relaxed) != 0 && self.has_work() {
            self.shared.doorbell().fetch_add(1, Ordering::AcqRel);
            futex_wake(self.shared.doorbell(), u32::MAX, FutexScope::Shared);
        }
    }

    fn tail(&self) -> u64 {
        self.shared.memory.words()[self.shared.geometry.tail(self.index)].load(Ordering::Acquire)
    }

    /// Carries one request out, if there is one that this worker may take.
    pub(crate) fn serve_one(&self, buffers: &mut Buffers) -> bool {
        if self.shared.is_broken() && !self.repeats() {
            return false;
        }
        let Some(mut head) = self.head.try_lock() else { return false };
        let Some(job) = self.next_again().or_else(|| self.take(&mut head)) else { return false };
        let once = self.shared.once.as_ref().filter(|_| job.found.is_some_and(|found| found.is_noted()));
        let _settles = once.map(|once| Settles(&once.names));
        // Another worker takes the next one only after this one's answer.
        let order: Option<MutexGuard<'_, u64>> = (self.order == Order::Kept).then_some(head);
        let begun = Instant::now();
        self.serve(&job, buffers);
        self.load.served(begun.elapsed());
        if let Some(order) = order {
            drop(order);
            self.wake();
        }
        true
    }

    fn next_again(&self) -> Option<Job> {
        if !self.repeats() {
            return None;
        }
        let mut again = self.again.lock();
        if !again.last()?.found.is_noted() && !self.is_settled() {
            return None;
        }
        let Unanswered { number, slot, asked, generation, found } = again.pop()?;
        self.to_repeat.store(again.len(), Ordering::Release);
        Some(Job { number, slot, asked, generation, found: Some(found) })
    }

    /// Takes the next request.
    fn take(&self, head: &mut u64) -> Option<Job> {
        let (geometry, words) = (self.shared.geometry, self.shared.memory.words());
        let waiting = self.tail().wrapping_sub(*head);
        if waiting == 0 || self.shared.is_broken() || self.repeats() || !self.is_settled() {
            return None;
        }
        let number = words[geometry.entry(self.index, *head)].load(Ordering::Relaxed);
        let slot = usize::try_from(number).ok().filter(|slot| *slot < geometry.depth);
        let Some(slot) = slot.filter(|_| waiting <= geometry.depth as u64) else {
            self.shared.broken.store(true, Ordering::Relaxed);
            return None;
        };
        // A slot has one request at a time.
        let is_used = |once: &Once| once.ledger.is_under_way(once.ledger.place(self.index, slot));
        if self.shared.once.as_ref().is_some_and(is_used) {
            self.shared.broken.store(true, Ordering::Relaxed);
            return None;
        }
        let place = geometry.slot(self.index, slot);
        let generation = state::generation(words[place.state()].load(Ordering::Relaxed));
        let asked = Asked::of(words, geometry, place);
        if let Some(once) = &self.shared.once {
            once.ledger.taken(once.ledger.place(self.index, slot), (*head, generation), &asked);
            once.ledger.set_head(self.index, head.wrapping_add(1));
        }
        *head = head.wrapping_add(1);
        self.taken.store(*head, Ordering::Release);
        Some(Job { number: head.wrapping_sub(1), slot, asked, generation, found: None })
    }

    fn serve(&self, job: &Job, buffers: &mut Buffers) {
        let slot = self.shared.geometry.slot(self.index, job.slot);
        let once = self.shared.once.as_ref();
        let kept = once.map(|once| (once, once.ledger.place(self.index, job.slot)));
        if !job.found.is_some_and(|found| found.phase == Phase::Answered) {
            let outcome = match &job.asked {
                Ok(asked) => self.carry_out((asked, job), slot, buffers),
                Err(failure) => Err(failure.clone()),
            };
            let opened = outcome.as_ref().map_or(0, |outcome| outcome.answer.answers.handle);
            self.answer(slot, outcome, buffers);
            if let Some((once, place)) = kept {
                once.ledger.answered(place, HandleId(opened));
            }
        }
        self.notify(slot, job);
        if let Some((once, place)) = kept {
            once.mark_delivered(place, job.number);
        }
    }

    /// Notifies the application that there is an answer.
    fn notify(&self, slot: Slot, job: &Job) {
        let word = &self.shared.memory.words()[slot.state()];
        if job.found.is_some() {
            // It may have been notified before: then the slot may have another request.
            let updated = word.try_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (state::generation(word) == job.generation).then_some(job.generation | state::ANSWERED)
            });
            if updated.is_ok() {
                futex_wake(word, 1, FutexScope::Shared);
            }
        } else if state::of(word.swap(job.generation | state::ANSWERED, Ordering::AcqRel)) == state::AWAITED {
            futex_wake(word, 1, FutexScope::Shared);
        }
    }

    fn carry_out(
        &self,
        (asked, job): (&Asked, &Job),
        slot: Slot,
        buffers: &mut Buffers,
    ) -> Result<Outcome, Failure> {
        let words = &self.shared.memory.words()[slot.data()];
        if asked.data > 0 {
            buffers.written.resize(asked.data, 0);
            words::load(words, &mut buffers.written);
        }
        let mut entries = asked.entries.then(|| Gathered::new(asked.room));
        let (numbers, groups) = self.in_the_name_of(asked, slot);
        let message = Message {
            groups: &groups,
            name: asked.name(),
            new_name: asked.new_name(),
            data: &buffers.written[..asked.data],
            buffer: if asked.entries { &mut [] } else { buffers.read.bytes(asked.room) },
            entries: entries.as_mut().map(|entries| entries as &mut dyn Entries),
            ..Message::new(numbers)
        };
        // A panic leaves the same state behind as in any other thread of the daemon.
        let called = catch_unwind(AssertUnwindSafe(|| match &self.shared.once {
            Some(once) => {
                let place = once.ledger.place(self.index, job.slot);
                once.call((place, job.found), message, &*self.shared.target)
            }
            None => self.shared.target.call(message),
        }));
        let answer = called.unwrap_or_else(|_| Err(Failure { errno: Errno::EIO.0, why: String::new() }))?;
        Ok(match entries {
            Some(entries) => Outcome { read: 0, bytes: entries.into_bytes(), answer },
            None => {
                // Only a read fills the buffer, and counts its bytes. The count of another request
                // would be of bytes that were read before, for another one.
                let is_read = asked.numbers.operation == Operation::Read as u32;
                let read = if is_read { answer.answers.count.min(asked.room as u64) as usize } else { 0 };
                Outcome { read, bytes: Vec::new(), answer }
            }
        })
    }

    /// A request in the name of its caller, with the caller's groups.
    fn in_the_name_of(&self, asked: &Asked, slot: Slot) -> (Numbers, Cow<'_, [u32]>) {
        if self.shared.for_others {
            let mut groups = vec![0; asked.groups];
            let words = &self.shared.memory.words()[slot.groups(asked.groups)];
            words::load(words, bytemuck::cast_slice_mut(&mut groups));
            return (asked.numbers, Cow::Owned(groups));
        }
        let Caller { uid, gid, groups, pid, tid, .. } = &self.shared.caller;
        let (uid, gid, pid, tid) = (*uid, *gid, *pid, *tid);
        let flags = asked.numbers.flags | abi::KNOWS_GROUPS;
        let numbers = Numbers { uid, gid, pid, tid, flags, ..asked.numbers };
        (numbers, Cow::Borrowed(groups.as_deref().unwrap_or_default()))
    }

    /// Puts an answer into the slot.
    fn answer(&self, slot: Slot, outcome: Result<Outcome, Failure>, buffers: &mut Buffers) {
        let words = self.shared.memory.words();
        let data = &words[slot.data()];
        let (errno, len, why) = match outcome {
            Ok(Outcome { read, bytes, answer }) => {
                words::store_value(&words[slot.answers()], &answer.answers);
                let bytes = if bytes.is_empty() { &answer.bytes[..] } else { &bytes[..] };
                if bytes.len() > data.len() * 8 {
                    (Errno::ERANGE.0, 0, String::new())
                } else if bytes.is_empty() {
                    words::store(data, &buffers.read.filled()[..read]);
                    (0, read, String::new())
                } else {
                    words::store(data, bytes);
                    (0, bytes.len(), String::new())
                }
            }
            Err(Failure { errno, why }) => (errno, 0, why),
        };
        // They may name directories of tiers, which other users must not see.
        let may_know = [0, self.shared.served_by].contains(&self.shared.caller.uid);
        let why = if may_know { &why.as_bytes()[..why.len().min(WHY_MAX)] } else { &[] };
        words::store(&words[slot.name()], why);
        words[slot.room()].store(u64::from(errno.unsigned_abs()), Ordering::Relaxed);
        words[slot.answered()].store(len as u64 | (why.len() as u64) << 32, Ordering::Relaxed);
    }
}

/// The answer, and the count of bytes read into the worker's buffer.
struct Outcome {
    read: usize,
    bytes: Vec<u8>,
    answer: Answer,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use braid_sdk::abi::Capabilities;
    use std::sync::mpsc;

    pub(crate) const GEOMETRY: Geometry = Geometry { queues: 1, depth: 1, data: 4096 };

    pub(crate) fn queue(target: impl Target + 'static, order: Order) -> Queue {
        let memory = SharedWords::create("test", GEOMETRY.words()).unwrap();
        let shared = SessionShared::new(memory, GEOMETRY, (Caller::root(), false), (Box::new(target), None));
        Queue::new(Arc::new(shared), 0, order, 0, Load::new((0, 0), braid_contract::Class::Auto))
    }

    pub(crate) fn submit(queue: &Queue) {
        queue.shared.memory.words()[GEOMETRY.tail(0)].fetch_add(1, Ordering::Release);
    }

    pub(crate) fn is_answered(queue: &Queue) -> bool {
        let words = queue.shared.memory.words();
        state::of(words[GEOMETRY.slot(0, 0).state()].load(Ordering::Acquire)) == state::ANSWERED
    }

    /// Signals that a request has begun, and carries it out on request.
    pub(crate) struct Slow(pub(crate) mpsc::Sender<()>, pub(crate) Mutex<mpsc::Receiver<()>>);

    impl Target for Slow {
        fn call(&self, _: Message<'_>) -> Result<Answer, Failure> {
            self.0.send(()).unwrap();
            self.1.lock().recv().unwrap();
            Ok(Answer::default())
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{GEOMETRY, Slow, is_answered, queue, submit};
    use super::*;
    use braid_sdk::abi::Capabilities;
    use std::sync::mpsc;

    /// Reads as many bytes of 7 as there is room for; anything else is done with 100 bytes.
    struct Sevens;

    impl Target for Sevens {
        fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
            let mut answer = Answer::default();
            answer.answers.count = 100;
            if message.numbers.operation == Operation::Read as u32 {
                message.buffer.fill(7);
                answer.answers.count = message.buffer.len() as u64;
            }
            Ok(answer)
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }
    }

    /// Asks with room for 200 bytes, and returns the data that comes back.
    fn ask(queue: &Queue, operation: Operation, buffers: &mut Buffers) -> Vec<u8> {
        let (words, slot) = (queue.shared.memory.words(), GEOMETRY.slot(0, 0));
        let numbers = Numbers { operation: operation as u32, ..Numbers::default() };
        words::store_value(&words[slot.numbers()], &numbers);
        words::store(&words[slot.data()], &[0; 4096]);
        words[slot.lengths()].store(0, Ordering::Relaxed);
        words[slot.room()].store(200, Ordering::Relaxed);
        submit(queue);
        assert!(queue.serve_one(buffers) && !queue.serve_one(buffers));
        assert!(is_answered(queue));
        let mut data = vec![0; 4096];
        words::load(&words[slot.data()], &mut data);
        data
    }

    #[test]
    fn nothing_of_an_earlier_read_is_in_the_answer_of_another_request() {
        let (queue, mut buffers) = (queue(Sevens, Order::Kept), Buffers::default());
        assert!(ask(&queue, Operation::Read, &mut buffers)[..200].iter().all(|byte| *byte == 7));
        for operation in [Operation::Write, Operation::Seek, Operation::CopyRange, Operation::Getattr] {
            let data = ask(&queue, operation, &mut buffers);
            assert!(data.iter().all(|byte| *byte == 0), "{operation}");
        }
    }

    #[test]
    fn who_sleeps_since_a_queue_is_in_use_is_woken_for_the_next_request() {
        let (begun, begins) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let queue = queue(Slow(begun, Mutex::new(ends)), Order::Kept);
        let doorbell = || queue.shared.doorbell().load(Ordering::Acquire);
        std::thread::scope(|scope| {
            submit(&queue);
            let other = scope.spawn(|| assert!(queue.serve_one(&mut Buffers::default())));
            begins.recv().unwrap();
            // It can't have the next request, and sleeps.
            submit(&queue);
            let before = doorbell();
            queue.set_asleep(true);
            assert!(!queue.has_work() && !queue.serve_one(&mut Buffers::default()));
            end.send(()).unwrap();
            other.join().unwrap();
            assert!(doorbell() != before && queue.has_work());
            queue.set_asleep(false);
        });
    }

    #[test]
    fn a_request_is_seen_while_others_look_at_the_queue() {
        let queue = queue(Sevens, Order::Free);
        submit(&queue);
        let _looks = queue.head.lock();
        assert!(queue.has_work());
        assert_eq!(queue.backlog(), 1);
    }

    #[test]
    fn an_application_wakes_workers_as_long_as_one_of_them_sleeps() {
        let queue = queue(Sevens, Order::Free);
        let rings = || queue.asleep().load(Ordering::Relaxed) != 0;
        queue.set_asleep(true);
        queue.set_asleep(true);
        queue.set_asleep(false);
        assert!(rings());
        queue.set_asleep(false);
        assert!(!rings());
    }
}
