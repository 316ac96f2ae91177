//! Keys and values: the trait that a directory of a file system implements for the
//! key-value front (`GenericKVS` and `LabKVS` of `LabStor`), and how keys are file names.

use crate::{Caller, Errno, Error, Result};

/// Longest name of a file, and so of a key as it is written there, in bytes.
pub const KEY_NAME_MAX: usize = 255;
/// Longest value in bytes.
pub const VALUE_MAX: usize = 16 << 20;
/// Most changes of one [batch](KeyValue::batch).
pub const BATCH_MAX: usize = 200;
/// The mode of a new value's file, unless another one is asked for: only the owner has access.
pub const VALUE_MODE: u16 = 0o600;
/// Prefix of names that are no keys: of files that are about to become a value.
pub const UNFINISHED_PREFIX: &str = "%new.";

/// The condition of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PutWhen {
    /// In any case.
    #[default]
    Always,
    /// Only if the key is not there.
    Absent,
    /// Only if the key is there.
    Present,
}

/// How a value is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutOptions {
    /// When it is put.
    pub when: PutWhen,
    /// Permission bits (`0o777`) of the file of a new key. One that is there keeps its own.
    pub mode: u16,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self { when: PutWhen::Always, mode: VALUE_MODE }
    }
}

/// One change of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyChange<'a> {
    /// The key has this value, whatever it had before.
    Put(&'a [u8], &'a [u8]),
    /// The key is not there.
    Delete(&'a [u8]),
}

impl<'a> KeyChange<'a> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// The keys that a scan answers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanRange {
    /// The first key, if it is there; empty: from the start.
    pub from: Vec<u8>,
    /// The first key that is not wanted any more; `None`: to the end.
    pub to: Option<Vec<u8>>,
    /// The prefix of the keys.
    pub prefix: Vec<u8>,
    /// The cursor: keys behind this one, as [`ScanPage::next`] had it.
    pub after: Option<Vec<u8>>,
}

impl ScanRange {
    /// Whether a key is wanted.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        key >= &self.from[..]
            && self.to.as_deref().is_none_or(|to| key < to)
            && key.starts_with(&self.prefix)
            && self.after.as_deref().is_none_or(|after| key > after)
    }

    /// Whether neither a key nor any behind it is wanted.
    #[must_use]
    pub fn is_over_at(&self, key: &[u8]) -> bool {
        self.to.as_deref().is_some_and(|to| key >= to)
            || key > &self.prefix[..] && !key.starts_with(&self.prefix)
    }
}

/// A page of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanPage {
    /// Keys in the order of their bytes, with their values if those were asked for.
    pub entries: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The cursor of the next page; `None` if this one is the last.
    pub next: Option<Vec<u8>>,
}

/// Values by key, which are the files of a directory by name: each value is a regular
/// file, and each regular file whose name is that [of a key](name_of_key) is a value.
/// All methods block and may be called from any thread.
///
/// **Keys** are bytes; they are too long if their name is ([`KEY_NAME_MAX`]), which gives
/// room for 255 bytes of which none is `/`, `%` or NUL. **Values** have up to
/// [`VALUE_MAX`] bytes; a longer file answers `EFBIG`. A name that is no regular file's
/// answers `EISDIR` or `EINVAL`.
///
/// **Rights** are the caller's, as for a program that uses the files: to find a key, the
/// directory must be searchable; to read a value, its file readable; to list keys, the
/// directory readable; to put a value where there is one, the file writable, and in any
/// case the directory too; to delete one, the directory. In a sticky directory, a value
/// belongs to its owner. ACLs count. A caller who lacks a right gets `EACCES`.
///
/// **Order**: operations on one key happen one after the other, and an operation that began after
/// another one had returned sees its effect. A put is atomic: a reader gets the old value or the
/// new one, and so does a reader after a crash. The file of a value that is replaced is another
/// file with the same owner, mode and extended attributes; a program that has the old one open
/// keeps the old value, and so do its other names.
///
/// **Durability**: a change is durable when a [`sync`](Self::sync) that began after it has
/// returned. Until then a crash may undo it, but no earlier change of the same key.
pub trait KeyValue: Send + Sync {
    /// Whether a [batch](Self::batch) is atomic as a whole, for readers and for crashes.
    fn batch_is_atomic(&self) -> bool;

    /// Replaces the contents of `value` by the value of a key, and answers whether that is
    /// there. The memory that `value` has is used again: a caller who reads many values
    /// gives the same one. Without an answer of `true`, its contents are undefined. A value
    /// of more than `most` bytes takes no memory: it answers `EFBIG`.
    ///
    /// # Errors
    /// `EACCES`, `EFBIG`, `EISDIR` and `EINVAL` as above, `ENOENT` if the directory is
    /// gone, `ENAMETOOLONG` for a key that can't be, those of the device.
    fn read(&self, caller: &Caller, key: &[u8], value: &mut Vec<u8>, most: usize) -> Result<bool>;

    /// The value of a key; `None` if it is not there.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn get(&self, caller: &Caller, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.read(caller, key, &mut value, VALUE_MAX)?.then_some(value))
    }

    /// How many bytes the value of a key has, without the right to read it; `None` if it
    /// is not there.
    ///
    /// # Errors
    /// As for [`read`](Self::read), but for that right.
    fn len(&self, caller: &Caller, key: &[u8]) -> Result<Option<u64>>;

    /// Gives a key a value; answers whether it did, by [`PutOptions::when`].
    ///
    /// # Errors
    /// As for [`read`](Self::read), `ENOSPC` without room.
    fn put(&self, caller: &Caller, key: &[u8], value: &[u8], options: PutOptions) -> Result<bool>;

    /// Removes a key; answers whether it was there.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn delete(&self, caller: &Caller, key: &[u8]) -> Result<bool>;

    /// Up to `count` keys of a range, in the order of their bytes, from a cursor on; with
    /// `values`, a page ends early once those have a mebibyte. A key that is there while
    /// all pages are read is in one of them, and in no two; one that comes or goes
    /// meanwhile may be.
    ///
    /// # Errors
    /// As for [`read`](Self::read), `EACCES` also for the first value that may not be read.
    fn scan(&self, caller: &Caller, range: &ScanRange, count: usize, values: bool) -> Result<ScanPage>;

    /// Carries out up to [`BATCH_MAX`] changes with [`VALUE_MAX`] bytes of values
    /// together; of two about one key, the last counts. New files have [`VALUE_MODE`].
    /// Where it is not [atomic](Self::batch_is_atomic), changes before the one that failed
    /// are done.
    ///
    /// # Errors
    /// As for [`put`](Self::put); `EFBIG` for too many changes or bytes.
    fn batch(&self, caller: &Caller, changes: &[KeyChange<'_>]) -> Result<()>;

    /// Makes all changes that have returned durable.
    ///
    /// # Errors
    /// Those of the device.
    fn sync(&self) -> Result<()>;
}

/// The length of a value that is about to be read, if it is at most `most` and [`VALUE_MAX`].
///
/// # Errors
/// `EFBIG`
pub fn check_len(len: u64, most: usize) -> Result<usize> {
    let most = most.min(VALUE_MAX);
    let fits = usize::try_from(len).ok().filter(|len| *len <= most);
    fits.ok_or_else(|| Error::new(Errno::EFBIG, format!("{len} bytes, where a value may have up to {most}")))
}

/// Bytes of values after which a page ends.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// The name of the file that has the value of a key: the key itself, with `/`, NUL and
/// `%` as `%` and two hexadecimal digits; `.` and `..` as `%2E` and `%2E.`; and `%` for the
/// empty key.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn name_of_key(key: &[u8]) -> Result<Vec<u8>> {
    let mut name = Vec::with_capacity(key.len());
    for (at, byte) in key.iter().enumerate() {
        match byte {
            0 | b'/' | b'%' => name.extend(format!("%{byte:02X}").bytes()),
            b'.' if at == 0 && (key == b"." || key == b"..") => name.extend(b"%2E"),
            byte => name.push(*byte),
        }
    }
    if key.is_empty() {
        name.push(b'%');
    }
    if name.len() > KEY_NAME_MAX {
        return Err(Error::new(Errno::ENAMETOOLONG, format!("a key of {} bytes", key.len())));
    }
    Ok(name)
}

/// The key whose value is in the file of this name; `None` if that is no key's.
#[must_use]
pub fn key_of_name(name: &[u8]) -> Option<Vec<u8>> {
    if name == b"%" {
        return Some(Vec::new());
    }
    if !name.contains(&b'%') {
        return Some(name.to_vec());
    }
    let (mut key, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            key.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            key.push(*first);
            rest = tail;
        }
    }
    // Each key has one name.
    name_of_key(&key).is_ok_and(|canonical| canonical == name).then_some(key)
}

/// Refuses a batch that is too large.
///
/// # Errors
/// `EFBIG`.
pub fn check_batch(changes: &[KeyChange<'_>]) -> Result<()> {
    let bytes =
        changes.iter().map(|change| if let KeyChange::Put(_, value) = change { value.len() } else { 0 });
    let (count, bytes) = (changes.len(), bytes.sum::<usize>());
    if count > BATCH_MAX {
        return Err(Error::new(
            Errno::EFBIG,
            format!("{count} changes in a batch; {BATCH_MAX} are the most"),
        ));
    }
    if bytes > VALUE_MAX {
        return Err(Error::new(Errno::EFBIG, format!("{bytes} bytes of values; {VALUE_MAX} are the most")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;

    #[test]
    fn every_key_has_a_name_of_its_own_and_comes_back() {
        let mut random = SplitMix::new(7);
        let mut keys: Vec<Vec<u8>> =
            [&b""[..], b".", b"..", b"...", b"%", b"%2F", b"/", b"\0", b"a/b", b"%new.1"]
                .map(<[u8]>::to_vec)
                .into();
        for _ in 0..20_000 {
            let len = random.below(6) as usize;
            keys.push((0..len).map(|_| random.pick(b"\0./%2Fan\xff")).collect());
        }
        for key in keys {
            let name = name_of_key(&key).unwrap();
            assert!(!name.is_empty() && name != b"." && name != b".." && !name.starts_with(b"%new."));
            assert!(!name.contains(&b'/') && !name.contains(&0));
            assert_eq!(key_of_name(&name), Some(key));
        }
    }

    #[test]
    fn other_names_are_no_keys() {
        for name in ["%new.1.2", "a%", "a%2", "%2f", "%41", "%%", "a%zz", "%+1"] {
            assert_eq!(key_of_name(name.as_bytes()), None, "{name}");
        }
        assert_eq!(name_of_key(&[b'x'; 255]).unwrap().len(), 255);
        for key in [vec![b'x'; 256], vec![b'/'; 86]] {
            assert_eq!(name_of_key(&key).unwrap_err().errno(), Errno::ENAMETOOLONG);
        }
    }

    #[test]
    fn a_range_is_over_where_nothing_more_can_be_in_it() {
        let range = ScanRange { prefix: b"b".to_vec(), to: Some(b"bx".to_vec()), ..ScanRange::default() };
        assert!(range.has(b"b") && range.has(b"bw") && !range.has(b"bx") && !range.has(b"a"));
        assert!(
            !range.is_over_at(b"a")
                && !range.is_over_at(b"bw")
                && range.is_over_at(b"bx")
                && range.is_over_at(b"c")
        );
    }
}
