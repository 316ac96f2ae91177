//! The 8-byte words of an index that change in place. Each carries a check that
//! ties it to its object and its position, so that a torn, moved or left-over
//! word is detected and never trusted.

use crate::FormatError;
use braid_contract::{ObjectId, TierId};

/// Largest size of a spread file in bytes, and one more than the last offset.
pub const SIZE_MAX: u64 = 1 << 47;

const SIZE_BITS: u32 = 48;

/// Number of a rule in its volume's list at the time, from 1 on; 0 if it is
/// unknown, or too large for an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleNumber(u8);

impl RuleNumber {
    /// The largest number in an entry.
    const MAX: u8 = 121;

    /// The number of a rule.
    pub fn of(number: usize) -> Self {
        Self(u8::try_from(number).ok().filter(|number| *number <= Self::MAX).unwrap_or(0))
    }

    /// `None` if unknown.
    pub fn get(self) -> Option<u8> {
        (self.0 > 0).then_some(self.0)
    }
}

/// Why a range is on its tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It was in the home file when the file was still plain.
    WasPlain,
    /// The policy's first choice.
    Policy,
    /// Tiers that the policy preferred had no room or were failing.
    Spill,
    /// Moved, because its tier had no room for more of it, or can't write over
    /// what is there.
    Moved,
    /// Moved on request.
    Asked,
    /// Moved to a faster tier, because it is in use.
    Promoted,
    /// Moved to a slower tier, because its own was full and it was not in use.
    Demoted,
    /// Moved so that every tier has its share.
    Rebalanced,
    /// Moved off a tier that is to be empty.
    Evacuated,
    /// Placed on a tier that a rule names.
    Rule(RuleNumber),
    /// The first choice of the policy that a rule names.
    RulePolicy(RuleNumber),
    /// Its space was set aside before there was data: its first write decides
    /// anew.
    SetAside,
}

impl Reason {
    /// The code of rule number 0; the others follow.
    const RULE: u8 = 10;
    const RULE_POLICY: u8 = Self::RULE + RuleNumber::MAX + 1;
    const RULE_POLICY_LAST: u8 = Self::RULE_POLICY + RuleNumber::MAX;
    const SET_ASIDE: u8 = 255;

    pub(super) fn code(self) -> u8 {
        match self {
            Self::WasPlain => 1,
            Self::Policy => 2,
            Self::Spill => 3,
            Self::Moved => 4,
            Self::Asked => 5,
            Self::Promoted => 6,
            Self::Demoted => 7,
            Self::Rebalanced => 8,
            Self::Evacuated => 9,
            Self::Rule(number) => Self::RULE + number.0,
            Self::RulePolicy(number) => Self::RULE_POLICY + number.0,
            Self::SetAside => Self::SET_ASIDE,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::WasPlain,
            2 => Self::Policy,
            3 => Self::Spill,
            4 => Self::Moved,
            5 => Self::Asked,
            6 => Self::Promoted,
            7 => Self::Demoted,
            8 => Self::Rebalanced,
            9 => Self::Evacuated,
            Self::RULE..Self::RULE_POLICY => Self::Rule(RuleNumber(code - Self::RULE)),
            Self::RULE_POLICY..=Self::RULE_POLICY_LAST => {
                Self::RulePolicy(RuleNumber(code - Self::RULE_POLICY))
            }
            Self::SET_ASIDE => Self::SetAside,
            _ => return None,
        })
    }
}

/// The tier of one range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The tier that holds the range.
    pub tier: TierId,
    /// The reason.
    pub reason: Reason,
    /// Incremented, with wraparound, when the range moves.
    pub version: u16,
}

/// The tiers whose file system set each attribute last (Mux §2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owners {
    /// The size's owner.
    pub size: TierId,
    /// The modification time's owner.
    pub mtime: TierId,
    /// The access time's owner.
    pub atime: TierId,
    /// The owner of the modification time at the last `fsync`.
    pub synced_mtime: TierId,
}

/// Encodes and decodes the words of one object's index.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// CRC of the object id, which every word's check begins with.
    seed: u32,
}

impl Words {
    /// The words of this file's index.
    pub fn of(id: ObjectId) -> Self {
        Self { seed: crc32c::crc32c(&id.0) }
    }

    /// The entry of range number `range`, as a word.
    pub fn encode_entry(self, range: u64, entry: Entry) -> u64 {
        let low =
            u32::from(entry.tier.0) | u32::from(entry.reason.code()) << 8 | u32::from(entry.version) << 16;
        self.checked(range, low)
    }

    /// `None` is a range that was never written.
    pub fn decode_entry(self, range: u64, word: u64) -> Result<Option<Entry>, FormatError> {
        if word == 0 {
            return Ok(None);
        }
        let low = word as u32;
        if self.checked(range, low) != word {
            return Err(FormatError::Damaged("an index entry's checksum does not match"));
        }
        let tier = TierId(low as u8);
        match Reason::from_code((low >> 8) as u8) {
            Some(reason) if tier.0 < TierId::LIMIT => {
                Ok(Some(Entry { tier, reason, version: (low >> 16) as u16 }))
            }
            _ => Err(FormatError::Damaged("an index entry names an impossible tier or reason")),
        }
    }

    /// `at` is the word's offset in the index, in bytes.
    pub fn encode_size(self, at: u64, size: u64) -> u64 {
        if size == 0 { 0 } else { size | u64::from(self.size_check(at, size)) << SIZE_BITS }
    }

    /// The size in a word; `at` as for [`encode_size`](Self::encode_size).
    pub fn decode_size(self, at: u64, word: u64) -> Result<u64, FormatError> {
        let size = word & ((1 << SIZE_BITS) - 1);
        if word == self.encode_size(at, size) && size <= SIZE_MAX {
            Ok(size)
        } else {
            Err(FormatError::Damaged("a size word's checksum does not match"))
        }
    }

    /// `at` as for [`encode_size`](Self::encode_size).
    pub fn encode_owners(self, at: u64, owners: Owners) -> u64 {
        self.checked(
            at,
            u32::from_le_bytes([owners.size.0, owners.mtime.0, owners.atime.0, owners.synced_mtime.0]),
        )
    }

    /// `home` stands in for a word that was never stored.
    pub fn decode_owners(self, at: u64, word: u64, home: TierId) -> Result<Owners, FormatError> {
        if word == 0 {
            return Ok(Owners { size: home, mtime: home, atime: home, synced_mtime: home });
        }
        if self.checked(at, word as u32) != word {
            return Err(FormatError::Damaged("the owners word's checksum does not match"));
        }
        let [size, mtime, atime, synced_mtime] = (word as u32).to_le_bytes().map(TierId);
        Ok(Owners { size, mtime, atime, synced_mtime })
    }

    /// A flag word that is set; zero is unset.
    pub fn encode_flag(self, at: u64) -> u64 {
        self.checked(at, 1)
    }

    /// Whether a flag word is set; `at` as for
    /// [`encode_flag`](Self::encode_flag).
    pub fn decode_flag(self, at: u64, word: u64) -> Result<bool, FormatError> {
        match word {
            0 => Ok(false),
            word if word == self.encode_flag(at) => Ok(true),
            _ => Err(FormatError::Damaged("a flag word's checksum does not match")),
        }
    }

    /// `low`, with its check and that of `position` above.
    fn checked(self, position: u64, low: u32) -> u64 {
        let crc = crc32c::crc32c_append(self.seed, &position.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &low.to_le_bytes());
        u64::from(low) | u64::from(crc) << 32
    }

    fn size_check(self, at: u64, size: u64) -> u16 {
        let crc = crc32c::crc32c_append(self.seed, &at.to_le_bytes());
        crc32c::crc32c_append(crc, &size.to_le_bytes()) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: fn() -> Words = || Words::of(ObjectId([42; 16]));

    #[test]
    fn entries_round_trip_and_are_tied_to_their_place() {
        let entry = Entry { tier: TierId(5), reason: Reason::Spill, version: 65_535 };
        let word = WORDS().encode_entry(7, entry);
        assert_eq!(WORDS().decode_entry(7, word), Ok(Some(entry)));
        assert!(WORDS().decode_entry(8, word).is_err());
        assert!(Words::of(ObjectId([43; 16])).decode_entry(7, word).is_err());
        assert_eq!(WORDS().decode_entry(7, 0), Ok(None));
        for bit in 0..64 {
            assert!(WORDS().decode_entry(7, word ^ 1 << bit).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn each_code_is_of_one_reason_and_a_rule_keeps_its_number() {
        for code in 0..=u8::MAX {
            match Reason::from_code(code) {
                Some(reason) => assert_eq!(reason.code(), code),
                None => assert!(code == 0 || code > 253, "{code}"),
            }
        }
        assert_eq!(Reason::Rule(RuleNumber::of(0)).code(), 10);
        for (number, kept) in [(1, Some(1)), (121, Some(121)), (122, None), (256, None), (257, None)] {
            assert_eq!(RuleNumber::of(number).get(), kept, "{number}");
        }
    }

    #[test]
    fn sizes_round_trip() {
        for size in [0, 1, 4096, SIZE_MAX] {
            assert_eq!(WORDS().decode_size(256, WORDS().encode_size(256, size)), Ok(size));
        }
        assert!(WORDS().decode_size(264, WORDS().encode_size(256, 77)).is_err());
        assert!(WORDS().decode_size(256, 77).is_err());
    }

    #[test]
    fn flags_round_trip_and_are_tied_to_their_place() {
        let yes = WORDS().encode_flag(512);
        assert_eq!(WORDS().decode_flag(512, yes), Ok(true));
        assert_eq!(WORDS().decode_flag(512, 0), Ok(false));
        assert!(WORDS().decode_flag(520, yes).is_err());
        assert!(WORDS().decode_flag(512, 1).is_err());
    }

    #[test]
    fn owners_round_trip() {
        let owners = Owners { size: TierId(1), mtime: TierId(2), atime: TierId(0), synced_mtime: TierId(3) };
        let word = WORDS().encode_owners(272, owners);
        assert_eq!(WORDS().decode_owners(272, word, TierId(9)), Ok(owners));
        let home = TierId(9);
        let all_home = Owners { size: home, mtime: home, atime: home, synced_mtime: home };
        assert_eq!(WORDS().decode_owners(272, 0, home), Ok(all_home));
    }
}
