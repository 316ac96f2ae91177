//! The times of a spread file in use: ahead of those of its home inode, and
//! which tiers are known to have them.
//!
//! The access time is that of the home inode or the one here, whichever is
//! later. The one here came from a read of another tier; until the home inode
//! has it too, that tier's object keeps it (`file/access_time.rs`).

use crate::coord::Live;
use braid_contract::{Environment, Renewal, TierId, Timestamp};
use braid_home::ReadRenewal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

const SECOND_NS: i64 = 1_000_000_000;

/// Reads this soon after one that counted leave the access time alone, as they
/// do within a tick of the kernel's clock: it is not stored by each read.
const TICK_NS: i64 = 1_000_000;

/// How far the kernel's coarse clock may be behind its fine one.
const COARSE_NS: i64 = 10_000_000;

/// How often a read looks whether the access time is old, with `relatime`.
const CHECK_NS: i64 = 60 * SECOND_NS;

/// How long an access time may be in memory only, while the file is read.
const KEPT_WITHIN_NS: i64 = SECOND_NS;

/// No tier.
const NONE: u8 = u8::MAX;

/// The times of a file. Read on each read; stored to only when one changes.
#[derive(Debug)]
pub(crate) struct Times {
    live: Live,
    environment: Arc<dyn Environment>,
    /// The access time's owner was asked, so far as it is not home.
    atime_known: AtomicBool,
    /// When it was last looked whether the access time is old.
    checked_ns: AtomicI64,
    /// The access time that an object has.
    kept_ns: AtomicI64,
    /// The tier of the last read that counted.
    read_on: AtomicU8,
    /// An object may have an access time, which one set on home must not leave
    /// there.
    objects_may_have_it: AtomicBool,
}

/// A read's duty for the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// It is that of this read now, and is to be kept.
    Renewed,
    /// It may be old: if so, this is the time now.
    Check(i64),
}

impl Times {
    pub(crate) fn new(live: Live, environment: Arc<dyn Environment>) -> Self {
        Self {
            live,
            environment,
            atime_known: AtomicBool::new(false),
            checked_ns: AtomicI64::new(0),
            kept_ns: AtomicI64::new(0),
            read_on: AtomicU8::new(NONE),
            objects_may_have_it: AtomicBool::new(true),
        }
    }

    /// The same, over a copy of its live state.
    pub(crate) fn moved(&self, live: Live) -> Self {
        let known = self.atime_known.load(Ordering::Acquire);
        let moved = Self::new(live, Arc::clone(&self.environment));
        moved.atime_known.store(known, Ordering::Release);
        moved
    }

    pub(crate) fn mtime(&self) -> Option<Timestamp> {
        self.live.mtime_ns().map(Timestamp::from_nanos)
    }

    pub(crate) fn touch_mtime(&self) {
        self.live.touch_mtime(self.environment.wall_ns());
    }

    /// The home inode has this time, which was ahead of it. It still is behind
    /// if a write came meanwhile.
    pub(crate) fn mtime_was_stored(&self, time: Timestamp) {
        self.live.mtime_was_stored(time.secs * SECOND_NS + i64::from(time.nanos));
        self.check_soon();
    }

    /// The home inode's time is right again, or is about to be set.
    pub(crate) fn give_up_mtime(&self) {
        self.live.give_up_mtime();
        self.check_soon();
    }

    /// The home inode has new times: the next read looks whether the access time
    /// is old.
    fn check_soon(&self) {
        self.checked_ns.store(0, Ordering::Relaxed);
    }

    /// The access time by reads of other tiers than home, if there is one.
    pub(crate) fn atime(&self) -> Option<Timestamp> {
        Some(self.live.atime_ns()).filter(|ns| *ns != 0).map(Timestamp::from_nanos)
    }

    /// Whether [`atime`](Self::atime) is all there is: its owner was asked.
    pub(crate) fn atime_is_known(&self) -> bool {
        self.atime_known.load(Ordering::Acquire)
    }

    /// No object has an access time.
    pub(crate) fn no_object_has_it(&self) {
        self.learn_atime(None);
        self.objects_may_have_it.store(false, Ordering::Relaxed);
    }

    /// An object is about to get an access time.
    pub(crate) fn object_gets_it(&self) {
        self.objects_may_have_it.store(true, Ordering::Relaxed);
    }

    /// The owner of the access time answered.
    pub(crate) fn learn_atime(&self, owners: Option<Timestamp>) {
        if self.atime_known.swap(true, Ordering::AcqRel) {
            return;
        }
        // A read may have come meanwhile, which is later.
        if let Some(ns) = owners.and_then(ns_of)
            && self.live.renew_atime(0, ns)
        {
            self.kept_ns.store(ns, Ordering::Relaxed);
        }
    }

    /// The access time was set on the home inode. Answers whether an object may
    /// have one.
    pub(crate) fn atime_was_set(&self) -> bool {
        self.atime_known.store(true, Ordering::Release);
        self.live.give_up_atime();
        self.kept_ns.store(0, Ordering::Relaxed);
        self.read_on.store(NONE, Ordering::Relaxed);
        self.check_soon();
        self.objects_may_have_it.load(Ordering::Relaxed)
    }

    /// A read's duty, where reads renew the access time like this; `None`, most
    /// often: nothing. With `relatime`, it is due if the file was changed
    /// since; whether it is old is checked now and then.
    pub(crate) fn atime_is_due(&self, ReadRenewal { renewal, is_set }: ReadRenewal) -> Option<Due> {
        if renewal == Renewal::Never && is_set {
            return None;
        }
        let (now, last) = (self.environment.wall_ns(), self.live.atime_ns());
        let renews = match renewal {
            Renewal::Always => true,
            Renewal::Relative => self.live.mtime_ns().is_some_and(|changed| changed >= last),
            Renewal::Never => false,
        };
        // A user may have set one in the future.
        if renews && !(0..TICK_NS).contains(&now.saturating_sub(last)) && self.live.renew_atime(last, now) {
            return Some(Due::Renewed);
        }
        if renewal == Renewal::Always && is_set {
            return None;
        }
        let checked = self.checked_ns.load(Ordering::Relaxed);
        // The clock may have been set back.
        let due = !(0..=CHECK_NS).contains(&now.saturating_sub(checked))
            && self.checked_ns.swap(now, Ordering::Relaxed) == checked;
        due.then_some(Due::Check(now))
    }

    /// The access time was found old: it is that of the read at `now_ns` from now
    /// on, unless another one was faster. The file was last changed at `changed`,
    /// maybe by a finer clock than that of reads.
    pub(crate) fn renew_atime(&self, now_ns: i64, changed: Timestamp) -> bool {
        let ahead = |changed: &i64| (0..COARSE_NS).contains(&changed.saturating_sub(now_ns));
        let now_ns = ns_of(changed).filter(ahead).unwrap_or(now_ns);
        let last = self.live.atime_ns();
        last < now_ns && self.live.renew_atime(last, now_ns)
    }

    /// The read that counted was on this tier. Answers whether its object is to
    /// have the time now, and not only when the file is closed or synced.
    pub(crate) fn was_read_on(&self, tier: TierId) -> bool {
        if self.read_on.load(Ordering::Relaxed) != tier.0 {
            self.read_on.store(tier.0, Ordering::Relaxed);
        }
        let kept = self.kept_ns.load(Ordering::Relaxed);
        !(0..KEPT_WITHIN_NS).contains(&self.live.atime_ns().saturating_sub(kept))
    }

    /// The tier whose object is to have the access time, and has not yet.
    pub(crate) fn atime_owed_to(&self) -> Option<TierId> {
        let tier = TierId(self.read_on.load(Ordering::Relaxed));
        let owed = self.live.atime_ns() != self.kept_ns.load(Ordering::Relaxed);
        (owed && tier.0 != NONE).then_some(tier)
    }

    /// An object, or the home inode, has this access time.
    pub(crate) fn atime_is_kept(&self, time: Timestamp) {
        self.kept_ns.store(ns_of(time).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// `None` for a time that is centuries away.
fn ns_of(time: Timestamp) -> Option<i64> {
    time.secs.checked_mul(SECOND_NS)?.checked_add(time.nanos.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coord::of_file;
    use braid_contract::Result;
    use std::time::Duration;

    #[derive(Debug, Default)]
    struct Clock(AtomicI64);

    impl Environment for Clock {
        fn wall_ns(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }

        fn monotonic_ns(&self) -> u64 {
            0
        }

        fn fill_random(&self, _: &mut [u8]) -> Result<()> {
            Ok(())
        }

        fn threads(&self) -> bool {
            false
        }
    }

    const START: i64 = 1_700_000_000 * SECOND_NS;

    fn times() -> (Times, Arc<Clock>) {
        let clock = Arc::new(Clock(AtomicI64::new(START)));
        let environment: Arc<dyn Environment> = clock.clone();
        (Times::new(of_file().1, environment), clock)
    }

    fn wait(clock: &Clock, time: Duration) {
        clock.0.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
    }

    fn set(renewal: Renewal) -> ReadRenewal {
        ReadRenewal { renewal, is_set: true }
    }

    #[test]
    fn a_change_makes_the_access_time_due_once() {
        let (times, clock) = times();
        let due = || times.atime_is_due(set(Renewal::Relative));
        assert_eq!(due(), Some(Due::Check(START)), "nothing is known yet");
        assert_eq!(due(), None);
        times.touch_mtime();
        assert_eq!(due(), Some(Due::Renewed));
        assert_eq!(times.atime(), Some(Timestamp::from_nanos(START)));
        wait(&clock, Duration::from_millis(5));
        assert_eq!(due(), Some(Due::Renewed), "it was read in the moment of the change");
        assert_eq!(due(), None);
        wait(&clock, Duration::from_secs(61));
        assert!(matches!(due(), Some(Due::Check(_))));
        assert_eq!(due(), None);
    }

    #[test]
    fn no_more_than_one_read_in_a_tick_stores_the_time() {
        let (times, clock) = times();
        let due = || times.atime_is_due(set(Renewal::Always));
        assert_eq!(due(), Some(Due::Renewed));
        assert_eq!(due(), None);
        wait(&clock, Duration::from_nanos(TICK_NS as u64));
        assert_eq!((due(), due()), (Some(Due::Renewed), None));
    }

    #[test]
    fn reads_without_access_times_look_at_nothing_unless_the_mount_decides() {
        let (times, clock) = times();
        times.touch_mtime();
        assert_eq!(times.atime_is_due(set(Renewal::Never)), None);
        let mounted = ReadRenewal { renewal: Renewal::Never, is_set: false };
        for _ in 0..2 {
            assert!(matches!(times.atime_is_due(mounted), Some(Due::Check(_))));
            assert_eq!(times.atime_is_due(mounted), None);
            wait(&clock, Duration::from_secs(61));
        }
    }

    #[test]
    fn an_object_has_the_time_after_a_second_or_at_the_close() {
        let (times, clock) = times();
        let read = || times.atime_is_due(set(Renewal::Always)) == Some(Due::Renewed);
        assert!(read() && times.was_read_on(TierId(3)));
        times.atime_is_kept(Timestamp::from_nanos(START));
        assert_eq!(times.atime_owed_to(), None);
        wait(&clock, Duration::from_millis(900));
        assert!(read() && !times.was_read_on(TierId(4)));
        assert_eq!(times.atime_owed_to(), Some(TierId(4)));
        wait(&clock, Duration::from_millis(200));
        assert!(read() && times.was_read_on(TierId(3)));
        assert!(times.atime_was_set(), "an object has a time that must not count");
        assert_eq!((times.atime(), times.atime_owed_to()), (None, None));
    }

    #[test]
    fn an_object_may_have_a_time_unless_it_is_new() {
        let (times, _) = times();
        times.learn_atime(None);
        assert!(times.atime_was_set() && times.atime_was_set());
        times.no_object_has_it();
        assert!(!times.atime_was_set());
        times.object_gets_it();
        assert!(times.atime_was_set() && times.atime_was_set());
    }

    #[test]
    fn a_read_is_later_than_what_the_owner_knows() {
        let (first, _) = times();
        first.learn_atime(Some(Timestamp::from_nanos(5)));
        first.learn_atime(Some(Timestamp::from_nanos(6)));
        assert_eq!((first.atime(), first.atime_owed_to()), (Some(Timestamp::from_nanos(5)), None));
        let (second, _) = times();
        assert!(!second.atime_is_known() && second.renew_atime(7, Timestamp::from_nanos(3)));
        second.learn_atime(Some(Timestamp::from_nanos(5)));
        assert_eq!(second.atime(), Some(Timestamp::from_nanos(7)));
        assert!(second.renew_atime(8, Timestamp::from_nanos(9)));
        assert_eq!(second.atime(), Some(Timestamp::from_nanos(9)), "a finer clock told of the change");
        assert!(second.renew_atime(10, Timestamp::from_nanos(10 + COARSE_NS)));
        assert_eq!(second.atime(), Some(Timestamp::from_nanos(10)), "a change in the future");
        let (third, _) = times();
        third.learn_atime(Some(Timestamp { secs: i64::MAX, nanos: 0 }));
        assert!(third.atime_is_known() && third.atime().is_none());
    }
}
