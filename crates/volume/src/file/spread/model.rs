//! The time of the last write under the model checker: every interleaving of a
//! sync, which brings the home inode up to date, and a write. Run by
//! `cargo xtask test --suite loom`.

use super::{Times, timestamp};
use braid_contract::{Environment, Result};
use loom::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A clock that moves when it is looked at.
#[derive(Debug, Default)]
struct Clock(AtomicI64);

impl Environment for Clock {
    fn wall_ns(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
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

#[test]
fn the_time_of_a_write_beside_a_sync_is_not_lost() {
    loom::model(|| {
        let times = Arc::new(Times::new(std::sync::Arc::new(Clock::default())));
        times.touch_mtime();
        let write = {
            let times = Arc::clone(&times);
            loom::thread::spawn(move || times.touch_mtime())
        };
        // The home inode gets what was ahead of it.
        let home = times.mtime().unwrap();
        times.mtime_was_stored(home);
        write.join().unwrap();
        assert_eq!(times.mtime().or(Some(home)), timestamp(2));
    });
}
