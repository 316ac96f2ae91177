//! Knowledge about data's future, passed with every read and write from the
//! front end down to the store, so that each layer may use it (Reshim §3.2).

/// One logical writer (a write-ahead log, a compaction, a data log …). The number
/// follows from the stream's name, so that it is the same at each mount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The stream of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        // FNV-1a, 32 bits. The highest number is kept for "none".
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self(hash.min(u32::MAX - 1))
    }
}

/// How long data is expected to live, in the levels that the kernel knows
/// (`F_SET_RW_HINT`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WriteLife {
    /// A short life.
    Short,
    /// A middling one.
    Medium,
    /// A long one.
    Long,
    /// As good as for ever.
    Extreme,
}

impl WriteLife {
    /// All levels, the shortest life first.
    pub const ALL: [Self; 4] = [Self::Short, Self::Medium, Self::Long, Self::Extreme];

    /// The name, as in profiles and in `status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
            Self::Extreme => "extreme",
        }
    }

    /// The level of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A placement hint. The default has neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hint {
    /// The stream the data belongs to, if known.
    pub stream: Option<StreamId>,
    /// How long it is expected to live, if known.
    pub life: Option<WriteLife>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_number_for_good() {
        // Zoned devices have the numbers in their index.
        assert_eq!(StreamId::named("rocksdb/wal"), StreamId::named("rocksdb/wal"));
        assert_eq!(StreamId::named(""), StreamId(0x811c_9dc5));
        assert_eq!(StreamId::named("a"), StreamId(0xe40c_292c));
        assert_eq!(StreamId::named("foobar"), StreamId(0xbf9c_f968));
    }

    #[test]
    fn levels_are_known_by_their_names() {
        assert!(WriteLife::ALL.into_iter().all(|level| WriteLife::named(level.name()) == Some(level)));
        assert_eq!(WriteLife::named("eternal"), None);
    }
}
