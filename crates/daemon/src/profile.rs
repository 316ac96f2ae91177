//! The profile of a volume's tiers: the performance of each, as `braid bench
//! calibrate` measured it. Calibration writes the file; `wire` reads it when a
//! stack file names one with the key `profile`.

use crate::refusal::{Place, Refusal};
use crate::section::{Field, Section};
use crate::text_file;
use crate::yaml::{self, Value};
use braid_contract::Shown;
use braid_placement::{DirectionProfile, TierProfile};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The supported version of the format.
pub const VERSION: u32 = 1;

const ADVICE: &str = "a profile is written by: braid bench calibrate STACK.yaml";

/// A profile: its version, and each tier by its name.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Profile {
    /// [`VERSION`].
    pub version: u32,
    /// The tiers by name.
    pub tiers: BTreeMap<String, TierFigures>,
}

/// The performance of one tier.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierFigures {
    /// Reads.
    pub read: Figures,
    /// Writes.
    pub write: Figures,
}

/// The performance of one tier in one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Highest bandwidth, in bytes a second.
    pub bandwidth: u64,
    /// Mean latency of one thread alone, in nanoseconds.
    pub latency_ns: u64,
    /// The fewest threads that reach the bandwidth.
    pub threads: u32,
    /// The fewest threads beyond it that get clearly less, if any do.
    pub degrades_at: Option<u32>,
    /// The measurements.
    pub points: Vec<Point>,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// Number of threads.
    pub threads: u32,
    /// Bandwidth of all of them, in bytes a second.
    pub bandwidth: u64,
    /// Mean latency in nanoseconds.
    pub latency_ns: u64,
}

impl Profile {
    /// The profile as text, to be written to a file.
    ///
    /// # Errors
    /// If it can't be serialized, which does not happen.
    pub fn to_yaml(&self) -> Result<String, String> {
        serde_saphyr::to_string(self).map_err(|error| error.to_string())
    }

    /// The figures of the tier `name`, for the volume.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<TierProfile> {
        let figures = self.tiers.get(name)?;
        Some(TierProfile { read: figures.read.direction(), write: figures.write.direction() })
    }
}

impl Figures {
    fn direction(&self) -> DirectionProfile {
        DirectionProfile {
            bandwidth: self.bandwidth as f64,
            latency_ns: self.latency_ns,
            threads: self.threads,
            degrades_at: self.degrades_at,
        }
    }
}

/// Reads the profile at `path`, which the setting at `named` refers to.
///
/// # Errors
/// If it can't be read, or its first error: with file, line, tier and key.
pub fn load(path: &Path, named: &Place) -> Result<Profile, Refusal> {
    let advice = "leave the key out until there is one: braid bench calibrate STACK.yaml writes it";
    let text = text_file::read(path)
        .map_err(|error| named.refuse(format!("{} can't be read: {error}", path.shown()), advice))?;
    parse(&text, &path.to_string_lossy())
}

/// Reads the profile `text`, which is called `name` in messages.
///
/// # Errors
/// Its first error.
pub fn parse(text: &str, name: &str) -> Result<Profile, Refusal> {
    let file = Place::file(name);
    let root = Field::root(yaml::parse(text, &file)?, &file);
    if !matches!(&root.node.value, Value::Map(_)) {
        return Err(file.refuse("not a profile", ADVICE));
    }
    let mut section = Section::of(&root, &["version", "tiers"])?;
    let version = section.require("version", "version: 1")?;
    if version.count(0..=u32::MAX as usize)?.value != VERSION as usize {
        let found = format!("found a profile of another version than {VERSION}");
        return Err(version.place.refuse(found, ADVICE));
    }
    let tiers = section.require("tiers", "tiers: { NAME: { read: …, write: … } }")?;
    let tiers = Section::open(&tiers)?.into_fields();
    let tier = |field: Field| Ok((field.name.clone(), tier_figures(&field)?));
    Ok(Profile { version: VERSION, tiers: tiers.map(tier).collect::<Result<_, Refusal>>()? })
}

fn tier_figures(field: &Field) -> Result<TierFigures, Refusal> {
    let mut section = Section::of(field, &["read", "write"])?;
    let mut of = |name: &str| {
        figures(&section.require(name, &format!("{name}: {{ bandwidth: …, latency_ns: …, threads: … }}"))?)
    };
    Ok(TierFigures { read: of("read")?, write: of("write")? })
}

fn figures(field: &Field) -> Result<Figures, Refusal> {
    let keys = &["bandwidth", "latency_ns", "threads", "degrades_at", "points"];
    let mut section = Section::of(field, keys)?;
    let degrades_at = match section.take("degrades_at") {
        Some(field) if field.node.value != Value::Null && !is_null(&field) => Some(threads(&field)?),
        _ => None,
    };
    let points = match section.take("points") {
        Some(field) => field.items("points: [ { threads: …, bandwidth: …, latency_ns: … } ]")?,
        None => Vec::new(),
    };
    Ok(Figures {
        bandwidth: bandwidth(&mut section)?,
        latency_ns: latency(&mut section)?,
        threads: threads(&section.require("threads", "threads: COUNT")?)?,
        degrades_at,
        points: points.iter().map(point).collect::<Result<_, _>>()?,
    })
}

fn point(field: &Field) -> Result<Point, Refusal> {
    let mut section = Section::of(field, &["threads", "bandwidth", "latency_ns"])?;
    Ok(Point {
        threads: threads(&section.require("threads", "threads: COUNT")?)?,
        bandwidth: bandwidth(&mut section)?,
        latency_ns: latency(&mut section)?,
    })
}

fn bandwidth(section: &mut Section) -> Result<u64, Refusal> {
    let field = section.require("bandwidth", "bandwidth: BYTES_A_SECOND")?;
    match whole(&field)? {
        0 => Err(field.place.refuse("a tier without any bandwidth can't be used", ADVICE)),
        bandwidth => Ok(bandwidth),
    }
}

fn latency(section: &mut Section) -> Result<u64, Refusal> {
    let field = section.require("latency_ns", "latency_ns: NANOSECONDS")?;
    match whole(&field)? {
        0 => Err(field.place.refuse("every operation takes some time", ADVICE)),
        latency => Ok(latency),
    }
}

fn whole(field: &Field) -> Result<u64, Refusal> {
    let number = field.parse("a whole number", |text| text.parse::<u64>().map_err(|_| ADVICE.to_owned()))?;
    Ok(number.value)
}

fn threads(field: &Field) -> Result<u32, Refusal> {
    let count = field.count(1..=1_000_000)?.value;
    u32::try_from(count).map_err(|_| field.place.refuse("too many threads", ADVICE))
}

fn is_null(field: &Field) -> bool {
    matches!(&field.node.value, Value::Scalar(text) if text == "null" || text == "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let figures = |bandwidth, degrades_at| Figures {
            bandwidth,
            latency_ns: 300_000,
            threads: 2,
            degrades_at,
            points: vec![Point { threads: 1, bandwidth: bandwidth / 2, latency_ns: 300_000 }],
        };
        let tier = TierFigures { read: figures(400_000_000, None), write: figures(200_000_000, Some(16)) };
        Profile { version: VERSION, tiers: [("fast".to_owned(), tier)].into() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = profile().to_yaml().unwrap();
        assert_eq!(parse(&text, "p.yaml").unwrap(), profile(), "{text}");
        let tier = profile().tier("fast").unwrap();
        assert_eq!((tier.write.bandwidth, tier.write.degrades_at), (2e8, Some(16)));
        assert!(profile().tier("slow").is_none());
    }

    #[test]
    fn what_is_wrong_is_told_with_line_tier_and_key() {
        let text = "version: 1\ntiers:\n  fast:\n    read: { bandwidth: 1, latency_ns: 1, threads: 1 }\n    \
                    write: { bandwidth: 1, latency_ns: 1, threads: 1 }\n";
        parse(text, "p.yaml").unwrap();
        for (from, to, message) in [
            ("version: 1", "version: 2", "p.yaml:1: version: found a profile of another version"),
            ("write: { band", "write: { breath", "p.yaml:5: tiers.fast.write.breathwidth: unknown key"),
            ("bandwidth: 1", "bandwidth: 0", "p.yaml:4: tiers.fast.read.bandwidth: a tier without"),
            ("latency_ns: 1", "latency_ns: 0", "p.yaml:4: tiers.fast.read.latency_ns: every operation takes"),
            ("latency_ns: 1", "latency_ns: -1", "p.yaml:4: tiers.fast.read.latency_ns: found '-1'"),
            ("threads: 1 }\n   ", "threads: x }\n   ", "p.yaml:4: tiers.fast.read.threads: found 'x'"),
            ("write:", "wrote:", "p.yaml:5: tiers.fast.wrote: unknown key"),
            ("latency_ns: 1, ", "", "p.yaml:4: tiers.fast.read: the key 'latency_ns' is missing"),
        ] {
            assert!(text.contains(from), "{from}");
            let refused = parse(&text.replacen(from, to, 1), "p.yaml").unwrap_err().to_string();
            assert!(refused.starts_with(message), "{refused}");
        }
        assert!(parse("- 1\n", "p.yaml").is_err());
    }
}
