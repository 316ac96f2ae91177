//! Moving ranges between tiers while applications use them (Mux §2.4,
//! PolyStore §4.5.2). Movers call [`Volume::relocate`](crate::Volume); what
//! decides to move something is not here.

mod pace;

pub(crate) use pace::Pace;
