//! Damage to an index as a file, and to its header.

use super::format::{self, HEADER_LEN, Header, RANGE_SIZE, entry_at, seal_header};
use super::scene::{self, Scene, read};
use super::{Answer, Applied, Error, Finding, Kind, Repair};
use std::os::unix::fs::symlink;

const UNREADABLE: &str = "it can't be read";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "index-missing",
        does: "removes the index of a file",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: UNREADABLE,
        inflict: missing,
    },
    Kind {
        name: "index-header-bit",
        does: "flips a bit of the header, behind its version",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: UNREADABLE,
        inflict: header_bit,
    },
    Kind {
        name: "index-header-zeroed",
        does: "makes the first 256 bytes of the index zero",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: UNREADABLE,
        inflict: header_zeroed,
    },
    Kind {
        name: "index-header-newer",
        does: "gives the header a format version of the future, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: UNREADABLE,
        inflict: header_newer,
    },
    Kind {
        name: "index-header-of-another",
        does: "copies the header of another file's index over it",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: UNREADABLE,
        inflict: header_of_another,
    },
    Kind {
        name: "index-header-other-inode",
        does: "lets the header name another inode, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: "it can't be read, or is the same",
        inflict: header_other_inode,
    },
    Kind {
        name: "index-header-other-volume",
        does: "lets the header name another volume, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: UNREADABLE,
        inflict: header_other_volume,
    },
    Kind {
        name: "index-header-impossible-range-size",
        does: "lets the header have a range size that there is none of, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: UNREADABLE,
        inflict: header_impossible_range_size,
    },
    Kind {
        name: "index-cut-in-header",
        does: "cuts the index to 100 bytes",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: UNREADABLE,
        inflict: cut_in_header,
    },
    Kind {
        name: "index-empty",
        does: "cuts the index to nothing",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: UNREADABLE,
        inflict: empty,
    },
    Kind {
        name: "index-cut-in-entries",
        does: "cuts the index in the middle of its entries, which then read as never written",
        finding: Finding::Either,
        repair: Repair::Impossible,
        answer: "what the cut entries named reads as zeros",
        inflict: cut_in_entries,
    },
    Kind {
        name: "index-in-wrong-shard",
        does: "moves the index to the directory of another shard",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: UNREADABLE,
        inflict: wrong_shard,
    },
    Kind {
        name: "index-is-a-symlink",
        does: "moves the index aside and puts a symbolic link to it in its place",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: UNREADABLE,
        inflict: is_a_symlink,
    },
    Kind {
        name: "index-orphan",
        does: "makes an index that no file leads to",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: "no file is concerned",
        inflict: orphan,
    },
    Kind {
        name: "index-orphan-damaged",
        does: "makes an index of zeros that no file leads to",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: "no file is concerned",
        inflict: orphan_damaged,
    },
    Kind {
        name: "index-foreign-file",
        does: "puts a file into a shard of the indexes whose name is no id",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: "no file is concerned",
        inflict: foreign_file,
    },
];

fn missing(scene: &mut Scene) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    scene::remove(&index)?;
    Applied::file(scene, index, Answer::Unreadable)
}

fn header_bit(scene: &mut Scene) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    scene.flip(&index, 12..256)?;
    Applied::file(scene, index, Answer::Unreadable)
}

fn header_zeroed(scene: &mut Scene) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    scene::patch(&index, 0, &[0; 256])?;
    Applied::file(scene, index, Answer::Unreadable)
}

/// Changes bytes of the header and renews its CRC.
fn reseal(scene: &mut Scene, at: usize, bytes: &[u8]) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    let mut header = read(&index, 0, 256)?;
    header[at..at + bytes.len()].copy_from_slice(bytes);
    seal_header(&mut header);
    scene::patch(&index, 0, &header)?;
    Applied::file(scene, index, Answer::Unreadable)
}

fn header_newer(scene: &mut Scene) -> Result<Applied, Error> {
    reseal(scene, 8, &2_u16.to_le_bytes())
}

fn header_of_another(scene: &mut Scene) -> Result<Applied, Error> {
    let header = read(&scene.index(scene.another()?.id), 0, 256)?;
    reseal(scene, 0, &header)
}

fn header_other_inode(scene: &mut Scene) -> Result<Applied, Error> {
    let ino = scene.attr_for(&scene.home_file(), scene.file.id)?.ino;
    reseal(scene, 56, &(ino ^ 1 << 40).to_le_bytes())
}

fn header_other_volume(scene: &mut Scene) -> Result<Applied, Error> {
    let id = scene.new_id();
    reseal(scene, 16, &id.0)
}

fn header_impossible_range_size(scene: &mut Scene) -> Result<Applied, Error> {
    let sizes = [0, 1, 512, 3 << 16, 1_u32 << 27, 1 << 31, u32::MAX];
    let size = scene.one_of(&sizes).unwrap_or(0);
    reseal(scene, RANGE_SIZE, &size.to_le_bytes())
}

fn cut_in_header(scene: &mut Scene) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    scene::set_len(&index, 100)?;
    Applied::file(scene, index, Answer::Unreadable)
}

fn empty(scene: &mut Scene) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    scene::set_len(&index, 0)?;
    Applied::file(scene, index, Answer::Unreadable)
}

fn cut_in_entries(scene: &mut Scene) -> Result<Applied, Error> {
    let first = scene.a_range()?;
    let index = scene.index(scene.file.id);
    scene::set_len(&index, entry_at(first))?;
    let cut = scene.ranges(|_| true).filter(|range| *range >= first).map(|range| scene.bytes_of(range));
    let answer = Answer::Zeros(cut.collect());
    Applied::file(scene, index, answer)
}

fn wrong_shard(scene: &mut Scene) -> Result<Applied, Error> {
    let (id, index) = (scene.file.id, scene.index(scene.file.id));
    let place = scene.braid("index").join(format!("{:02x}", id.0[0] ^ 1)).join(id.to_string());
    scene::rename(&index, &place)?;
    Applied::file(scene, place, Answer::Unreadable)
}

fn is_a_symlink(scene: &mut Scene) -> Result<Applied, Error> {
    let index = scene.index(scene.file.id);
    let aside = scene.braid("aside");
    scene::rename(&index, &aside)?;
    symlink(&aside, &index).map_err(|error| Error::io(&index, error))?;
    Applied::file(scene, index, Answer::Unreadable)
}

fn orphan(scene: &mut Scene) -> Result<Applied, Error> {
    let id = scene.new_id();
    let header = Header {
        volume: scene.volume_id(),
        id,
        range_size: scene.range_size() as u32,
        ino: 1 << 40 | 1,
        btime_ns: 1,
    };
    let mut index = header.encode();
    let size = format::size_word(id, format::SIZE, 1);
    index[format::SIZE as usize..][..8].copy_from_slice(&size.to_le_bytes());
    let place = scene.index(id);
    scene::write(&place, &index)?;
    Applied::to_no_file(id, place)
}

fn orphan_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let id = scene.new_id();
    let place = scene.index(id);
    scene::write(&place, &[0; HEADER_LEN + 8])?;
    Applied::to_no_file(id, place)
}

fn foreign_file(scene: &mut Scene) -> Result<Applied, Error> {
    let place = scene.index(scene.file.id).with_file_name("notes.txt");
    scene::write(&place, b"not an index")?;
    Applied::volume(place)
}
