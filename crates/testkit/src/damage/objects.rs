//! Damage to objects on tiers other than home, and to data in home files.

use super::scene::{self, Scene, patch};
use super::{Answer, Applied, Error, Finding, Kind, Repair};
use std::fs;

const RANGES_ON_IT: &str = "reading its ranges on that tier fails";
const SAME: &str = "it is the same";
const NO_FILE: &str = "no file is concerned";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "object-missing",
        does: "removes a file's object from a tier, which was durable",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: RANGES_ON_IT,
        inflict: missing,
    },
    Kind {
        name: "object-never-durable",
        does: "removes a file's object from a tier, which was never durable: power loss does that",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: "its ranges on that tier read as zeros",
        inflict: never_durable,
    },
    Kind {
        name: "object-too-long",
        does: "lets an object go on behind the file's end",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: too_long,
    },
    Kind {
        name: "object-cut",
        does: "cuts an object in a range that it holds, which the format can't tell from a hole",
        finding: Finding::Either,
        repair: Repair::Impossible,
        answer: "what was cut off reads as zeros",
        inflict: cut,
    },
    Kind {
        name: "object-is-a-directory",
        does: "replaces an object by a directory",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: RANGES_ON_IT,
        inflict: is_a_directory,
    },
    Kind {
        name: "object-in-wrong-shard",
        does: "moves an object to the directory of another shard",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: RANGES_ON_IT,
        inflict: wrong_shard,
    },
    Kind {
        name: "object-orphan",
        does: "makes an object that no file leads to",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: NO_FILE,
        inflict: orphan,
    },
    Kind {
        name: "object-unowned",
        does: "makes an object of a file on a tier that holds no range of it",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: unowned,
    },
    Kind {
        name: "data-foreign-file",
        does: "puts a file into a shard of the objects whose name is no id",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: NO_FILE,
        inflict: foreign_file,
    },
    Kind {
        name: "leftovers",
        does: "fills the ranges with nonsense that an object or home file has but does not own",
        finding: Finding::Legal,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: leftovers,
    },
];

fn missing(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let object = scene.object(owner, scene.file.id)?;
    scene::remove(&object)?;
    scene.set_durable(owner, true)?;
    let answer = Answer::Error(scene.bytes_on(owner));
    Applied::file(scene, object, answer)
}

fn never_durable(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let object = scene.object(owner, scene.file.id)?;
    scene::remove(&object)?;
    scene.set_durable(owner, false)?;
    let answer = Answer::Zeros(scene.bytes_on(owner));
    Applied::file(scene, object, answer)
}

fn too_long(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let object = scene.object(owner, scene.file.id)?;
    patch(&object, scene.file.size, &[0xee; 5000])?;
    Applied::file(scene, object, Answer::Same)
}

fn cut(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let object = scene.object(owner, scene.file.id)?;
    let on_it = scene.bytes_on(owner);
    let last = on_it.last().cloned().unwrap_or(0..0);
    let at = last.start + (last.end - last.start) / 2;
    scene::set_len(&object, at)?;
    Applied::file(scene, object, Answer::Zeros(vec![at..last.end]))
}

fn is_a_directory(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let object = scene.object(owner, scene.file.id)?;
    scene::remove(&object)?;
    fs::create_dir(&object).map_err(|error| Error::io(&object, error))?;
    scene.set_durable(owner, true)?;
    let answer = Answer::Error(scene.bytes_on(owner));
    Applied::file(scene, object, answer)
}

fn wrong_shard(scene: &mut Scene) -> Result<Applied, Error> {
    let (owner, id) = (scene.owner()?, scene.file.id);
    let object = scene.object(owner, id)?;
    let mut other = id;
    other.0[0] ^= 1;
    let place = scene.object(owner, other)?.with_file_name(id.to_string());
    scene::rename(&object, &place)?;
    scene.set_durable(owner, true)?;
    let answer = Answer::Error(scene.bytes_on(owner));
    Applied::file(scene, place, answer)
}

fn orphan(scene: &mut Scene) -> Result<Applied, Error> {
    let id = scene.new_id();
    let tier = scene.other_tier()?.label.tier;
    let place = scene.object(tier, id)?;
    scene::write(&place, &[0xee; 10_000])?;
    Applied::to_no_file(id, place)
}

fn unowned(scene: &mut Scene) -> Result<Applied, Error> {
    let id = scene.file.id;
    let unowned: Vec<_> = scene.tiers[1..]
        .iter()
        .map(|tier| tier.label.tier)
        .filter(|tier| scene.bytes_on(*tier).is_empty())
        .collect();
    let tier = scene.one_of(&unowned).ok_or(Error::Unsuited("each tier holds a range of the file"))?;
    let place = scene.object(tier, id)?;
    scene::write(&place, &vec![0xee; scene.file.size as usize])?;
    Applied::file(scene, place, Answer::Same)
}

fn foreign_file(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let place = scene.object(owner, scene.file.id)?.with_file_name("notes.txt");
    scene::write(&place, b"not an object")?;
    Applied::volume(place)
}

fn leftovers(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let object = scene.object(owner, scene.file.id)?;
    let mut spoilt = 0;
    for (tier, path) in [(owner, object.clone()), (scene.home(), scene.home_file())] {
        // Only where the file is as long already: its size says something.
        let end = scene::len(&path)?;
        let others: Vec<_> =
            scene.ranges(|entry| entry.tier != tier).map(|range| scene.bytes_of(range)).collect();
        for range in others.into_iter().filter(|range| range.end <= end) {
            patch(&path, range.start, &vec![0x5a; (range.end - range.start) as usize])?;
            spoilt += 1;
        }
    }
    if spoilt == 0 {
        return Err(Error::Unsuited("the file's ranges are all on one tier"));
    }
    Applied::file(scene, object, Answer::Same)
}
