//! The resolver for the kernel's write-life hints, of which there are four levels:
//! streams share them (Reshim §3.2.3).

use braid_contract::StreamId;

/// A level of `F_SET_RW_HINT`, by how long data is expected to live.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WriteLife {
    /// Of short life.
    Short,
    /// Of middle life.
    Medium,
    /// Of long life.
    Long,
    /// As good as for ever.
    Extreme,
}

impl WriteLife {
    /// All levels, the shortest life first.
    pub const ALL: [Self; 4] = [Self::Short, Self::Medium, Self::Long, Self::Extreme];

    /// The name, as in a profile and in `status`.
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

/// The level of a stream: what its profile says of its life, else one of the four by
/// the order in which streams were first seen. The fifth stream shares the level of
/// the first one, and so on.
#[must_use]
pub fn write_life(stream: StreamId, said: Option<WriteLife>, seen_before: &[StreamId]) -> WriteLife {
    let by_order = || {
        let position = seen_before.iter().position(|seen| *seen == stream).unwrap_or(seen_before.len());
        WriteLife::ALL[position % WriteLife::ALL.len()]
    };
    said.unwrap_or_else(by_order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_stream_shares_the_level_of_the_first() {
        let streams: Vec<StreamId> = (10..16).map(StreamId).collect();
        let levels: Vec<WriteLife> =
            streams.iter().map(|stream| write_life(*stream, None, &streams)).collect();
        assert_eq!(levels[..4], WriteLife::ALL);
        assert_eq!(levels[4..], WriteLife::ALL[..2]);
        assert_eq!(write_life(StreamId(9), None, &streams), WriteLife::Long);
        assert_eq!(write_life(streams[0], Some(WriteLife::Extreme), &streams), WriteLife::Extreme);
        assert!(WriteLife::ALL.into_iter().all(|level| WriteLife::named(level.name()) == Some(level)));
    }
}
