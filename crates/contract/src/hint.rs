//! Knowledge about data's future, passed with every read and write from the
//! front end down to the store, so that each layer may use it (Reshim §3.2).

/// One logical writer (a write-ahead log, a compaction, a data log …).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u16);

/// Data of one stream that is expected to die together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LifetimeGroup(pub u32);

/// A placement hint. The default says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hint {
    /// The stream the data belongs to, if known.
    pub stream: Option<StreamId>,
    /// The lifetime group within the stream, if known.
    pub group: Option<LifetimeGroup>,
}
