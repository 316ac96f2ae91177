//! Streams learned from what files did: online mini-batch k-means (Reshim §3.2.2;
//! Sculley 2010). Files of one kind, by directory and name, tend to do the same; kinds
//! that do the same are one stream. What was learned answers for the next file of a
//! kind when it is opened, so nothing is reckoned on the path of a write.

mod cluster;
mod features;
mod learner;

pub use features::{FileFacts, FileStory};
pub use learner::{Learner, LearnerSettings};
