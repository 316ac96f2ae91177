//! Moving ranges between tiers while applications use them (Mux §2.4,
//! PolyStore §4.5.2). Movers call [`Volume::relocate`](crate::Volume), which
//! does the copying; here is what keeps it and the writers apart. What decides
//! to move something is elsewhere.

#[cfg(all(test, loom))]
mod model;
mod moving;
mod protocol;
mod slots;

pub(crate) use moving::{Busy, CHUNKS, Moving, Registered, Writing};
pub(crate) use protocol::{Ground, Outcome, carry_out};
pub(crate) use slots::{SPAN_RANGES_MAX, Slots, Span, place_of_this_thread};
