//! The data of workloads: each 8-byte word has its file, operation and offset,
//! so that the contents of a recovered file show their origin.

use std::fmt;

/// Bytes of a word. Offsets and lengths in workloads are multiples of it.
pub(crate) const WORD: u64 = 8;

/// Marks a word as one of ours.
const MAGIC: u64 = 0xb5;

/// The write that a byte comes from: the number of its step plus one; 0 for
/// none, since unwritten bytes read as zeros.
pub(crate) type Source = u16;

/// The word that operation `source` writes at `offset` of file `file`.
pub(crate) fn word(file: u8, source: Source, offset: u64) -> u64 {
    match source {
        0 => 0,
        source => (MAGIC << 56) | (u64::from(file) << 48) | (u64::from(source) << 32) | (offset / WORD),
    }
}

/// Fills `buf`, which goes to `offset`.
pub(crate) fn fill(buf: &mut [u8], file: u8, source: Source, offset: u64) {
    let first = word(file, source, offset);
    for (at, bytes) in (first..).zip(buf.chunks_exact_mut(WORD as usize)) {
        bytes.copy_from_slice(&at.to_le_bytes());
    }
}

/// A word as it was read.
pub(crate) fn read(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD as usize];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Whether all words of `bytes`, which begin at `offset`, are those of
/// `source`.
pub(crate) fn all_from(bytes: &[u8], file: u8, source: Source, offset: u64) -> bool {
    if source == 0 {
        let (chunks, rest) = bytes.as_chunks::<64>();
        return chunks.iter().all(|chunk| *chunk == [0; 64]) && rest.iter().all(|byte| *byte == 0);
    }
    let mut expected = word(file, source, offset);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut differ = 0;
    for found in words {
        differ |= u64::from_le_bytes(*found) ^ expected;
        expected += 1;
    }
    differ == 0 && rest == &expected.to_le_bytes()[..rest.len()]
}

/// Which write of this file and place the word is from; `None` if none is.
pub(crate) fn source(found: u64, file: u8, offset: u64) -> Option<Source> {
    let source = if found == 0 { 0 } else { (found >> 32) as Source };
    (found == word(file, source, offset)).then_some(source)
}

/// Says where a word comes from.
pub(crate) struct Described(pub(crate) u64);

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("zeros"),
            word if word >> 56 == MAGIC => {
                let (file, source) = (word >> 48 & 0xff, word >> 32 & 0xffff);
                let (step, at) = (source.wrapping_sub(1), (word & 0xffff_ffff) * WORD);
                write!(f, "what step {step} wrote to file {file} at {at}")
            }
            word => write!(f, "{word:#018x}, which was never written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_where_it_comes_from() {
        let mut buf = [0; 24];
        fill(&mut buf, 3, 7, 4096);
        assert!(all_from(&buf, 3, 7, 4096));
        assert!(!all_from(&buf, 3, 7, 4104) && !all_from(&buf, 2, 7, 4096) && !all_from(&buf, 3, 0, 4096));
        let found = read(&buf[8..16]);
        assert_eq!(source(found, 3, 4104), Some(7));
        assert_eq!(source(found, 3, 4096), None);
        assert_eq!(Described(found).to_string(), "what step 6 wrote to file 3 at 4104");
    }

    #[test]
    fn zeros_come_from_no_write() {
        assert!(all_from(&[0; 100], 3, 0, 8));
        assert_eq!(source(0, 3, 8), Some(0));
    }

    #[test]
    fn a_difference_in_the_last_bytes_is_seen() {
        let mut buf = [0; 20];
        fill(&mut buf, 1, 1, 0);
        assert!(!all_from(&buf, 1, 1, 0));
        buf[16..].copy_from_slice(&word(1, 1, 16).to_le_bytes()[..4]);
        assert!(all_from(&buf, 1, 1, 0));
    }
}
