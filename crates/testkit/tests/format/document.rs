//! Reads the tables of `docs/format.md` and decodes bytes by them.

use std::collections::BTreeMap;

/// One row of a table of offsets, or of bits.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// First byte, or first bit.
    pub(crate) offset: usize,
    /// How many bytes, or bits.
    pub(crate) size: usize,
    /// The description.
    pub(crate) text: String,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The heading above it.
    pub(crate) title: String,
    /// The rows.
    pub(crate) fields: Vec<Field>,
}

/// The document.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// Everything, with white space made single.
    text: String,
    /// Tables of bytes.
    tables: Vec<Table>,
    /// Tables of bits.
    bits: Vec<Table>,
}

impl Document {
    /// Reads the document's text.
    pub(crate) fn parse(markdown: &str) -> Self {
        let mut document = Self::default();
        let words: Vec<_> = markdown.split_whitespace().collect();
        document.text = words.join(" ");
        let mut title = String::new();
        let mut in_bits = false;
        for line in markdown.lines() {
            if let Some(heading) = line.strip_prefix('#') {
                title = heading.trim_matches(|c| c == '#' || c == ' ').to_owned();
            }
            let Some(row) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else { continue };
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            match cells[..] {
                ["offset", "size", "field"] | ["bits", "field"] => {
                    in_bits = cells.len() == 2;
                    let tables = if in_bits { &mut document.bits } else { &mut document.tables };
                    tables.push(Table { title: title.clone(), fields: Vec::new() });
                }
                [rule, ..] if rule.starts_with('-') => {}
                [offset, size, text] if !in_bits => {
                    let size = size.split('×').map(|part| number(part.trim())).product();
                    let field = Field { offset: number(offset), size, text: text.to_owned() };
                    document.tables.last_mut().expect("a row has a header above it").fields.push(field);
                }
                [bits, text] if in_bits => {
                    let (first, last) = bits.split_once(" … ").expect("bits are given as `first … last`");
                    let offset = number(first);
                    let field = Field { offset, size: number(last) + 1 - offset, text: text.to_owned() };
                    document.bits.last_mut().expect("a row has a header above it").fields.push(field);
                }
                _ => panic!("not a row of a known table: {line}"),
            }
        }
        document
    }

    /// The table of bytes under the heading that begins so.
    pub(crate) fn table(&self, title: &str) -> &Table {
        one(&self.tables, title)
    }

    /// The table of bits under the heading that begins so.
    pub(crate) fn bits(&self, title: &str) -> &Table {
        one(&self.bits, title)
    }

    /// Demands a sentence of the prose that a test relies on.
    pub(crate) fn says(&self, sentence: &str) {
        assert!(self.text.contains(sentence), "docs/format.md no longer says: {sentence}");
    }
}

fn one<'a>(tables: &'a [Table], title: &str) -> &'a Table {
    let mut found = tables.iter().filter(|table| table.title.starts_with(title));
    let table = found.next().unwrap_or_else(|| panic!("docs/format.md has no table under \"{title}\""));
    assert!(found.next().is_none(), "docs/format.md has more than one table under \"{title}\"");
    table
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}

impl Table {
    /// Where the last field ends; demands that the fields leave no gap.
    pub(crate) fn size(&self) -> usize {
        self.fields.iter().fold(0, |end, field| {
            assert_eq!(field.offset, end, "{}: a gap or overlap before \"{}\"", self.title, field.text);
            end + field.size
        })
    }

    /// The only field whose description is this, or begins like this.
    pub(crate) fn field(&self, name: &str) -> &Field {
        if let Some(field) = self.fields.iter().find(|field| field.text == name) {
            return field;
        }
        let mut found = self.fields.iter().filter(|field| field.text.starts_with(name));
        let field = found.next().unwrap_or_else(|| panic!("{}: no field \"{name}\"", self.title));
        assert!(found.next().is_none(), "{}: more than one field \"{name}\"", self.title);
        field
    }

    /// Checks all that the descriptions themselves demand: magics, versions,
    /// checksums and reserved bytes.
    pub(crate) fn check(&self, block: &[u8]) -> Decoded<'_> {
        assert!(block.len() >= self.size(), "{}: {} bytes and not {}", self.title, block.len(), self.size());
        for field in &self.fields {
            let bytes = &block[field.offset..field.offset + field.size];
            let what = format!("{}, offset {}: {}", self.title, field.offset, field.text);
            let text = field.text.as_str();
            if let Some(magic) = text.strip_prefix("magic `") {
                assert_eq!(bytes, magic.trim_end_matches('`').as_bytes(), "{what}");
            } else if let Some((_, version)) = text.split_once("version, ") {
                assert_eq!(unsigned(bytes), number(version) as u64, "{what}");
            } else if text == "reserved" {
                assert!(bytes.iter().all(|byte| *byte == 0), "{what}: {bytes:02x?}");
            } else if text.starts_with("CRC of ") {
                let numbers: Vec<usize> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
                // "the 512 bytes" or "bytes 0 … 255".
                let (start, end) =
                    if text.contains('…') { (numbers[0], numbers[1] + 1) } else { (0, numbers[0]) };
                let mut covered = block.to_vec();
                if text.ends_with("with this field zero") {
                    covered[field.offset..field.offset + field.size].fill(0);
                }
                let covered = &covered[start..end];
                assert_eq!(unsigned(bytes), u64::from(crc32c::crc32c(covered)), "{what}");
            }
        }
        Decoded { table: self, bytes: block.to_vec() }
    }

    /// The fields of a word, by a table of bits.
    pub(crate) fn split(&self, word: u64) -> BTreeMap<&str, u64> {
        assert_eq!(self.size(), 64, "{}: the bits of a word", self.title);
        let value = |field: &Field| word >> field.offset & (u64::MAX >> (64 - field.size));
        self.fields.iter().map(|field| (field.text.as_str(), value(field))).collect()
    }
}

/// Bytes with the table that describes them.
#[derive(Debug)]
pub(crate) struct Decoded<'a> {
    table: &'a Table,
    bytes: Vec<u8>,
}

impl Decoded<'_> {
    /// The bytes of a field.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        let field = self.table.field(name);
        &self.bytes[field.offset..field.offset + field.size]
    }

    /// A field as a number.
    pub(crate) fn number(&self, name: &str) -> u64 {
        unsigned(self.bytes(name))
    }
}

/// A little-endian number of up to 8 bytes.
pub(crate) fn unsigned(bytes: &[u8]) -> u64 {
    assert!(bytes.len() <= 8, "a number of {} bytes", bytes.len());
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
