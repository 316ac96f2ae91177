//! What is known of a file, as figures that can be compared.

/// What is known of a file when it is opened.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts<'a> {
    /// Its path below the volume's root.
    pub path: &'a str,
    /// It is opened to append.
    pub append: bool,
    /// Each write is to be synced.
    pub sync: bool,
    /// It bypasses the page cache.
    pub direct: bool,
}

/// What a file did until it was closed, or removed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FileStory {
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Writes that began where the one before ended.
    pub in_order: u64,
    /// Bytes written where some were before.
    pub overwritten: u64,
    /// Syncs.
    pub syncs: u64,
    /// Nanoseconds from when it was made to when it was removed; `None` if it is
    /// still there.
    pub lived_ns: Option<u64>,
    /// Nanoseconds since it was made.
    pub age_ns: u64,
}

/// Figures of how a file was written, each from 0 to about 1.
pub(super) const BEHAVIOUR: usize = 6;
/// Figures of how it is opened.
const FLAGS: usize = 3;
/// Figures that are made of its path.
const PATH: usize = 10;
/// All figures of a kind of file.
pub(super) const FIGURES: usize = BEHAVIOUR + FLAGS + PATH;
/// How much the path counts, against what the file does: names are arbitrary.
const PATH_WEIGHT: f32 = 0.3;

pub(super) type Behaviour = [f32; BEHAVIOUR];
pub(super) type Figures = [f32; FIGURES];

/// The kind of a file: its directory and its name, in which numbers of any length
/// are one and the same. Files whose names are made of numbers are of one kind.
pub(super) fn kind_of(path: &str) -> String {
    let mut kind = String::with_capacity(path.len());
    for part in path.split('/') {
        if !kind.is_empty() {
            kind.push('/');
        }
        // Names like those of temporary files: letters and digits by chance.
        let (stem, extension) = part.rsplit_once('.').unwrap_or((part, ""));
        kind.push_str(&plain(stem));
        if !extension.is_empty() {
            kind.push('.');
            kind.push_str(&plain(extension));
        }
    }
    kind
}

/// A part of a name without its numbers; a long one in which letters and digits
/// alternate is a number altogether.
fn plain(part: &str) -> String {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let changes =
        part.as_bytes().windows(2).filter(|two| two[0].is_ascii_digit() != two[1].is_ascii_digit()).count();
    let is_hex =
        part.len() >= 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit() || b"-_".contains(&byte));
    if is_hex && digits > 0 || (part.len() >= 12 && changes * 3 >= part.len()) {
        return "#".to_owned();
    }
    let mut plain = String::with_capacity(part.len());
    for letter in part.chars() {
        match letter.is_ascii_digit() {
            true if plain.ends_with('#') => {}
            true => plain.push('#'),
            false => plain.push(letter.to_ascii_lowercase()),
        }
    }
    plain
}

impl FileStory {
    /// The story as figures.
    pub(super) fn behaviour(&self) -> Behaviour {
        let part = |of: u64, all: u64| if all == 0 { 0.0 } else { (of as f32 / all as f32).min(1.0) };
        // From bytes to gibibytes, from milliseconds to weeks.
        let log = |figure: u64, least: u32, most: u32| {
            let bits = (figure.max(1) as f32).log2();
            ((bits - least as f32) / (most - least) as f32).clamp(0.0, 1.0)
        };
        let mean = self.bytes / self.writes.max(1);
        let life = self.lived_ns.unwrap_or(self.age_ns.saturating_mul(4));
        [
            log(mean, 4, 22),
            log(self.bytes, 8, 34),
            part(self.in_order, self.writes),
            part(self.overwritten, self.bytes),
            part(self.syncs, self.writes),
            2.0 * log(life / 1_000_000, 4, 30),
        ]
    }
}

/// All figures of a file of which this behaviour is expected.
pub(super) fn figures(facts: &FileFacts<'_>, kind: &str, behaviour: &Behaviour) -> Figures {
    let mut figures = [0.0; FIGURES];
    figures[..BEHAVIOUR].copy_from_slice(behaviour);
    let flags = [facts.append, facts.sync, facts.direct].map(|flag| if flag { 0.5 } else { 0.0 });
    figures[BEHAVIOUR..BEHAVIOUR + FLAGS].copy_from_slice(&flags);
    let (dir, name) = kind.rsplit_once('/').unwrap_or(("", kind));
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    for token in [dir, name, extension] {
        let hash = token.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let at = BEHAVIOUR + FLAGS + (hash % PATH as u64) as usize;
        figures[at] += if hash & (1 << 63) == 0 { PATH_WEIGHT } else { -PATH_WEIGHT };
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_make_a_kind() {
        for (one, other) in [
            ("db/000123.sst", "db/7.sst"),
            ("db/OPTIONS-000007", "db/options-12"),
            ("spool/1700000000.M123P45.host", "spool/1700000001.M9P4.host"),
            ("tmp/3f2a9c1b7d", "tmp/0011223344"),
        ] {
            assert_eq!(kind_of(one), kind_of(other));
        }
        for (one, other) in [("db/1.sst", "db/1.log"), ("a/1.sst", "b/1.sst"), ("log/new", "log/cur")] {
            assert_ne!(kind_of(one), kind_of(other));
        }
    }

    #[test]
    fn what_files_do_tells_them_apart() {
        let log = FileStory {
            writes: 1000,
            bytes: 100_000,
            in_order: 1000,
            syncs: 1000,
            lived_ns: Some(1 << 32),
            ..FileStory::default()
        };
        let table = FileStory {
            writes: 64,
            bytes: 64 << 20,
            in_order: 64,
            syncs: 1,
            lived_ns: Some(1 << 42),
            ..FileStory::default()
        };
        let apart: f32 = log.behaviour().iter().zip(table.behaviour()).map(|(a, b)| (a - b).powi(2)).sum();
        assert!(apart > 0.5, "{apart}");
        for figure in log.behaviour().into_iter().chain(FileStory::default().behaviour()) {
            assert!((0.0..=2.0).contains(&figure));
        }
    }
}
