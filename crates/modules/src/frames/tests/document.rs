//! The bytes are where `docs/format.md` says.

use crate::frames::geometry::Geometry;
use crate::frames::header::{Coding, Head, Header, Slot, Trio};
use crate::frames::record::Record;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The fields of the table below a heading: their places and meanings.
fn table(heading: &str) -> Vec<(Range<usize>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(&format!("### {heading}\n")).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let mut end = 0;
    let fields = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').splitn(3, '|').map(str::trim).collect();
        let (offset, size): (usize, usize) = (cells[0].parse().unwrap(), cells[1].parse().unwrap());
        assert_eq!(offset, end, "{heading}: a gap before '{}'", cells[2]);
        end = offset + size;
        (offset..end, cells[2].to_owned())
    });
    fields.collect()
}

/// The bytes of the field whose description begins so.
fn field<'a>(table: &[(Range<usize>, String)], bytes: &'a [u8], what: &str) -> &'a [u8] {
    let (range, _) = table.iter().find(|(_, text)| text.starts_with(what)).unwrap();
    &bytes[range.clone()]
}

#[test]
fn heads_and_headers_are_as_the_document_says() {
    let geometry = Geometry::new(13).unwrap();
    let bytes = Head { geometry, is_sealed: true, id: [9; 16] }.encode();
    let head = table("Head of a file in frames");
    assert_eq!(head.last().unwrap().0.end, bytes.len());
    assert_eq!(field(&head, &bytes, "magic"), b"BRAIDFRM");
    assert_eq!(field(&head, &bytes, "format version, 1"), [1]);
    assert_eq!(field(&head, &bytes, "*s*"), [13]);
    assert_eq!(field(&head, &bytes, "1 if the frames are encrypted"), [1]);
    assert_eq!(field(&head, &bytes, "the file's id"), [9; 16]);
    let header = Header {
        sequence: 0x0102,
        len: 0x0304,
        stored: 0x0506,
        coding: Coding::Hole,
        is_sealed: true,
        instance: 0x0708,
        nonce: [7; 24],
        check: [8; 16],
    };
    let bytes = Trio([Slot::Absent, Slot::Held(header), Slot::Absent]).encode();
    let (slot, bytes) = (table("Header of a slot"), &bytes[64..128]);
    assert_eq!(slot.last().unwrap().0.end, bytes.len());
    assert_eq!(field(&slot, bytes, "sequence number"), 0x0102_u64.to_le_bytes());
    assert_eq!(field(&slot, bytes, "length"), 0x0304_u32.to_le_bytes());
    assert_eq!(field(&slot, bytes, "bytes in the slot"), 0x0506_u32.to_le_bytes());
    assert_eq!(field(&slot, bytes, "coding: 0 as it is, 1 LZ4 block, 2 Zstandard frame, 3 a hole"), [3]);
    assert_eq!(field(&slot, bytes, "1 if the bytes are encrypted"), [1]);
    assert_eq!(field(&slot, bytes, "the first 4 bytes of the record"), 0x0708_u32.to_le_bytes());
    let mut summed = bytes.to_vec();
    summed[22..24].fill(0);
    let crc = crc32c::crc32c(&summed).to_le_bytes();
    assert_eq!(field(&slot, bytes, "low 16 bits of the CRC"), &crc[..2]);
    assert_eq!(field(&slot, bytes, "nonce"), [7; 24]);
    assert_eq!(field(&slot, bytes, "if encrypted, the tag"), [8; 16]);
}

#[test]
fn the_record_is_as_the_document_says() {
    let suspects = vec![5..=6];
    let record = Record { key_check: [2; 16], settled: 7, limit: 8, suspects, ..Record::new([1; 16]) };
    let (fields, bytes) = (table("Record of frames"), record.encode());
    assert_eq!(fields.last().unwrap().0.end + 16, bytes.len());
    assert_eq!(field(&fields, &bytes, "magic"), b"BRAIDREC");
    assert_eq!(field(&fields, &bytes, "format version, 1"), [1]);
    assert_eq!(field(&fields, &bytes, "number of ranges"), [1]);
    assert_eq!(field(&fields, &bytes, "instance"), [1; 16]);
    assert_eq!(field(&fields, &bytes, "check of the key"), [2; 16]);
    assert_eq!(field(&fields, &bytes, "all numbers up to this"), 7_u64.to_le_bytes());
    assert_eq!(field(&fields, &bytes, "no number is higher"), 8_u64.to_le_bytes());
}
