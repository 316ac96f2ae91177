//! A queue of a session, from the side of the application.

use super::link::Link;
use crate::layout::{ENTRIES, GROUPS_MAX, Geometry, NAME_MAX, Slot, UNSUBMITTED, state};
use crate::{entries, words};
use braid_contract::Errno;
use braid_sdk::abi::{self, Answer, Failure, Message, Numbers};
use braid_sys::{FutexScope, SharedWords, futex_wait};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Time between a sleeping thread's checks that there is still a runtime.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of entries of a directory in one answer, at most: as many as programs ask for.
const LISTED_MAX: usize = 32 << 10;

/// A queue of a link.
pub(super) struct Queue {
    index: usize,
    geometry: Geometry,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    /// Slots without a request.
    free: Vec<usize>,
    /// Slots with a request whose answer no thread waits for, the oldest first.
    posted: VecDeque<usize>,
    /// Requests so far.
    tail: u64,
}

impl Queue {
    pub(super) fn new(index: usize, geometry: Geometry) -> Self {
        let free = (0..geometry.depth).rev().collect();
        Self {
            index,
            geometry,
            state: Mutex::new(State { free, posted: VecDeque::new(), tail: 0 }),
            freed: Condvar::new(),
        }
    }

    /// The queue of another process, with these slots in use; the memory has how far it got.
    pub(super) fn resumed(
        index: usize,
        geometry: Geometry,
        posted: Vec<usize>,
        memory: &SharedWords,
    ) -> Self {
        let free = (0..geometry.depth).rev().filter(|slot| !posted.contains(slot)).collect();
        let tail = memory.words()[geometry.tail(index)].load(Ordering::Acquire);
        let state = State { free, posted: posted.into(), tail };
        Self { index, geometry, state: Mutex::new(state), freed: Condvar::new() }
    }

    /// The queue of a process that crashed: requests that it had submitted are carried out, and no
    /// thread waits for their answers.
    pub(super) fn after_crash(index: usize, geometry: Geometry, memory: &SharedWords) -> Self {
        let shared = memory.words();
        let tail = shared[geometry.tail(index)].load(Ordering::Acquire);
        let is_under_way = |number: &usize| {
            let slot = geometry.slot(index, *number);
            let submitted = shared[slot.submitted()].load(Ordering::Acquire);
            let asked = [state::ASKED, state::AWAITED];
            asked.contains(&state::of(shared[slot.state()].load(Ordering::Acquire)))
                && submitted != UNSUBMITTED
                && tail.wrapping_sub(submitted).cast_signed() > 0
        };
        let posted = (0..geometry.depth).filter(is_under_way).collect();
        Self::resumed(index, geometry, posted, memory)
    }

    /// Waits for all answers that no thread waits for.
    pub(super) fn settle(&self, link: &Link) -> Result<(), Failure> {
        loop {
            let posted = self.state.lock().posted.pop_front();
            let Some(number) = posted else { return Ok(()) };
            self.wait(link, self.geometry.slot(self.index, number))?;
            self.state.lock().free.push(number);
        }
    }

    /// The slots with a request, the oldest of those first whose answer no thread waits for.
    pub(super) fn busy(&self) -> Vec<usize> {
        let State { free, posted, .. } = &*self.state.lock();
        let posted_not = |slot: &usize| !free.contains(slot) && !posted.contains(slot);
        posted.iter().copied().chain((0..self.geometry.depth).filter(posted_not)).collect()
    }

    /// Has a request carried out, and waits for its answer. Data and names have to fit.
    pub(super) fn call(&self, link: &Link, mut message: Message<'_>) -> Result<Answer, Failure> {
        let number = self.take_slot(link)?;
        let slot = self.geometry.slot(self.index, number);
        self.put(link, slot, &message);
        self.submit(link, number);
        self.wait(link, slot)?;
        let answer = self.get(link, slot, &mut message);
        self.state.lock().free.push(number);
        self.freed.notify_one();
        answer
    }

    /// Has a request carried out that has no answer; does not wait for it.
    pub(super) fn post(&self, link: &Link, message: &Message<'_>) -> Result<(), Failure> {
        let number = self.take_slot(link)?;
        self.put(link, self.geometry.slot(self.index, number), message);
        self.submit(link, number);
        self.state.lock().posted.push_back(number);
        Ok(())
    }

    fn take_slot(&self, link: &Link) -> Result<usize, Failure> {
        let mut state = self.state.lock();
        loop {
            if let Some(slot) = state.free.pop() {
                return Ok(slot);
            }
            if let Some(posted) = state.posted.pop_front() {
                drop(state);
                self.wait(link, self.geometry.slot(self.index, posted))?;
                return Ok(posted);
            }
            if self.freed.wait_for(&mut state, LOOK).timed_out() && link.is_over() {
                return Err(over());
            }
        }
    }

    fn put(&self, link: &Link, slot: Slot, message: &Message<'_>) {
        let shared = link.memory.words();
        shared[slot.submitted()].store(UNSUBMITTED, Ordering::Release);
        let groups = if link.for_others { message.groups } else { &[] };
        let used = message.data.len().div_ceil(8) + groups.len().div_ceil(2);
        // A request with so much data is about an open file: its caller was checked before.
        let fits = groups.len() <= GROUPS_MAX && used * 8 <= self.geometry.data;
        let (groups, lost) = if fits { (groups, 0) } else { (&[][..], abi::KNOWS_GROUPS) };
        let numbers = Numbers { flags: message.numbers.flags & !lost, ..message.numbers };
        words::store_value(&shared[slot.numbers()], &numbers);
        words::store(&shared[slot.groups(groups.len())], bytemuck::cast_slice(groups));
        words::store(&shared[slot.name()], message.name);
        words::store(&shared[slot.new_name()], message.new_name);
        words::store(&shared[slot.data()], message.data);
        let (name, new_name, data) =
            (message.name.len() as u64, message.new_name.len() as u64, message.data.len() as u64);
        shared[slot.lengths()].store(name | new_name << 16 | data << 32, Ordering::Relaxed);
        let room = match message.entries {
            Some(_) => self.geometry.data.min(LISTED_MAX) as u64 | ENTRIES,
            None => message.buffer.len() as u64,
        };
        shared[slot.room()].store(room | (groups.len() as u64) << 32, Ordering::Relaxed);
        let word = &shared[slot.state()];
        word.store(state::next(word.load(Ordering::Relaxed)) | state::ASKED, Ordering::Release);
    }

    fn submit(&self, link: &Link, slot: usize) {
        let shared = link.memory.words();
        {
            let mut state = self.state.lock();
            let submitted = self.geometry.slot(self.index, slot).submitted();
            shared[submitted].store(state.tail, Ordering::Release);
            shared[self.geometry.entry(self.index, state.tail)].store(slot as u64, Ordering::Relaxed);
            state.tail = state.tail.wrapping_add(1);
            shared[self.geometry.tail(self.index)].store(state.tail, Ordering::Release);
        }
        // Either this sees that the workers sleep, or they see the request.
        fence(Ordering::SeqCst);
        if shared[self.geometry.asleep(self.index)].load(Ordering::Relaxed) != 0 {
            link.ring();
        }
    }

    fn wait(&self, link: &Link, slot: Slot) -> Result<(), Failure> {
        let word = &link.memory.words()[slot.state()];
        let is_answered = || state::of(word.load(Ordering::Acquire)) == state::ANSWERED;
        if link.polling.until(link.poll, is_answered) {
            return Ok(());
        }
        let generation = state::generation(word.load(Ordering::Relaxed));
        let (asked, awaits) = (generation | state::ASKED, generation | state::AWAITED);
        let awaited = || {
            let was = word.compare_exchange(asked, awaits, Ordering::AcqRel, Ordering::Acquire);
            state::of(was.unwrap_or_else(|word| word)) != state::ANSWERED
        };
        while awaited() {
            let expired = futex_wait(word, awaits, Some(LOOK), FutexScope::Shared);
            if expired && !is_answered() && link.is_over() {
                return Err(over());
            }
        }
        Ok(())
    }

    /// Reads the answer. The runtime is trusted, but an answer that does not fit is refused.
    fn get(&self, link: &Link, slot: Slot, message: &mut Message<'_>) -> Result<Answer, Failure> {
        let shared = link.memory.words();
        let answered = shared[slot.answered()].load(Ordering::Relaxed);
        let (len, why_len) = ((answered & 0xffff_ffff) as usize, (answered >> 32) as usize);
        let errno = shared[slot.room()].load(Ordering::Relaxed) as i32;
        if errno != 0 {
            let mut why = vec![0; why_len.min(NAME_MAX)];
            words::load(&shared[slot.name()], &mut why);
            return Err(Failure { errno, why: String::from_utf8_lossy(&why).into_owned() });
        }
        let answers = words::load_value(&shared[slot.answers()]);
        let data = &shared[slot.data()];
        let mut answer = Answer { answers, ..Answer::default() };
        if !message.buffer.is_empty() {
            let read = message.buffer.get_mut(..len).ok_or_else(breach)?;
            words::load(data, read);
            return Ok(answer);
        }
        if len > data.len() * 8 {
            return Err(breach());
        }
        let mut bytes = vec![0; len];
        words::load(data, &mut bytes);
        match &mut message.entries {
            Some(sink) => answer.bytes = entries::hand_on(&bytes, &mut **sink).ok_or_else(breach)?.to_vec(),
            None => answer.bytes = bytes,
        }
        Ok(answer)
    }
}

/// The runtime has gone. Whether the request was carried out is not known.
fn over() -> Failure {
    Failure { errno: Errno::ENOTCONN.0, why: "the runtime has ended; it may have done this before".into() }
}

fn breach() -> Failure {
    Failure { errno: Errno::EIO.0, why: "the runtime answers what can't be".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::polling::Polling;
    use braid_contract::Operation;
    use std::os::unix::net::UnixStream;

    const GEOMETRY: Geometry = Geometry { queues: 1, depth: 6, data: 4096 };

    fn put(queue: &Queue, link: &Link) -> usize {
        let number = queue.take_slot(link).unwrap();
        let numbers = Numbers { operation: Operation::Sync as u32, ..Numbers::default() };
        queue.put(link, GEOMETRY.slot(0, number), &Message::new(numbers));
        number
    }

    #[test]
    fn requests_that_a_process_had_submitted_are_under_way_and_no_others() {
        let memory = SharedWords::create("test", GEOMETRY.words()).unwrap();
        let (socket, _runtime) = UnixStream::pair().unwrap();
        let (poll, polling) = (Duration::ZERO, Polling::default());
        let link = Link { memory, geometry: GEOMETRY, for_others: false, poll, polling, socket, keeps: true };
        let queue = Queue::new(0, GEOMETRY);
        let shared = link.memory.words();
        let answer = |number: usize| {
            let state = &shared[GEOMETRY.slot(0, number).state()];
            let generation = state::generation(state.load(Ordering::Relaxed));
            state.store(generation | state::ANSWERED, Ordering::Release);
        };
        let under_way = || {
            let mut posted = Queue::after_crash(0, GEOMETRY, &link.memory).busy();
            posted.sort_unstable();
            posted
        };
        assert!(under_way().is_empty());
        // More than the ring has places, so that numbers in it come again.
        for _ in 0..20 {
            let number = put(&queue, &link);
            assert!(under_way().is_empty(), "it is not in the queue yet");
            queue.submit(&link, number);
            assert_eq!(under_way(), [number]);
            answer(number);
            assert!(under_way().is_empty());
            queue.state.lock().free.push(number);
        }
        let (first, second) = (put(&queue, &link), put(&queue, &link));
        let _never = put(&queue, &link);
        queue.submit(&link, second);
        queue.submit(&link, first);
        let mut both = [first, second];
        both.sort_unstable();
        assert_eq!(under_way(), both);

        // The next process waits for these two, and uses the others.
        let next = Queue::after_crash(0, GEOMETRY, &link.memory);
        answer(second);
        std::thread::scope(|scope| {
            let settled = scope.spawn(|| next.settle(&link));
            answer(first);
            settled.join().unwrap().unwrap();
        });
        assert_eq!(next.state.lock().free.len(), GEOMETRY.depth);
        let before = next.state.lock().tail;
        let number = put(&next, &link);
        next.submit(&link, number);
        assert_eq!((next.state.lock().tail, under_way()), (before + 1, vec![number]));
    }
}
