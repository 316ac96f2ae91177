//! Bugs on purpose, for the proof that the crash search finds them.
//! Without the feature `failpoints` nothing of this is in the code.

#[cfg(feature = "failpoints")]
use crate::sync::Mutex;

/// A rule that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "failpoints"), expect(unreachable_pub, reason = "only the feature exports it"))]
pub enum Failpoint {
    /// Blocks are given out again before it is durable that they are free.
    ReuseAtOnce,
    /// Recovery believes records whose data did not reach the device.
    TrustData,
    /// The copy of records that outlives the process ends before they are written.
    ForgetTail,
}

#[cfg(feature = "failpoints")]
static FAILPOINT: Mutex<Option<Failpoint>> = Mutex::new(None);

/// Sets the bug that all file systems of this process have from now on.
#[cfg(feature = "failpoints")]
pub fn set_failpoint(failpoint: Option<Failpoint>) {
    *FAILPOINT.lock() = failpoint;
}

/// Whether this bug is set.
#[cfg(feature = "failpoints")]
pub(crate) fn fails_at(failpoint: Failpoint) -> bool {
    *FAILPOINT.lock() == Some(failpoint)
}

/// No bug is.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn fails_at(_: Failpoint) -> bool {
    false
}
