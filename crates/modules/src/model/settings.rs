//! The device to model.

use super::device::Figures;
use braid_contract::units::{parse_duration, parse_rate};
use serde::Deserialize;

/// The longest latency, in nanoseconds.
const LATENCY_MAX_NS: u64 = 1_000_000_000;
/// The least bandwidth: 1 MiB takes 16 seconds then.
const BANDWIDTH_MIN: u64 = 64 << 10;
/// The deepest queue.
const DEPTH_MAX: u32 = 1024;

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const MB: u64 = 1_000_000;

/// A disk of 7,200 revolutions a minute: a seek and half a revolution between places.
const HDD: Figures = Figures {
    read_latency_ns: 100 * US,
    write_latency_ns: 100 * US,
    sync_latency_ns: 8 * MS,
    seek_ns: 12 * MS,
    read_bandwidth: 200 * MB,
    write_bandwidth: 200 * MB,
    depth: 1,
};
const SATA_SSD: Figures = Figures {
    read_latency_ns: 120 * US,
    write_latency_ns: 60 * US,
    sync_latency_ns: 800 * US,
    seek_ns: 0,
    read_bandwidth: 540 * MB,
    write_bandwidth: 500 * MB,
    depth: 32,
};
const NVME: Figures = Figures {
    read_latency_ns: 75 * US,
    write_latency_ns: 18 * US,
    sync_latency_ns: 300 * US,
    seek_ns: 0,
    read_bandwidth: 3200 * MB,
    write_bandwidth: 2500 * MB,
    depth: 128,
};
const PMEM: Figures = Figures {
    read_latency_ns: 300,
    write_latency_ns: 100,
    sync_latency_ns: US,
    seek_ns: 0,
    read_bandwidth: 6600 * MB,
    write_bandwidth: 2300 * MB,
    depth: 16,
};

/// The device.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Settings {
    pub(super) figures: Figures,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Hdd,
    SataSsd,
    Nvme,
    Pmem,
}

/// Settings as a stack file gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    device: Kind,
    read_latency: Option<String>,
    write_latency: Option<String>,
    sync_latency: Option<String>,
    seek: Option<String>,
    read_bandwidth: Option<String>,
    write_bandwidth: Option<String>,
    depth: Option<u32>,
}

impl TryFrom<Given> for Settings {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        let mut figures = match given.device {
            Kind::Hdd => HDD,
            Kind::SataSsd => SATA_SSD,
            Kind::Nvme => NVME,
            Kind::Pmem => PMEM,
        };
        for (key, text, figure) in [
            ("read_latency", given.read_latency, &mut figures.read_latency_ns),
            ("write_latency", given.write_latency, &mut figures.write_latency_ns),
            ("sync_latency", given.sync_latency, &mut figures.sync_latency_ns),
            ("seek", given.seek, &mut figures.seek_ns),
        ] {
            if let Some(text) = text {
                let nanos = parse_duration(&text).ok().filter(|nanos| *nanos <= LATENCY_MAX_NS);
                *figure = nanos.ok_or_else(|| format!("{key}: '{text}' is not from 0ns to 1s"))?;
            }
        }
        for (key, text, figure) in [
            ("read_bandwidth", given.read_bandwidth, &mut figures.read_bandwidth),
            ("write_bandwidth", given.write_bandwidth, &mut figures.write_bandwidth),
        ] {
            if let Some(text) = text {
                let rate = parse_rate(&text).map_err(|advice| format!("{key}: '{text}': {advice}"))?;
                *figure = Some(rate)
                    .filter(|rate| *rate >= BANDWIDTH_MIN)
                    .ok_or_else(|| format!("{key}: '{text}' is less than 64KiB/s"))?;
            }
        }
        if let Some(depth) = given.depth {
            if !(1..=DEPTH_MAX).contains(&depth) {
                return Err(format!("depth: {depth} is not from 1 to {DEPTH_MAX}"));
            }
            figures.depth = depth as usize;
        }
        Ok(Self { figures })
    }
}
