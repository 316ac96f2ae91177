//! The data that `braid` writes to its tiers, checked against `docs/format.md`:
//! the tables of the document decode it, not Braid's own code.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

#[path = "format/document.rs"]
mod document;
#[path = "format/volume.rs"]
mod volume;

use document::{Decoded, Document, unsigned};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use siphasher::sip::SipHasher24;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use volume::{RANGE, TestVolume, pattern, text};

fn document() -> Document {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    Document::parse(&fs::read_to_string(path).unwrap())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `<dir>/<2 hex>/<32 hex>`
fn by_id(dir: &Path, id: &[u8]) -> PathBuf {
    dir.join(hex(&id[..1])).join(hex(id))
}

/// Names below a directory, without the directories themselves.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

fn birth_time_ns(path: &Path) -> i64 {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    stat.stx_btime.tv_sec * 1_000_000_000 + i64::from(stat.stx_btime.tv_nsec)
}

/// The label of a tier, with what all labels share checked.
fn label<'a>(document: &'a Document, tier: &Path) -> Decoded<'a> {
    let table = document.table("Label");
    assert!(table.title.contains("512 bytes") && table.size() == 512, "{}: {}", table.title, table.size());
    let bytes = fs::read(tier.join(".braid/label")).unwrap();
    assert_eq!(bytes.len(), 512);
    let mode = |path: &str| fs::metadata(tier.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(".braid"), mode(".braid/label")), (0o700, 0o600), "it has the key");
    table.check(&bytes)
}

fn tier_name<'a>(label: &'a Decoded<'_>) -> &'a str {
    let len = label.number("length of the tier's name") as usize;
    let (name, rest) = label.bytes("the tier's name").split_at(len);
    assert!(rest.iter().all(|byte| *byte == 0));
    std::str::from_utf8(name).unwrap()
}

/// Checks labels and volume table; the namespace of the id attribute.
fn check_tiers(document: &Document, volume: &TestVolume) -> &'static str {
    let (home, other) = (label(document, &volume.home()), label(document, &volume.other()));
    assert_eq!(home.bytes("volume id"), other.bytes("volume id"));
    assert_ne!(home.bytes("volume id"), [0; 16]);
    assert_eq!(home.bytes("the volume's key"), other.bytes("the volume's key"));
    assert_ne!(home.bytes("the volume's key"), [0; 16]);
    assert_eq!((tier_name(&home), home.number("tier number")), ("fast", 0));
    assert_eq!((tier_name(&other), other.number("tier number")), ("slow", 1));
    document.says("| role: 1 home, 0 other |");
    assert_eq!((home.number("role"), other.number("role")), (1, 0));
    for label in [&home, &other] {
        assert_eq!(label.number("range size"), RANGE);
        assert_eq!(label.number("1 if the volume was made as one of version 1"), 0);
    }
    let table = document.table("Volume table");
    assert!(table.title.contains("4096 bytes") && table.size() == 4096);
    let bytes = fs::read(volume.home().join(".braid/volume")).unwrap();
    assert_eq!(bytes.len(), 4096);
    let decoded = table.check(&bytes);
    let mode = fs::metadata(volume.home().join(".braid/volume")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "it has the key");
    assert_eq!(decoded.bytes("volume id"), home.bytes("volume id"));
    assert_eq!(decoded.bytes("the volume's key"), home.bytes("the volume's key"));
    assert_eq!(decoded.number("1 if the volume was made as one of version 1"), 0);
    assert_eq!(decoded.number("range size"), RANGE);
    assert_eq!(decoded.number("tier number of the home tier"), 0);
    document.says(
        "A slot of 64 bytes: byte 0 is 1 if the tier is part of the volume, 2 if it was lost and replaced",
    );
    document.says("byte 1 the length of the name, bytes 2 … 49 the name, the rest reserved");
    for (number, slot) in decoded.bytes("slot *n*").chunks(64).enumerate() {
        let name: &[u8] = [&b"fast"[..], b"slow"].get(number).copied().unwrap_or_default();
        let mut expected = vec![u8::from(!name.is_empty()), name.len() as u8];
        expected.extend(name);
        expected.resize(64, 0);
        assert_eq!(slot, expected, "slot {number}");
    }
    document.says("namespace of Braid's extended attribute: 0 `trusted.`, 1 `user.`");
    ["trusted.", "user."][home.number("namespace") as usize]
}

/// The id of a spread file, with its attribute checked; `None` for a plain one.
fn spread_id(document: &Document, volume: &TestVolume, namespace: &str, path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 80];
    let len = match rustix::fs::getxattr(path, format!("{namespace}braid.id"), &mut value[..]) {
        Err(rustix::io::Errno::NODATA) => return None,
        len => len.unwrap(),
    };
    let table = document.table("The id of a spread file");
    document.says("(or `user.braid.id`, as the label says), 64 bytes");
    assert_eq!((len, table.size()), (64, 64));
    let attribute = table.check(&value[..len]);
    assert_eq!(attribute.number("kind: 1 spread"), 1);
    assert_eq!(attribute.number("inode number"), fs::metadata(path).unwrap().ino());
    assert_eq!(attribute.number("birth time") as i64, birth_time_ns(path));
    let label = label(document, &volume.home());
    assert_eq!(attribute.bytes("the first 8 bytes of the volume id"), &label.bytes("volume id")[..8]);
    document.says("\"MAC\" is SipHash-2-4 with the volume's key, as its 8 bytes.");
    let mac = "MAC of the 64 bytes with this field and the CRC zero";
    let mut bare = value[..len].to_vec();
    for field in [table.field(mac), table.field("CRC of the 64 bytes")] {
        bare[field.offset..field.offset + field.size].fill(0);
    }
    let key = label.bytes("the volume's key").try_into().unwrap();
    assert_eq!(attribute.number(mac), SipHasher24::new_with_key(key).hash(&bare));
    Some(attribute.bytes("object id").to_vec())
}

/// The CRC that begins with the object id.
fn crc(id: &[u8], parts: &[&[u8]]) -> u32 {
    parts.iter().fold(crc32c::crc32c(id), |crc, part| crc32c::crc32c_append(crc, part))
}

fn size_word(document: &Document, header: &Decoded<'_>, id: &[u8], name: &str) -> u64 {
    document.says("*Size word*: bits 0 … 47 the size in bytes; bits 48 … 63 the low 16 bits of the CRC of");
    document
        .says("the object id followed by the word's offset in the index (8 bytes) and the size (8 bytes).");
    let word = header.number(name);
    let size = word & 0xffff_ffff_ffff;
    let offset = document.table("Index").field(name).offset as u64;
    let check = crc(id, &[&offset.to_le_bytes(), &size.to_le_bytes()]) & 0xffff;
    assert_eq!(word >> 48, if word == 0 { 0 } else { u64::from(check) }, "{name}");
    size
}

/// Bytes 0 to 2 of the owners word; byte 3 is a tier too.
fn owners(document: &Document, header: &Decoded<'_>, id: &[u8]) -> [u8; 3] {
    document.says("bytes 4 … 7 the CRC of the object id, the word's offset (8 bytes) and bytes 0 … 3.");
    let word = header.bytes("owners word");
    let offset = document.table("Index").field("owners word").offset as u64;
    if word != [0; 8] {
        let check = crc(id, &[&offset.to_le_bytes(), &word[..4]]);
        assert_eq!(unsigned(&word[4..]), u64::from(check), "owners word");
    }
    assert!(word[3] < 2, "owners word");
    [word[0], word[1], word[2]]
}

/// Checks one spread file and reads it the way the document says.
/// Counts the ranges of each tier in `counts`.
fn read_spread(
    document: &Document,
    volume: &TestVolume,
    name: &str,
    id: &[u8],
    counts: &mut [u64],
) -> Vec<u8> {
    let home = volume.home().join(name);
    let index = fs::read(by_id(&volume.home().join(".braid/index"), id)).unwrap();
    let table = document.table("Index");
    assert_eq!(table.size(), 4096);
    let header = table.check(&index);
    let volume_id = label(document, &volume.home()).bytes("volume id").to_vec();
    assert_eq!(header.bytes("volume id"), volume_id);
    assert_eq!(header.bytes("object id"), id);
    assert_eq!(header.number("range size"), RANGE);
    assert_eq!(header.number("inode number"), fs::metadata(&home).unwrap().ino());
    assert_eq!(header.number("birth time") as i64, birth_time_ns(&home));
    let handle = header.number("length of the home file handle") as usize;
    assert!(header.bytes("home file handle")[handle..].iter().all(|byte| *byte == 0));
    let size = size_word(document, &header, id, "size word: the file's size");
    assert_eq!(size, fs::metadata(&home).unwrap().len(), "{name}: the home file's size follows at close");
    assert!(owners(document, &header, id).iter().all(|tier| *tier < 2));

    document.says("the entry of range *r* is at `4096 + 8 r`");
    let mut contents = vec![0; size as usize];
    for range in 0..size.div_ceil(RANGE) {
        let at = 4096 + 8 * range as usize;
        let entry = index.get(at..at + 8).map_or(0, unsigned);
        if entry == 0 {
            continue;
        }
        let tier = check_entry(document, id, range, entry);
        counts[tier] += 1;
        let place = if tier == 0 { home.clone() } else { by_id(&volume.other().join(".braid/data"), id) };
        let start = (range * RANGE) as usize;
        let end = contents.len().min(start + RANGE as usize);
        let bytes = fs::read(place).unwrap();
        let bytes = &bytes[start.min(bytes.len())..end.min(bytes.len())];
        contents[start..start + bytes.len()].copy_from_slice(bytes);
    }
    contents
}

/// Checks an entry; the tier it names.
fn check_entry(document: &Document, id: &[u8], range: u64, entry: u64) -> usize {
    let fields = document.bits("Index").split(entry);
    let field = |name: &str| *fields.iter().find(|(text, _)| text.starts_with(name)).expect(name).1;
    let low = (entry as u32).to_le_bytes();
    assert_eq!(
        field("CRC of the object id, the range number (8 bytes) and bits 0 … 31 (4 bytes)"),
        u64::from(crc(id, &[&range.to_le_bytes(), &low])),
        "entry of range {range}"
    );
    assert!((1..=4).contains(&field("why it is there: 1 ")), "entry of range {range}: {fields:?}");
    let tier = field("number of the tier") as usize;
    assert!(tier < 2, "entry of range {range}: {fields:?}");
    tier
}

/// The contents of the test volume's files.
fn fill(volume: &TestVolume) -> BTreeMap<&'static str, Vec<u8>> {
    let big = pattern(7, 20 * RANGE + 1000);
    let piece = pattern(9, 3 * RANGE);
    let mut sparse = vec![0; 40 * RANGE as usize + 1];
    for start in [0, 17 * RANGE + 4321] {
        sparse[start as usize..][..piece.len()].copy_from_slice(&piece);
    }
    volume.write("plain", 5000, &[(0, &pattern(3, 5000))]).sync_all().unwrap();
    volume.write("big", big.len() as u64, &[(0, &big)]).sync_all().unwrap();
    drop(volume.write("sparse", sparse.len() as u64, &[(0, &piece), (17 * RANGE + 4321, &piece)]));
    drop(volume.write("removed", 10 * RANGE, &[(0, &big[..10 * RANGE as usize])]));
    fs::remove_file(volume.mount_point().join("removed")).unwrap();
    BTreeMap::from([("plain", pattern(3, 5000)), ("big", big), ("sparse", sparse)])
}

#[test]
fn tables_of_the_document_are_complete() {
    let document = document();
    for (title, size) in [
        ("Label", 512),
        ("Volume table", 4096),
        ("A replacement of home", 4096),
        ("The id of a spread file", 64),
        ("Pins", 40),
        ("Index", 4096),
    ] {
        assert_eq!(document.table(title).size(), size, "{title}");
    }
    assert_eq!(document.bits("Index").size(), 64);
}

#[test]
fn a_volume_is_as_the_document_says() {
    let document = document();
    let volume = TestVolume::new();
    let expected = fill(&volume);
    volume.unmount();
    let namespace = check_tiers(&document, &volume);
    let mut counts = [0; 63];
    let mut ids = Vec::new();
    for (name, contents) in &expected {
        let path = volume.home().join(name);
        let found = match spread_id(&document, &volume, namespace, &path) {
            None => fs::read(path).unwrap(),
            Some(id) => {
                let found = read_spread(&document, &volume, name, &id, &mut counts);
                ids.push(id);
                found
            }
        };
        assert!(found == *contents, "{name} does not hold what was written");
    }
    assert_eq!(ids.len(), 2, "the larger files are spread, the small one is not");
    assert!(counts[0] > 0 && counts[1] > 0, "both tiers hold ranges: {counts:?}");
    check_layout(&volume, &ids);
    check_counts(&document, &volume, &counts);
    check_heat(&document, &volume);
}

/// The tiers have only files that the document's tree shows.
fn check_layout(volume: &TestVolume, ids: &[Vec<u8>]) {
    let (home, other) = (volume.home().join(".braid"), volume.other().join(".braid"));
    let mut expected: Vec<_> = ids.iter().map(|id| by_id(&home.join("index"), id)).collect();
    expected.extend(["README", "ballast", "counts", "heat", "label", "volume"].map(|name| home.join(name)));
    expected.sort();
    assert_eq!(files_below(&home), expected, "after a clean unmount there are no marks");
    let mut expected: Vec<_> = ids.iter().map(|id| by_id(&other.join("data"), id)).collect();
    expected.extend(["README", "label"].map(|name| other.join(name)));
    expected.sort();
    assert_eq!(files_below(&other), expected);
    let names: Vec<_> =
        fs::read_dir(volume.other()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [".braid"]);
}

fn check_counts(document: &Document, volume: &TestVolume, counts: &[u64; 63]) {
    let table = document.table("Counts");
    assert!(table.title.contains("520 bytes") && table.size() == 520);
    let bytes = fs::read(volume.home().join(".braid/counts")).unwrap();
    assert_eq!(bytes.len(), 520);
    let decoded = table.check(&bytes);
    let found: Vec<_> = decoded.bytes("how many ranges").chunks(8).map(unsigned).collect();
    assert_eq!(found, counts);
}

/// The saved heat: files, in order, and their ranges.
fn check_heat(document: &Document, volume: &TestVolume) {
    let bytes = fs::read(volume.home().join(".braid/heat")).unwrap();
    let table = document.table("Heat");
    let decoded = table.check(&bytes);
    let mut covered = bytes.clone();
    let at = table.field("checksum").offset;
    covered[at..at + 4].fill(0);
    assert_eq!(decoded.number("checksum"), u64::from(crc32c::crc32c(&covered)));
    document.says("inode number (8 bytes), generation (8 bytes: FNV-1a of the bytes of its file handle");
    document.says("length of the handle in bytes (4 bytes), number of ranges (8 bytes), the handle;");
    document
        .says("the tier that it was seen on (1 byte), degree of its heat at that last use, 0 to 3 (1 byte)");
    let mut rest = &bytes[table.size()..];
    let mut take = |len: usize| {
        let (taken, left) = rest.split_at(len);
        rest = left;
        taken
    };
    let (mut ranges, mut last) = (0, 0);
    for _ in 0..decoded.number("number of files") {
        let ino = unsigned(take(8));
        assert!(ino > last, "inode {ino} after {last}");
        last = ino;
        let (generation, _kind, len) = (unsigned(take(8)), take(4), unsigned(take(4)));
        let count = unsigned(take(8));
        let handle = take(len as usize);
        let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = handle.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
        assert!(handle.is_empty() || generation == hash, "generation of inode {ino}");
        for _ in 0..count {
            let (_range, since, used) = (take(4), unsigned(take(4)), unsigned(take(4)));
            assert!(since <= used + 60 && used > 1_600_000_000, "{since} {used}");
            assert!(matches!(take(4), [0 | 1, 0..=3, 0, 0]));
        }
        ranges += count;
    }
    assert!(rest.is_empty() && ranges > 2, "{ranges} ranges");
}

#[test]
fn a_file_being_written_is_marked() {
    let document = document();
    let volume = TestVolume::new();
    let file = volume.write("big", 8 * RANGE, &[(0, &pattern(1, 8 * RANGE))]);
    assert!(!volume.home().join(".braid/counts").exists(), "counts are there only after a clean unmount");
    let namespace = check_tiers(&document, &volume);
    let id = spread_id(&document, &volume, namespace, &volume.home().join("big")).expect("it is spread");
    let mark = volume.home().join(".braid/open").join(hex(&id));
    assert_eq!(fs::metadata(&mark).expect("the mark").len(), 0);
    drop(file);
    volume.unmount();
    assert!(!mark.exists(), "the mark goes when the file and its home inode agree");
}

#[test]
fn the_rescue_script_rebuilds_the_volume() {
    let volume = TestVolume::new();
    let expected = fill(&volume);
    fs::hard_link(volume.mount_point().join("big"), volume.mount_point().join("same")).unwrap();
    volume.unmount();
    let out = volume.scratch().join("out");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/rescue/rescue.py");
    let mut rescue = Command::new("python3");
    rescue
        .arg(script)
        .args(["--home", "fast"])
        .arg("--tier")
        .arg(format!("fast={}", volume.home().display()));
    rescue.arg("--tier").arg(format!("slow={}", volume.other().display())).arg(&out);
    let output = rescue.output().expect("python3 runs");
    assert!(output.status.success(), "{}", text(&output));
    for (name, contents) in &expected {
        assert!(fs::read(out.join(name)).unwrap() == *contents, "{name} came back different");
        let (before, after) = (fs::metadata(volume.home().join(name)), fs::metadata(out.join(name)));
        assert_eq!(before.unwrap().modified().unwrap(), after.unwrap().modified().unwrap(), "{name}");
    }
    let ino = |name| fs::metadata(out.join(name)).unwrap().ino();
    assert_eq!(ino("big"), ino("same"));
}
