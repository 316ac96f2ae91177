//! Streams learned from the past of files: online mini-batch k-means (Reshim §3.2.2;
//! Sculley 2010). Files of one kind, by the shape of their path and by their writer,
//! tend to do the same; a cluster of kinds that do the same is a stream. A kind is of
//! one stream, from its first file on, and leaves it when another fits better. The next
//! file of a kind gets the learned stream when it is first written; files are reported
//! when they are closed and removed. Nothing is reckoned on the path of each write.
//! Pure, and the same for the same seed and the same calls.

mod cluster;
mod features;
mod kind;
mod learner;
mod shape;

pub use features::{Opening, Written};
pub use kind::RememberedKind;
pub use learner::{
    LEARNED_MAX, LearnedKind, LearnedStream, Learner, learned_most, learned_name, learned_number, life_of,
};
