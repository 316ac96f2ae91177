//! A store over any file system of this program, such as a log file system: objects are
//! files of one directory, by their ids, and the label is an attribute of the root. `objects`
//! has the files, `store` the operations.

mod objects;
mod store;

pub use store::FileStore;
