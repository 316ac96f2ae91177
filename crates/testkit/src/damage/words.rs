//! Damage to the words of an index that change in place: sizes, owners,
//! durable objects, entries.

use super::format::{
    Entry, GAPS, GROWTH, OWNERS, SIZE, SYNCED_SIZE, durable_at, entry_at, number, owners_word, size_word,
};
use super::scene::{Scene, patch, read};
use super::{Answer, Applied, Error, Finding, Kind, Repair};

const THAT_RANGE: &str = "reading that range fails";
const SAME: &str = "it is the same";

/// A number that no tier of a test volume has, and one that no tier can have.
const UNUSED_TIER: u8 = 62;
const IMPOSSIBLE_TIER: u8 = 200;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "entry-bit",
        does: "flips a bit of an entry",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: THAT_RANGE,
        inflict: entry_bit,
    },
    Kind {
        name: "entry-of-another-range",
        does: "copies the entry of one range over that of another",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: THAT_RANGE,
        inflict: entry_of_another_range,
    },
    Kind {
        name: "entry-of-another-file",
        does: "copies an entry of another file's index",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: THAT_RANGE,
        inflict: entry_of_another_file,
    },
    Kind {
        name: "entry-of-unknown-tier",
        does: "lets an entry name a tier that the volume lacks, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: THAT_RANGE,
        inflict: entry_of_unknown_tier,
    },
    Kind {
        name: "entry-of-impossible-tier",
        does: "lets an entry name tier 200, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: THAT_RANGE,
        inflict: entry_of_impossible_tier,
    },
    Kind {
        name: "entry-of-unknown-reason",
        does: "gives an entry a reason that the format lacks, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: THAT_RANGE,
        inflict: entry_of_unknown_reason,
    },
    Kind {
        name: "entry-zeroed",
        does: "makes an entry zero, as if its range had never been written",
        finding: Finding::Either,
        repair: Repair::Impossible,
        answer: "that range reads as zeros",
        inflict: entry_zeroed,
    },
    Kind {
        name: "entries-beyond-the-size",
        does: "stores sound entries beyond the size, which are garbage",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: entries_beyond_the_size,
    },
    Kind {
        name: "entries-beyond-the-size-damaged",
        does: "stores nonsense as entries beyond the size, which are garbage",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: entries_beyond_the_size_damaged,
    },
    Kind {
        name: "size-damaged",
        does: "flips a bit of the size word",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: "it can't be read",
        inflict: size_damaged,
    },
    Kind {
        name: "size-too-large",
        does: "stores a larger size than the home inode has",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: "it has that size and goes on with zeros: the size word is the truth",
        inflict: size_too_large,
    },
    Kind {
        name: "size-too-small",
        does: "stores a smaller size than the home inode has",
        finding: Finding::Either,
        repair: Repair::Impossible,
        answer: "it is cut there: the size word is the truth",
        inflict: size_too_small,
    },
    Kind {
        name: "synced-size-damaged",
        does: "flips a bit of the word with the size at the last fsync",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: synced_size_damaged,
    },
    Kind {
        name: "owners-damaged",
        does: "flips a bit of the owners word",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: owners_damaged,
    },
    Kind {
        name: "owners-of-unknown-tier",
        does: "lets the owners word name a tier that the volume lacks, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: owners_of_unknown_tier,
    },
    Kind {
        name: "gaps-damaged",
        does: "flips a bit of the flag that holes may be meant",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: gaps_damaged,
    },
    Kind {
        name: "growth-damaged",
        does: "flips a bit of the word that says in which range the file may go on past its size",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: growth_damaged,
    },
    Kind {
        name: "durable-damaged",
        does: "flips a bit of the flag that an object was durable; the object is there",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: durable_damaged,
    },
    Kind {
        name: "durable-cleared",
        does: "takes away the flag that an object was durable; the object is there",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: durable_cleared,
    },
];

/// Stores `word` as the entry of a range that can't be read from then on.
fn lose(scene: &Scene, range: u64, word: u64) -> Result<Applied, Error> {
    scene.set_word(entry_at(range), word)?;
    Applied::file(scene, scene.index(scene.file.id), Answer::Error(vec![scene.bytes_of(range)]))
}

fn entry_bit(scene: &mut Scene) -> Result<Applied, Error> {
    let range = scene.a_range()?;
    let word = scene.word(entry_at(range))?;
    let flipped = word ^ 1 << scene.below(64);
    lose(scene, range, flipped)
}

fn entry_of_another_range(scene: &mut Scene) -> Result<Applied, Error> {
    let to = scene.a_range()?;
    let from = scene.ranges(|_| true).find(|range| *range != to);
    let from = from.ok_or(Error::Unsuited("the file has one range"))?;
    let word = scene.word(entry_at(from))?;
    lose(scene, to, word)
}

fn entry_of_another_file(scene: &mut Scene) -> Result<Applied, Error> {
    let range = scene.a_range()?;
    let another = scene.another()?;
    let from = another.entries.iter().position(Option::is_some);
    let from = from.ok_or(Error::Unsuited("the other file has no data"))?;
    let word = number(&read(&scene.index(another.id), entry_at(from as u64), 8)?);
    lose(scene, range, word)
}

/// Changes an entry of the file and renews its CRC.
fn change_entry(scene: &mut Scene, change: impl FnOnce(&mut Entry)) -> Result<Applied, Error> {
    let range = scene.a_range()?;
    let entry = scene.file.entries.get(range as usize).copied().flatten();
    let mut entry = entry.ok_or(Error::Unsuited("the file has no data"))?;
    change(&mut entry);
    let word = entry.encode(scene.file.id, range);
    lose(scene, range, word)
}

fn entry_of_unknown_tier(scene: &mut Scene) -> Result<Applied, Error> {
    change_entry(scene, |entry| entry.tier = UNUSED_TIER)
}

fn entry_of_impossible_tier(scene: &mut Scene) -> Result<Applied, Error> {
    change_entry(scene, |entry| entry.tier = IMPOSSIBLE_TIER)
}

fn entry_of_unknown_reason(scene: &mut Scene) -> Result<Applied, Error> {
    change_entry(scene, |entry| entry.reason = 254)
}

fn entry_zeroed(scene: &mut Scene) -> Result<Applied, Error> {
    let range = scene.a_range()?;
    scene.set_word(entry_at(range), 0)?;
    Applied::file(scene, scene.index(scene.file.id), Answer::Zeros(vec![scene.bytes_of(range)]))
}

fn entries_beyond_the_size(scene: &mut Scene) -> Result<Applied, Error> {
    let first = scene.file.entries.len() as u64;
    for range in first..first + 3 {
        let entry = Entry { tier: scene.home(), reason: 2, version: 7 };
        scene.set_word(entry_at(range), entry.encode(scene.file.id, range))?;
    }
    Applied::file(scene, scene.index(scene.file.id), Answer::Same)
}

fn entries_beyond_the_size_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let at = entry_at(scene.file.entries.len() as u64);
    patch(&scene.index(scene.file.id), at, &[0x77; 24])?;
    Applied::file(scene, scene.index(scene.file.id), Answer::Same)
}

fn flip_word(scene: &mut Scene, at: u64, answer: Answer) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    scene.flip(&index, at..at + 8)?;
    Applied::file(scene, index, answer)
}

fn size_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    flip_word(scene, SIZE, Answer::Unreadable)
}

fn set_size(scene: &Scene, size: u64) -> Result<Applied, Error> {
    scene.set_word(SIZE, size_word(scene.file.id, SIZE, size))?;
    Applied::file(scene, scene.index(scene.file.id), Answer::Size(size))
}

/// Ends in the last range: data beyond it in a home file or an object may be
/// leftovers.
fn size_too_large(scene: &mut Scene) -> Result<Applied, Error> {
    let (size, range_size) = (scene.file.size, scene.range_size());
    set_size(
        scene,
        if size % range_size == 0 { size + range_size } else { size.next_multiple_of(range_size) },
    )
}

fn size_too_small(scene: &mut Scene) -> Result<Applied, Error> {
    if scene.file.size < 2 {
        return Err(Error::Unsuited("the file is too small"));
    }
    let size = 1 + scene.below(scene.file.size - 1);
    set_size(scene, size)
}

fn synced_size_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    flip_word(scene, SYNCED_SIZE, Answer::Same)
}

fn owners_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    flip_word(scene, OWNERS, Answer::Same)
}

fn owners_of_unknown_tier(scene: &mut Scene) -> Result<Applied, Error> {
    scene.set_word(OWNERS, owners_word(scene.file.id, [UNUSED_TIER; 3]))?;
    Applied::file(scene, scene.index(scene.file.id), Answer::Same)
}

fn growth_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    flip_word(scene, GROWTH, Answer::Same)
}

fn gaps_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    flip_word(scene, GAPS, Answer::Same)
}

fn durable_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    scene.set_durable(owner, true)?;
    flip_word(scene, durable_at(owner), Answer::Same)
}

fn durable_cleared(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    scene.set_durable(owner, false)?;
    Applied::file(scene, scene.index(scene.file.id), Answer::Same)
}
