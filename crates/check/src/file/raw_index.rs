//! An index file as it is on disk: read without relying on any of it, and changed
//! word by word.

use crate::tree::regular_if_there;
use braid_contract::{Access, Errno, Fd, NativeFd, ObjectId, Result, SeekTarget, TierId};
use braid_format::{
    Entry, FormatError, GAPS_AT, GROWS_TO_AT, HEADER_LEN, Header, MUTABLE_FROM, OWNERS_AT, RESERVED_AT,
    SIZE_AT, SYNCED_SIZE_AT, Words, durable_at, entry_at,
};
use std::ffi::OsStr;
use std::io::IoSliceMut;

/// Bytes of entries to read at a time.
const CHUNK: usize = 64 << 10;
/// Bytes of the words behind the header; those of a spread file are not all
/// zero.
const WORDS_LEN: usize = 256;
/// How often to read a word again that may be changing.
const TRIES: usize = 4;

/// An index file.
pub(crate) struct RawIndex {
    pub(crate) id: ObjectId,
    pub(crate) words: Words,
    pub(crate) len: u64,
    pub(crate) header: std::result::Result<Header, FormatError>,
    /// Header and words are all zero, which is no valid value of the words.
    is_wiped: bool,
    file: Fd,
}

/// The word in the place of an entry.
pub(crate) struct RawEntry {
    pub(crate) range: u64,
    pub(crate) word: u64,
    pub(crate) entry: std::result::Result<Entry, FormatError>,
}

impl RawIndex {
    /// Opens the index of an id in `braid`, the home tier's `.braid`, to be
    /// read; `None` if there is none.
    pub(crate) fn open(braid: &dyn NativeFd, id: ObjectId) -> Result<Option<Self>> {
        let Some(file) = regular_if_there(braid, &index_path(id))? else { return Ok(None) };
        let mut index = Self {
            id,
            words: Words::of(id),
            len: file.stat()?.attr.size,
            header: Err(FormatError::Damaged("it is cut off in its header")),
            is_wiped: false,
            file,
        };
        if index.len >= HEADER_LEN as u64 {
            let mut bytes = [0; MUTABLE_FROM + WORDS_LEN];
            index.read(0, &mut bytes)?;
            index.header = Header::decode(&bytes[..MUTABLE_FROM]);
            index.is_wiped = bytes == [0; MUTABLE_FROM + WORDS_LEN];
        }
        Ok(Some(index))
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.len < HEADER_LEN as u64
    }

    /// The header as it was before one of its bits was flipped. Its check has 32
    /// bits: no other header is one bit away.
    pub(crate) fn corrected_header(&self) -> Option<Header> {
        let mut bytes = [0; MUTABLE_FROM];
        self.read(0, &mut bytes).ok()?;
        (0..MUTABLE_FROM * 8).find_map(|bit| {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            Header::decode(&other).ok().filter(|header| header.id == self.id)
        })
    }

    /// Reads bytes; those past the end are zero.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += match self.file.read_at(
                at + done as u64,
                &mut [IoSliceMut::new(&mut bytes[done..])],
                false,
            )? {
                0 => break,
                count => count,
            };
        }
        Ok(())
    }

    pub(crate) fn word(&self, at: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads a word until it decodes: a store at the same time may make it look
    /// torn.
    fn decoded<T>(
        &self,
        at: u64,
        decode: impl Fn(u64) -> std::result::Result<T, FormatError>,
    ) -> Result<std::result::Result<T, FormatError>> {
        if self.is_wiped && at < HEADER_LEN as u64 && self.word(at)? == 0 {
            return Ok(Err(FormatError::Damaged("it is zero, as its header is")));
        }
        let mut decoded = decode(self.word(at)?);
        for _ in 0..TRIES {
            if decoded.is_ok() {
                break;
            }
            decoded = decode(self.word(at)?);
        }
        Ok(decoded)
    }

    pub(crate) fn size(&self) -> Result<std::result::Result<u64, FormatError>> {
        self.decoded(SIZE_AT, |word| self.words.decode_size(SIZE_AT, word))
    }

    /// The end of the bytes that are reserved beyond the size: entries up to
    /// there are valid.
    pub(crate) fn reserved(&self) -> Result<u64> {
        let word = self.word(RESERVED_AT)?;
        Ok(self.words.decode_size(RESERVED_AT, word).unwrap_or(0))
    }

    pub(crate) fn synced_size(&self) -> Result<std::result::Result<u64, FormatError>> {
        self.decoded(SYNCED_SIZE_AT, |word| self.words.decode_size(SYNCED_SIZE_AT, word))
    }

    /// The end of the range in which the file may go on past its size; 0 for
    /// none.
    pub(crate) fn grows_to(&self) -> Result<std::result::Result<u64, FormatError>> {
        self.decoded(GROWS_TO_AT, |word| self.words.decode_size(GROWS_TO_AT, word))
    }

    pub(crate) fn owners(
        &self,
        home: TierId,
    ) -> Result<std::result::Result<braid_format::Owners, FormatError>> {
        self.decoded(OWNERS_AT, |word| self.words.decode_owners(OWNERS_AT, word, home))
    }

    pub(crate) fn gaps(&self) -> Result<std::result::Result<bool, FormatError>> {
        self.decoded(GAPS_AT, |word| self.words.decode_flag(GAPS_AT, word))
    }

    pub(crate) fn durable(&self, tier: TierId) -> Result<std::result::Result<bool, FormatError>> {
        let at = durable_at(tier);
        self.decoded(at, |word| self.words.decode_flag(at, word))
    }

    /// Calls `visit` with each entry that is not zero, in order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(RawEntry) -> Result<()>) -> Result<()> {
        let mut at = HEADER_LEN as u64;
        let mut chunk = vec![0; CHUNK];
        while at < self.len {
            at = match self.file.seek(at, SeekTarget::Data) {
                Ok(data) => at.max(data / 8 * 8),
                Err(error) if error.errno() == Errno::ENXIO => break,
                Err(error) => return Err(error),
            };
            chunk.fill(0);
            self.read(at, &mut chunk)?;
            for (place, word) in (at..self.len).step_by(8).zip(chunk.chunks_exact(8)) {
                if word.iter().all(|byte| *byte == 0) {
                    continue;
                }
                if let Some(entry) = self.entry(place)? {
                    visit(entry)?;
                }
            }
            at += CHUNK as u64;
        }
        Ok(())
    }

    fn entry(&self, at: u64) -> Result<Option<RawEntry>> {
        let range = (at - HEADER_LEN as u64) / 8;
        let decoded = self.decoded(at, |word| Ok((word, self.words.decode_entry(range, word)?)))?;
        Ok(match decoded {
            Ok((_, None)) => None,
            Ok((word, Some(entry))) => Some(RawEntry { range, word, entry: Ok(entry) }),
            Err(error) => Some(RawEntry { range, word: self.word(at)?, entry: Err(error) }),
        })
    }

    /// Opens the file to be changed.
    pub(crate) fn open_to_change(&self, braid: &dyn NativeFd) -> Result<Fd> {
        braid.open_at(OsStr::new(&index_path(self.id)), Access::ReadWrite)
    }

    /// Stores words, durably.
    pub(crate) fn store(&self, braid: &dyn NativeFd, words: &[(u64, u64)]) -> Result<()> {
        let file = self.open_to_change(braid)?;
        for (at, word) in words {
            file.write_all_at(*at, &word.to_le_bytes())?;
        }
        file.sync(false)
    }

    /// Clears the entries from `range` on.
    pub(crate) fn clear_from(&self, braid: &dyn NativeFd, range: u64) -> Result<()> {
        let file = self.open_to_change(braid)?;
        let mut beyond = Vec::new();
        self.for_each(|entry| {
            if entry.range >= range {
                beyond.push(entry_at(entry.range));
            }
            Ok(())
        })?;
        for at in beyond {
            file.write_all_at(at, &[0; 8])?;
        }
        file.sync(false)
    }

    /// Writes the header anew.
    pub(crate) fn write_header(&self, braid: &dyn NativeFd, header: &Header) -> Result<()> {
        let file = self.open_to_change(braid)?;
        file.write_all_at(0, &header.encode())?;
        file.sync(false)
    }
}

/// The path of an index below `.braid`.
pub(crate) fn index_path(id: ObjectId) -> String {
    format!("index/{}", braid_format::index_path(id))
}
