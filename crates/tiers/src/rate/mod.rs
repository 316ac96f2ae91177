//! How fast data is moved: the rate of one mover or job, the throttles of the
//! tiers that all of them share, and the controller that sets those by the
//! latency of applications.

mod latency_controller;
mod meter;
mod pace;
mod throttle;

pub use meter::Meter;
pub use pace::{Pace, Paces, Stopped};
pub use throttle::{IoClass, MoveRate, Throttles};
