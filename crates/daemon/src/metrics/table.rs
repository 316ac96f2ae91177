//! Every metric: its name, what it is and where its value is in the status of a
//! volume. The one table of `docs/metrics.md` says the same. Called for each
//! scrape.

use braid_ipc::protocol::{Device, Latency, Status, TierStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// Every state that a tier may have, as the status calls it.
const STATES: [&str; 6] = ["online", "full", "read-only", "failing", "hanging", "absent"];

/// What is told about.
#[derive(Debug)]
struct Told(Status);

/// The labels of a sample.
type Labels = Vec<(&'static str, String)>;

/// Samples of one metric, each with its labels.
type Samples = Vec<(Labels, f64)>;

/// One metric.
struct Metric {
    /// Without the `_total` of a counter.
    name: &'static str,
    kind: MetricType,
    /// Without a full stop at the end.
    help: &'static str,
    samples: fn(&Status) -> Samples,
}

/// The metrics of a volume in this state, in the OpenMetrics text format.
pub(crate) fn exposition(status: Status) -> Result<String, String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Told(status)));
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(|error| error.to_string())?;
    Ok(text)
}

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in metrics() {
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, metric.kind)?;
            for (labels, value) in (metric.samples)(&self.0) {
                let mut sample = family.encode_family(&labels)?;
                match metric.kind {
                    MetricType::Counter => sample.encode_counter::<Labels, _, f64>(&value, None)?,
                    _ => sample.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }
}

fn metrics() -> impl Iterator<Item = Metric> {
    of_volume().into_iter().chain(of_tiers()).chain(of_traffic()).chain(of_devices())
}

fn counter(name: &'static str, help: &'static str, samples: fn(&Status) -> Samples) -> Metric {
    Metric { name, kind: MetricType::Counter, help, samples }
}

fn gauge(name: &'static str, help: &'static str, samples: fn(&Status) -> Samples) -> Metric {
    Metric { name, kind: MetricType::Gauge, help, samples }
}

fn of_volume() -> Vec<Metric> {
    vec![
        gauge("braid_build_info", "Version of the daemon; always 1", |status| {
            vec![(vec![("version", status.version.clone())], 1.0)]
        }),
        gauge("braid_volume_info", "Where the volume is mounted, and its policy; always 1", |status| {
            let mut labels = volume(status);
            labels.push(("mountpoint", status.mountpoint.clone()));
            labels.push(("policy", status.policy.clone()));
            vec![(labels, 1.0)]
        }),
        gauge("braid_range_size_bytes", "Size of a range", |status| whole(status, status.range_size.into())),
        gauge("braid_open_files", "Files that are open", |status| whole(status, status.open_files)),
        gauge("braid_known_inodes", "Inodes held in memory", |status| whole(status, status.known_inodes)),
        gauge("braid_pending_removals", "Removed files whose space is not given back yet", |status| {
            whole(status, status.pending_removals)
        }),
        gauge(
            "braid_lost_tiers",
            "Tiers that were lost and replaced, of which files may miss ranges",
            |status| whole(status, status.lost_tiers.len() as u64),
        ),
        counter("braid_move_bytes", "Bytes that movers moved since the mount", |status| {
            moves(status, |moved| moved.bytes)
        }),
        counter("braid_move_ranges", "Ranges that movers moved since the mount", |status| {
            moves(status, |moved| moved.ranges)
        }),
    ]
}

fn of_tiers() -> Vec<Metric> {
    vec![
        gauge("braid_tier_state", "1 for the state that the tier is in, 0 for the others", states),
        gauge("braid_tier_home", "1 for the tier that holds the namespace, else 0", |status| {
            tiers(status, |tier| f64::from(u8::from(tier.home)))
        }),
        gauge(
            "braid_tier_durable",
            "1 if what was synced to the tier survives power loss, else 0",
            |status| tiers(status, |tier| f64::from(u8::from(tier.durable))),
        ),
        gauge("braid_tier_capacity_bytes", "Size of the file system beneath", |status| {
            tiers(status, |tier| tier.total as f64)
        }),
        gauge("braid_tier_free_bytes", "Free space of the file system beneath", |status| {
            tiers(status, |tier| tier.free as f64)
        }),
        gauge("braid_tier_available_bytes", "Space that Braid may still use", |status| {
            tiers(status, |tier| tier.available as f64)
        }),
        gauge("braid_tier_reserve_bytes", "Space that Braid leaves free", |status| {
            tiers(status, |tier| tier.reserve as f64)
        }),
        gauge("braid_tier_ranges", "Ranges of spread files on the tier", |status| {
            tiers(status, |tier| tier.ranges as f64)
        }),
        gauge(
            "braid_tier_weight",
            "Share of the tier when ranges are dealt by weight, 0 if not known",
            |status| tiers(status, |tier| tier.weight),
        ),
    ]
}

fn of_traffic() -> Vec<Metric> {
    vec![
        counter("braid_tier_read_bytes", "Bytes read since the mount", |status| {
            tiers(status, |tier| tier.read_bytes as f64)
        }),
        counter("braid_tier_write_bytes", "Bytes written since the mount", |status| {
            tiers(status, |tier| tier.write_bytes as f64)
        }),
        counter("braid_tier_read_operations", "Reads since the mount", |status| {
            tiers(status, |tier| tier.read_ops as f64)
        }),
        counter("braid_tier_write_operations", "Writes since the mount", |status| {
            tiers(status, |tier| tier.write_ops as f64)
        }),
        gauge(
            "braid_tier_read_latency_seconds",
            "Time that reads for applications took within the last second, by quantile",
            |status| latencies(status, |tier| &tier.read_latency_ns),
        ),
        gauge(
            "braid_tier_write_latency_seconds",
            "Time that writes for applications took within the last second, by quantile",
            |status| latencies(status, |tier| &tier.write_latency_ns),
        ),
        counter(
            "braid_tier_read_seconds",
            "Time that reads for applications took since the mount",
            |status| tiers(status, |tier| spent(&tier.read_latency_total_ns)),
        ),
        counter(
            "braid_tier_write_seconds",
            "Time that writes for applications took since the mount",
            |status| tiers(status, |tier| spent(&tier.write_latency_total_ns)),
        ),
        gauge(
            "braid_tier_in_flight",
            "Operations for applications under way at a time, on average",
            |status| tiers(status, |tier| tier.in_flight),
        ),
        gauge("braid_tier_threads", "Threads of applications that use the tier", |status| {
            tiers(status, |tier| f64::from(tier.threads))
        }),
        gauge("braid_tier_mover_bytes_per_second", "Bytes a second that movers read and write", |status| {
            tiers(status, |tier| tier.mover_rate)
        }),
        gauge(
            "braid_tier_mover_limit_bytes_per_second",
            "Bytes a second that movers may come to; told while there is a cap",
            |status| each(status, |tier| tier.mover_limit),
        ),
    ]
}

fn of_devices() -> Vec<Metric> {
    vec![
        gauge(
            "braid_device_read_bytes_per_second",
            "Bytes that everybody reads from the device beneath a tier",
            |status| devices(status, |device| device.read_rate),
        ),
        gauge(
            "braid_device_write_bytes_per_second",
            "Bytes that everybody writes to the device beneath a tier",
            |status| devices(status, |device| device.write_rate),
        ),
        gauge("braid_device_in_flight", "Operations under way on the device", |status| {
            devices(status, |device| device.in_flight as f64)
        }),
        gauge(
            "braid_device_busy_ratio",
            "Share of time in which the device is at something, 0 to 1",
            |status| devices(status, |device| device.busy),
        ),
    ]
}

fn volume(status: &Status) -> Labels {
    vec![("volume", status.volume.clone())]
}

fn of_tier(status: &Status, tier: &TierStatus) -> Labels {
    let mut labels = volume(status);
    labels.push(("tier", tier.name.clone()));
    labels
}

/// One sample of the whole volume.
fn whole(status: &Status, value: u64) -> Samples {
    vec![(volume(status), value as f64)]
}

/// A sample of each tier.
fn tiers(status: &Status, value: fn(&TierStatus) -> f64) -> Samples {
    status.tiers.iter().map(|tier| (of_tier(status, tier), value(tier))).collect()
}

/// A sample of each tier that has one.
fn each(status: &Status, value: fn(&TierStatus) -> Option<f64>) -> Samples {
    status.tiers.iter().filter_map(|tier| Some((of_tier(status, tier), value(tier)?))).collect()
}

fn states(status: &Status) -> Samples {
    let of = |tier: &TierStatus| {
        STATES.map(|state| {
            let mut labels = of_tier(status, tier);
            labels.push(("state", state.into()));
            (labels, f64::from(u8::from(tier.state == state)))
        })
    };
    status.tiers.iter().flat_map(of).collect()
}

/// The quantiles of each tier that did anything.
fn latencies(status: &Status, latency: fn(&TierStatus) -> &Latency) -> Samples {
    let of = |tier: &TierStatus| {
        let latency = latency(tier);
        let quantiles = [("0.5", latency.p50), ("0.99", latency.p99)];
        quantiles
            .into_iter()
            .filter(|_| latency.ops > 0)
            .map(|(quantile, nanos)| {
                let mut labels = of_tier(status, tier);
                labels.push(("quantile", quantile.into()));
                (labels, nanos as f64 / 1e9)
            })
            .collect::<Vec<_>>()
    };
    status.tiers.iter().flat_map(of).collect()
}

/// Seconds of all operations together.
fn spent(latency: &Latency) -> f64 {
    latency.mean as f64 * latency.ops as f64 / 1e9
}

fn moves(status: &Status, value: fn(&braid_ipc::protocol::MoveCount) -> u64) -> Samples {
    let of = |moved: &braid_ipc::protocol::MoveCount| {
        let mut labels = volume(status);
        labels.extend([
            ("mover", moved.mover.clone()),
            ("from", moved.from.clone()),
            ("to", moved.to.clone()),
            ("reason", moved.reason.clone()),
        ]);
        (labels, value(moved) as f64)
    };
    status.moves.iter().map(of).collect()
}

fn devices(status: &Status, value: fn(&Device) -> f64) -> Samples {
    let of = |tier: &TierStatus| {
        let device = tier.device.as_ref()?;
        let mut labels = of_tier(status, tier);
        labels.push(("device", device.name.clone()));
        Some((labels, value(device)))
    };
    status.tiers.iter().filter_map(of).collect()
}
