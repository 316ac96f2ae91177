//! The streams of a volume: names for people, numbers for everything else.

use braid_contract::StreamId;
use std::collections::BTreeMap;
use std::fmt;

/// Numbers from here on are those of streams with names; rules that give numbers
/// use the ones below.
const NAMED_FROM: u16 = 1 << 14;
/// Numbers from here on are those of learned streams.
const LEARNED_FROM: u16 = 1 << 15;

/// The streams with names, each with a number that depends on nothing but the order
/// in which they were added.
#[derive(Clone, Debug, Default)]
pub struct StreamNames {
    numbers: BTreeMap<String, StreamId>,
    names: Vec<String>,
}

/// There are no numbers left for streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyStreams;

impl fmt::Display for TooManyStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} streams have names", LEARNED_FROM - NAMED_FROM)
    }
}

impl std::error::Error for TooManyStreams {}

impl StreamNames {
    /// The number of a stream, which is given one if it has none.
    ///
    /// # Errors
    /// If there are no more numbers.
    pub fn add(&mut self, name: &str) -> Result<StreamId, TooManyStreams> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let next = u16::try_from(self.names.len()).ok().and_then(|count| NAMED_FROM.checked_add(count));
        let number = next.filter(|next| *next < LEARNED_FROM).map(StreamId).ok_or(TooManyStreams)?;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        Ok(number)
    }

    /// The number of the learned stream at this position.
    #[must_use]
    pub fn learned(position: u16) -> StreamId {
        StreamId(LEARNED_FROM.saturating_add(position))
    }

    /// A stream as people know it: by its name, or as `stream N` or `learned N`.
    #[must_use]
    pub fn describe(&self, stream: StreamId) -> String {
        match stream.0 {
            number if number >= LEARNED_FROM => format!("learned {}", number - LEARNED_FROM),
            number if number >= NAMED_FROM => {
                let name = self.names.get(usize::from(number - NAMED_FROM));
                name.cloned().unwrap_or_else(|| format!("stream {number}"))
            }
            number => format!("stream {number}"),
        }
    }

    /// All names and numbers, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, StreamId)> {
        self.numbers.iter().map(|(name, number)| (name.as_str(), *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_number() {
        let mut names = StreamNames::default();
        let wal = names.add("rocksdb wal").unwrap();
        let tables = names.add("rocksdb tables").unwrap();
        assert_ne!(wal, tables);
        assert_eq!(names.add("rocksdb wal"), Ok(wal));
        assert_eq!(names.describe(wal), "rocksdb wal");
        assert_eq!(names.describe(StreamId(7)), "stream 7");
        assert_eq!(names.describe(StreamNames::learned(3)), "learned 3");
        assert_eq!(names.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["rocksdb tables", "rocksdb wal"]);
    }

    #[test]
    fn numbers_end() {
        let mut names = StreamNames::default();
        let added = (0..20_000).take_while(|number| names.add(&number.to_string()).is_ok()).count();
        assert_eq!(added, usize::from(LEARNED_FROM - NAMED_FROM));
        assert!(names.add("0").is_ok() && names.add("one more") == Err(TooManyStreams));
    }
}
