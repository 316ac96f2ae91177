//! Every metric: its name, its meaning and its value in the status of a volume.
//! The table in `docs/metrics.md` has the same. Evaluated for each scrape.

use super::modules;
use crate::process::Process;
use braid_contract::JobState;
use braid_ipc::protocol::{Device, Job, LatencyHistogram, MoveCount, Status, TierState, TierStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// Every state of a job.
const JOB_STATES: [JobState; 7] = [
    JobState::Queued,
    JobState::Running,
    JobState::Paused,
    JobState::Idle,
    JobState::Done,
    JobState::Failed,
    JobState::Cancelled,
];

/// The facts that one scrape shows.
#[derive(Debug)]
struct Snapshot {
    volume: Status,
    jobs: Vec<Job>,
    /// The daemon's process, if `/proc` is readable.
    process: Option<Process>,
}

/// The labels of a sample.
type Labels = Vec<(&'static str, String)>;

/// Samples of one metric, each with its labels.
type Samples<T = f64> = Vec<(Labels, T)>;

/// One metric.
struct Metric {
    /// Without the `_total` of a counter.
    name: &'static str,
    /// Without a full stop at the end.
    help: &'static str,
    values: Values,
}

/// The values of a metric.
enum Values {
    /// A gauge.
    Gauge(fn(&Snapshot) -> Samples),
    /// A counter.
    Counter(fn(&Snapshot) -> Samples),
    /// Latencies.
    Histogram(fn(&Snapshot) -> Samples<&LatencyHistogram>),
}

/// The metrics of a volume in this state, in the OpenMetrics text format.
pub(crate) fn exposition(volume: Status, jobs: Vec<Job>) -> Result<String, String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot { volume, jobs, process: Process::look() }));
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(|error| error.to_string())?;
    Ok(text)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in metrics() {
            let kind = match metric.values {
                Values::Gauge(_) => MetricType::Gauge,
                Values::Counter(_) => MetricType::Counter,
                Values::Histogram(_) => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            match metric.values {
                Values::Gauge(samples) => {
                    for (labels, value) in samples(self) {
                        match labels.is_empty() {
                            true => family.encode_gauge(&value)?,
                            false => family.encode_family(&labels)?.encode_gauge(&value)?,
                        }
                    }
                }
                Values::Counter(samples) => {
                    for (labels, value) in samples(self) {
                        match labels.is_empty() {
                            true => family.encode_counter::<Labels, _, f64>(&value, None)?,
                            false => {
                                family
                                    .encode_family(&labels)?
                                    .encode_counter::<Labels, _, f64>(&value, None)?;
                            }
                        }
                    }
                }
                Values::Histogram(samples) => {
                    for (labels, histogram) in samples(self) {
                        encode_histogram(&mut family.encode_family(&labels)?, histogram)?;
                    }
                }
            }
        }
        modules::encode(&self.volume, &mut encoder)
    }
}

fn encode_histogram(sample: &mut MetricEncoder<'_>, histogram: &LatencyHistogram) -> fmt::Result {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let bound = |below: Option<u64>| below.map_or(f64::INFINITY, seconds);
    let buckets: Vec<(f64, u64)> =
        histogram.buckets.iter().map(|bucket| (bound(bucket.below_ns), bucket.ops)).collect();
    let ops = buckets.iter().map(|(_, ops)| ops).sum();
    sample.encode_histogram::<Labels>(seconds(histogram.sum_ns), ops, &buckets, None)
}

fn metrics() -> impl Iterator<Item = Metric> {
    of_volume()
        .into_iter()
        .chain(of_tiers())
        .chain(of_traffic())
        .chain(of_zones())
        .chain(of_devices())
        .chain(of_process())
}

fn counter(name: &'static str, help: &'static str, samples: fn(&Snapshot) -> Samples) -> Metric {
    Metric { name, help, values: Values::Counter(samples) }
}

fn gauge(name: &'static str, help: &'static str, samples: fn(&Snapshot) -> Samples) -> Metric {
    Metric { name, help, values: Values::Gauge(samples) }
}

fn histogram(
    name: &'static str,
    help: &'static str,
    samples: fn(&Snapshot) -> Samples<&LatencyHistogram>,
) -> Metric {
    Metric { name, help, values: Values::Histogram(samples) }
}

fn of_volume() -> Vec<Metric> {
    vec![
        gauge("braid_build_info", "Version of the daemon; always 1", |snapshot| {
            vec![(vec![("version", snapshot.volume.version.clone())], 1.0)]
        }),
        gauge("braid_volume_info", "Where the volume is mounted, and its policy; always 1", |snapshot| {
            let mut labels = volume(snapshot);
            labels.push(("mountpoint", snapshot.volume.mountpoint.clone()));
            labels.push(("policy", snapshot.volume.policy.clone()));
            vec![(labels, 1.0)]
        }),
        gauge("braid_uptime_seconds", "Time since the mount", |snapshot| {
            vec![(volume(snapshot), snapshot.volume.uptime_seconds)]
        }),
        gauge(
            "braid_range_size_bytes",
            "Size of a range, of files that no rule gives another one",
            |snapshot| whole(snapshot, snapshot.volume.range_size.into()),
        ),
        gauge("braid_open_files", "Files that are open", |snapshot| {
            whole(snapshot, snapshot.volume.open_files)
        }),
        gauge("braid_known_inodes", "Inodes held in memory", |snapshot| {
            whole(snapshot, snapshot.volume.known_inodes)
        }),
        gauge("braid_pending_removals", "Removed files whose space is not given back yet", |snapshot| {
            whole(snapshot, snapshot.volume.pending_removals)
        }),
        gauge(
            "braid_lost_tiers",
            "Tiers that were lost and replaced, of which files may miss ranges",
            |snapshot| whole(snapshot, snapshot.volume.lost_tiers.len() as u64),
        ),
        counter("braid_thread_remaps", "Threads that the policy mapped to another tier", |snapshot| {
            let remaps = snapshot.volume.remaps.into_iter();
            remaps.map(|remaps| (volume(snapshot), remaps as f64)).collect()
        }),
        gauge("braid_jobs", "Jobs that are known, movers among them, by how they are", jobs),
        counter("braid_move_bytes", "Bytes that movers moved since the mount", |snapshot| {
            moves(snapshot, |moved| moved.bytes)
        }),
        counter("braid_move_ranges", "Ranges that movers moved since the mount", |snapshot| {
            moves(snapshot, |moved| moved.ranges)
        }),
    ]
}

fn of_tiers() -> Vec<Metric> {
    vec![
        gauge("braid_tier_state", "1 for the state that the tier is in, 0 for the others", states),
        counter("braid_errors", "Errors that the tier answered since the mount, by kind", errors),
        gauge("braid_tier_home", "1 for the tier that holds the namespace, else 0", |snapshot| {
            tiers(snapshot, |tier| f64::from(u8::from(tier.home)))
        }),
        gauge(
            "braid_tier_durable",
            "1 if what was synced to the tier survives power loss, else 0",
            |snapshot| tiers(snapshot, |tier| f64::from(u8::from(tier.durable))),
        ),
        gauge("braid_tier_capacity_bytes", "Size of the file system beneath", |snapshot| {
            tiers(snapshot, |tier| tier.total as f64)
        }),
        gauge("braid_tier_free_bytes", "Free space of the file system beneath", |snapshot| {
            tiers(snapshot, |tier| tier.free as f64)
        }),
        gauge("braid_tier_available_bytes", "Space that Braid may still use", |snapshot| {
            tiers(snapshot, |tier| tier.available as f64)
        }),
        gauge("braid_tier_reserve_bytes", "Space that Braid leaves free", |snapshot| {
            tiers(snapshot, |tier| tier.reserve as f64)
        }),
        gauge("braid_tier_ranges", "Ranges of spread files on the tier", |snapshot| {
            tiers(snapshot, |tier| tier.ranges as f64)
        }),
        gauge(
            "braid_tier_weight",
            "Share of the tier when ranges are dealt by weight, in MB/s; 0 if not known",
            |snapshot| tiers(snapshot, |tier| tier.weight),
        ),
    ]
}

fn of_traffic() -> Vec<Metric> {
    vec![
        counter("braid_tier_read_bytes", "Bytes read since the mount", |snapshot| {
            tiers(snapshot, |tier| tier.read_bytes as f64)
        }),
        counter("braid_tier_write_bytes", "Bytes written since the mount", |snapshot| {
            tiers(snapshot, |tier| tier.write_bytes as f64)
        }),
        gauge(
            "braid_tier_read_bandwidth_bytes_per_second",
            "The most that the tier is known to read, as calibrated or learned",
            |snapshot| each(snapshot, |tier| tier.read_bandwidth),
        ),
        gauge(
            "braid_tier_write_bandwidth_bytes_per_second",
            "The most that the tier is known to write, as calibrated or learned",
            |snapshot| each(snapshot, |tier| tier.write_bandwidth),
        ),
        counter("braid_tier_read_operations", "Reads since the mount", |snapshot| {
            tiers(snapshot, |tier| tier.read_ops as f64)
        }),
        counter("braid_tier_write_operations", "Writes since the mount", |snapshot| {
            tiers(snapshot, |tier| tier.write_ops as f64)
        }),
        histogram(
            "braid_tier_read_latency_seconds",
            "Time that each read for applications took since the mount",
            |snapshot| latencies(snapshot, |tier| &tier.read_latency_histogram_ns),
        ),
        histogram(
            "braid_tier_write_latency_seconds",
            "Time that each write for applications took since the mount",
            |snapshot| latencies(snapshot, |tier| &tier.write_latency_histogram_ns),
        ),
        gauge(
            "braid_tier_in_flight",
            "Operations for applications under way at a time, on average",
            |snapshot| tiers(snapshot, |tier| tier.in_flight),
        ),
        gauge("braid_tier_threads", "Threads of applications that use the tier", |snapshot| {
            tiers(snapshot, |tier| f64::from(tier.threads))
        }),
        gauge(
            "braid_tier_mover_bytes_per_second",
            "Bytes a second that movers and jobs read and write",
            |snapshot| tiers(snapshot, |tier| tier.mover_rate),
        ),
        gauge(
            "braid_tier_mover_limit_bytes_per_second",
            "Bytes a second that movers and jobs may come to; told while there is a cap",
            |snapshot| each(snapshot, |tier| tier.mover_limit),
        ),
    ]
}

fn of_zones() -> Vec<Metric> {
    vec![
        gauge("braid_zones", "Zones of a zoned tier, by what they are", |snapshot| {
            let mut samples = Samples::new();
            for tier in &snapshot.volume.tiers {
                let Some(zones) = &tier.zones else { continue };
                let counts = [
                    ("free", zones.free),
                    ("open", zones.open),
                    ("mixed", zones.mixed),
                    ("failed", zones.failed),
                    ("all", zones.zones),
                ];
                for (state, count) in counts {
                    let mut labels = of_tier(snapshot, tier);
                    labels.push(("state", state.to_owned()));
                    samples.push((labels, count.into()));
                }
            }
            samples
        }),
        counter("braid_zone_data_bytes", "Bytes of new data that were written to zones", |snapshot| {
            each(snapshot, |tier| tier.zones.as_ref().map(|zones| zones.data_bytes as f64))
        }),
        counter("braid_zone_moved_bytes", "Bytes that were moved to empty zones", |snapshot| {
            each(snapshot, |tier| tier.zones.as_ref().map(|zones| zones.moved_bytes as f64))
        }),
        counter("braid_zone_index_bytes", "Bytes that the index of a zoned tier took", |snapshot| {
            each(snapshot, |tier| tier.zones.as_ref().map(|zones| zones.index_bytes as f64))
        }),
        counter("braid_zone_gc_seconds", "Time in which zones were emptied", |snapshot| {
            each(snapshot, |tier| tier.zones.as_ref().map(|zones| zones.gc_ns as f64 / 1e9))
        }),
        counter("braid_zone_gc_waits", "Writes that waited for zones to be emptied", |snapshot| {
            each(snapshot, |tier| tier.zones.as_ref().map(|zones| zones.gc_waits as f64))
        }),
        gauge(
            "braid_zone_gc_longest_wait_seconds",
            "Time that a write waited for that at most",
            |snapshot| {
                each(snapshot, |tier| tier.zones.as_ref().map(|zones| zones.gc_longest_wait_ns as f64 / 1e9))
            },
        ),
        gauge("braid_zone_memory_bytes", "Memory for data that is not in zones yet", |snapshot| {
            each(snapshot, |tier| tier.zones.as_ref().map(|zones| zones.memory_bytes as f64))
        }),
        gauge("braid_zone_stream_bytes", "Bytes of use in the zones of a stream", |snapshot| {
            let mut samples = Samples::new();
            for tier in &snapshot.volume.tiers {
                for stream in tier.zones.iter().flat_map(|zones| &zones.streams) {
                    let mut labels = of_tier(snapshot, tier);
                    labels.push(("stream", stream.name.clone()));
                    samples.push((labels, stream.bytes as f64));
                }
            }
            samples
        }),
        gauge(
            "braid_zone_stream_placement",
            "Number under which the device places what is written of a stream, where it has one",
            |snapshot| {
                let mut samples = Samples::new();
                for tier in &snapshot.volume.tiers {
                    for stream in tier.zones.iter().flat_map(|zones| &zones.streams) {
                        let Some(placement) = stream.placement else { continue };
                        let mut labels = of_tier(snapshot, tier);
                        labels.push(("stream", stream.name.clone()));
                        samples.push((labels, placement.into()));
                    }
                }
                samples
            },
        ),
    ]
}

fn of_devices() -> Vec<Metric> {
    vec![
        gauge(
            "braid_device_read_bytes_per_second",
            "Bytes that everybody reads from the device beneath a tier",
            |snapshot| devices(snapshot, |device| device.read_rate),
        ),
        gauge(
            "braid_device_write_bytes_per_second",
            "Bytes that everybody writes to the device beneath a tier",
            |snapshot| devices(snapshot, |device| device.write_rate),
        ),
        gauge("braid_device_in_flight", "Operations under way on the device", |snapshot| {
            devices(snapshot, |device| device.in_flight as f64)
        }),
        gauge(
            "braid_device_busy_ratio",
            "Share of time in which the device is at something, 0 to 1",
            |snapshot| devices(snapshot, |device| device.busy),
        ),
    ]
}

/// Prometheus uses these names for all processes.
fn of_process() -> Vec<Metric> {
    vec![
        counter(
            "process_cpu_seconds",
            "Time that the daemon was at work, in user and system mode",
            |snapshot| process(snapshot, |process| process.cpu_seconds),
        ),
        gauge("process_start_time_seconds", "When the daemon started, in seconds since 1970", |snapshot| {
            process(snapshot, |process| process.start_time_seconds)
        }),
        gauge("process_resident_memory_bytes", "Memory of the daemon that is in use", |snapshot| {
            process(snapshot, |process| process.resident_bytes as f64)
        }),
        gauge("process_virtual_memory_bytes", "Address space of the daemon that is mapped", |snapshot| {
            process(snapshot, |process| process.virtual_bytes as f64)
        }),
        gauge("process_open_fds", "Descriptors that the daemon has open", |snapshot| {
            process(snapshot, |process| process.open_fds as f64)
        }),
        gauge("process_max_fds", "Descriptors that the daemon may have open", |snapshot| {
            process(snapshot, |process| process.max_fds as f64)
        }),
        gauge("process_threads", "Threads of the daemon", |snapshot| {
            process(snapshot, |process| process.threads as f64)
        }),
    ]
}

fn process(snapshot: &Snapshot, value: fn(&Process) -> f64) -> Samples {
    snapshot.process.iter().map(|process| (Labels::new(), value(process))).collect()
}

fn volume(snapshot: &Snapshot) -> Labels {
    vec![("volume", snapshot.volume.volume.clone())]
}

fn of_tier(snapshot: &Snapshot, tier: &TierStatus) -> Labels {
    let mut labels = volume(snapshot);
    labels.push(("tier", tier.name.clone()));
    labels
}

/// One sample of the whole volume.
fn whole(snapshot: &Snapshot, value: u64) -> Samples {
    vec![(volume(snapshot), value as f64)]
}

/// A sample of each tier.
fn tiers(snapshot: &Snapshot, value: fn(&TierStatus) -> f64) -> Samples {
    snapshot.volume.tiers.iter().map(|tier| (of_tier(snapshot, tier), value(tier))).collect()
}

/// A sample of each tier that has one.
fn each(snapshot: &Snapshot, value: fn(&TierStatus) -> Option<f64>) -> Samples {
    snapshot.volume.tiers.iter().filter_map(|tier| Some((of_tier(snapshot, tier), value(tier)?))).collect()
}

fn states(snapshot: &Snapshot) -> Samples {
    let of = |tier: &TierStatus| {
        TierState::NAMES.map(|state| {
            let mut labels = of_tier(snapshot, tier);
            labels.push(("state", state.into()));
            (labels, f64::from(u8::from(tier.state.name() == state)))
        })
    };
    snapshot.volume.tiers.iter().flat_map(of).collect()
}

fn errors(snapshot: &Snapshot) -> Samples {
    let of = |tier: &TierStatus| {
        let labels = |kind: &String| {
            let mut labels = of_tier(snapshot, tier);
            labels.push(("kind", kind.clone()));
            labels
        };
        tier.errors.iter().map(|(kind, count)| (labels(kind), *count as f64)).collect::<Samples>()
    };
    snapshot.volume.tiers.iter().flat_map(of).collect()
}

/// The histogram of each tier.
fn latencies(snapshot: &Snapshot, of: fn(&TierStatus) -> &LatencyHistogram) -> Samples<&LatencyHistogram> {
    snapshot.volume.tiers.iter().map(|tier| (of_tier(snapshot, tier), of(tier))).collect()
}

fn moves(snapshot: &Snapshot, value: fn(&MoveCount) -> u64) -> Samples {
    let of = |moved: &MoveCount| {
        let mut labels = volume(snapshot);
        labels.extend([
            ("mover", moved.mover.clone()),
            ("from", moved.from.clone()),
            ("to", moved.to.clone()),
            ("reason", moved.reason.clone()),
        ]);
        (labels, value(moved) as f64)
    };
    snapshot.volume.moves.iter().map(of).collect()
}

fn jobs(snapshot: &Snapshot) -> Samples {
    let of = |state: JobState| {
        let mut labels = volume(snapshot);
        labels.push(("state", state.name().into()));
        (labels, snapshot.jobs.iter().filter(|job| job.state == state).count() as f64)
    };
    JOB_STATES.map(of).into()
}

fn devices(snapshot: &Snapshot, value: fn(&Device) -> f64) -> Samples {
    let of = |tier: &TierStatus| {
        let device = tier.device.as_ref()?;
        let mut labels = of_tier(snapshot, tier);
        labels.push(("device", device.name.clone()));
        Some((labels, value(device)))
    };
    snapshot.volume.tiers.iter().filter_map(of).collect()
}
