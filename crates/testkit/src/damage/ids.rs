//! Damage to the links from a file to its data: id attributes, sizes of home
//! files, marks.

use super::format::IdAttr;
use super::scene::{self, Scene};
use super::{Answer, Applied, Error, Finding, Kind, Repair};

const SAME: &str = "it is the same";
const PLAIN: &str = "it is a plain file, with what its home file holds";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "id-damaged",
        does: "flips a bit of the id attribute, behind its version",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: "it can't be read",
        inflict: damaged,
    },
    Kind {
        name: "id-cut",
        does: "cuts the id attribute to 20 bytes",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: "it can't be read",
        inflict: cut,
    },
    Kind {
        name: "id-removed",
        does: "removes the id attribute: nothing leads to the data any more",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: PLAIN,
        inflict: removed,
    },
    Kind {
        name: "id-of-another-inode",
        does: "lets the id attribute name another inode, as one that was copied does",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: PLAIN,
        inflict: of_another_inode,
    },
    Kind {
        name: "id-copied",
        does: "copies the id attribute to a new plain file, which ignores it",
        finding: Finding::Legal,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: copied,
    },
    Kind {
        name: "id-shared",
        does: "gives the id to a new file too, with an attribute that names that file's inode",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: "it is the same: its inode is the one that the index names",
        inflict: shared,
    },
    Kind {
        name: "id-of-another-file",
        does: "gives another spread file the id of this one: two files claim its objects, and nothing leads to the other's",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: "it is the same: its inode is the one that the index names",
        inflict: of_another_file,
    },
    Kind {
        name: "id-without-data",
        does: "gives a new file the attribute of a spread file whose index and objects are not there",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: "the new file can't be read",
        inflict: without_data,
    },
    Kind {
        name: "id-emptied",
        does: "lets the id attribute say that the file is being truncated to nothing",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: "it is empty: mounting finishes the truncation",
        inflict: emptied,
    },
    Kind {
        name: "home-size-behind",
        does: "cuts the home file behind the last range that it holds",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: home_size_behind,
    },
    Kind {
        name: "home-size-ahead",
        does: "lets the home file go on behind the file's end",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: home_size_ahead,
    },
    Kind {
        name: "mark-stale",
        does: "marks a file that agrees with its home inode",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: mark_stale,
    },
    Kind {
        name: "mark-without-file",
        does: "makes a mark for an id that nothing has",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: "no file is concerned",
        inflict: mark_without_file,
    },
    Kind {
        name: "mark-of-removed",
        does: "makes an object that no file leads to, and a mark for it: as if its removal had lost the index",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: "no file is concerned",
        inflict: mark_of_removed,
    },
    Kind {
        name: "mark-foreign-file",
        does: "puts a file among the marks whose name is no id",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: "no file is concerned",
        inflict: mark_foreign_file,
    },
];

fn damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.home_file();
    let mut value = scene.attr()?;
    let at = 1 + scene.below(value.len() as u64 - 1) as usize;
    value[at] ^= 1 << scene.below(8);
    scene.set_attr(&path, &value)?;
    Applied::file(scene, path, Answer::Unreadable)
}

fn cut(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.home_file();
    scene.set_attr(&path, &scene.attr()?[..20])?;
    Applied::file(scene, path, Answer::Unreadable)
}

fn removed(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.home_file();
    let removed = rustix::fs::removexattr(&path, scene.xattr());
    removed.map_err(|error| Error::io(&path, error.into()))?;
    Applied::file(scene, path, Answer::Plain)
}

fn of_another_inode(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.home_file();
    let attr = scene.attr_for(&path, scene.file.id)?;
    scene.set_attr(&path, &scene.encode(&IdAttr { ino: attr.ino ^ 1 << 40, ..attr }))?;
    Applied::file(scene, path, Answer::Plain)
}

/// A new plain file beside the damaged one.
fn new_file(scene: &Scene, contents: &[u8]) -> Result<std::path::PathBuf, Error> {
    let mut name = scene.file.path.file_name().unwrap_or_default().to_owned();
    name.push("-damage");
    let path = scene.home_file().with_file_name(name);
    if path.exists() {
        return Err(Error::Unsuited("this damage was done before"));
    }
    scene::write(&path, contents)?;
    Ok(path)
}

fn copied(scene: &mut Scene) -> Result<Applied, Error> {
    let path = new_file(scene, b"plain after all")?;
    scene.set_attr(&path, &scene.attr()?)?;
    Applied::file(scene, path, Answer::Same)
}

fn shared(scene: &mut Scene) -> Result<Applied, Error> {
    let path = new_file(scene, b"not the one")?;
    scene.set_attr(&path, &scene.encode(&scene.attr_for(&path, scene.file.id)?))?;
    Applied::file(scene, path, Answer::Same)
}

fn of_another_file(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.tiers[0].dir.join(scene.another()?.path);
    scene.set_attr(&path, &scene.encode(&scene.attr_for(&path, scene.file.id)?))?;
    Applied::file(scene, path, Answer::Same)
}

fn without_data(scene: &mut Scene) -> Result<Applied, Error> {
    let path = new_file(scene, &[0; 4096])?;
    let id = scene.new_id();
    scene.set_attr(&path, &scene.encode(&scene.attr_for(&path, id)?))?;
    let name = path.strip_prefix(&scene.tiers[0].dir).unwrap_or(&path).to_owned();
    Ok(Applied { path: Some(name), id: Some(id), place: path, answer: Answer::Unreadable })
}

fn emptied(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.home_file();
    let attr = scene.attr_for(&path, scene.file.id)?;
    scene.set_attr(&path, &scene.encode(&IdAttr { kind: 2, ..attr }))?;
    Applied::file(scene, path, Answer::Size(0))
}

fn home_size_behind(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.home_file();
    let held = scene.bytes_on(scene.home()).last().map_or(0, |range| range.end);
    if held >= scene::len(&path)? {
        return Err(Error::Unsuited("the home file holds the end of the file"));
    }
    scene::set_len(&path, held)?;
    Applied::file(scene, path, Answer::Same)
}

fn home_size_ahead(scene: &mut Scene) -> Result<Applied, Error> {
    let path = scene.home_file();
    scene::set_len(&path, scene.file.size + 12_345)?;
    Applied::file(scene, path, Answer::Same)
}

fn mark_stale(scene: &mut Scene) -> Result<Applied, Error> {
    let mark = scene.mark(scene.file.id);
    scene::write(&mark, b"")?;
    Applied::file(scene, mark, Answer::Same)
}

fn mark_without_file(scene: &mut Scene) -> Result<Applied, Error> {
    let id = scene.new_id();
    let mark = scene.mark(id);
    scene::write(&mark, b"")?;
    Applied::to_no_file(id, mark)
}

fn mark_of_removed(scene: &mut Scene) -> Result<Applied, Error> {
    let id = scene.new_id();
    let tier = scene.other_tier()?.label.tier;
    scene::write(&scene.object(tier, id)?, &[0xee; 10_000])?;
    let mark = scene.mark(id);
    scene::write(&mark, b"")?;
    Applied::to_no_file(id, mark)
}

fn mark_foreign_file(scene: &mut Scene) -> Result<Applied, Error> {
    let place = scene.braid("open/notes.txt");
    scene::write(&place, b"not a mark")?;
    Applied::volume(place)
}
