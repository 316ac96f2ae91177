//! Metrics of a mount, read as Prometheus does, against the document and the
//! dashboard. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern, read_anew, write_ranges};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Every module with figures of its own, above the volume.
const MODULES: &str = "
  metrics:
   provenance:
    deny:
     paths: [ never ]
     permissions:
      rules: [ { paths: [ never ], deny: [ read ] } ]
      throttle:
       by: uid
       bandwidth: 100GiB/s
       model:
        device: pmem
        consistency:
         mode: relaxed
         checksum:";

/// A metric: its type, its meaning, and the labels of its samples.
#[derive(Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

fn docs(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(path).unwrap()
}

/// The body of the answer to a scrape.
fn scrape(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: braid\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    body.to_owned()
}

/// Metrics by the name of their samples.
fn served(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap().1;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let name = format!("{name}{}", if kind == "counter" { "_total" } else { "" });
            let metric = Metric { kind: kind.into(), help: help.into(), labels: BTreeSet::new() };
            assert!(metrics.insert(name, metric).is_none(), "{line}");
        } else if let Some((name, rest)) = line.split_once('{') {
            let labels = rest.rsplit_once('}').unwrap().0;
            let keys = labels.split("\",").map(|label| label.split_once('=').unwrap().0.to_owned());
            let name = metric_of(name, &metrics);
            metrics.get_mut(&name).unwrap_or_else(|| panic!("{line}")).labels.extend(keys);
        }
    }
    metrics
}

/// The metric of samples with this name: a histogram has three.
fn metric_of(sample: &str, metrics: &BTreeMap<String, Metric>) -> String {
    let base = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| sample.strip_suffix(suffix));
    let is_histogram = |base: &&str| metrics.get(*base).is_some_and(|metric| metric.kind == "histogram");
    base.filter(is_histogram).unwrap_or(sample).to_owned()
}

/// Metrics in the document.
fn documented() -> BTreeMap<String, Metric> {
    let text = docs("metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter(|row| row.starts_with("braid_") || row.starts_with("process_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let labels = cells[2].split(", ").map(|label| label.trim_matches('`').to_owned());
        let name = cells[0].trim_end_matches('`').to_owned();
        let help = cells[3].trim_end_matches(" |").to_owned();
        (name, Metric { kind: cells[1].into(), help, labels: labels.collect() })
    })
    .collect()
}

/// The metrics that an expression names.
fn metrics_in(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("braid_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// The metrics that a dashboard's expressions name.
fn named_in(dashboard: &serde_json::Value, names: &mut BTreeSet<String>) {
    match dashboard {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                if let (true, Some(text)) = (key == "expr" || key == "query", value.as_str()) {
                    names.extend(metrics_in(text));
                }
                named_in(value, names);
            }
        }
        serde_json::Value::Array(array) => array.iter().for_each(|value| named_in(value, names)),
        _ => {}
    }
}

/// Metrics of a log file system, which are not among those of a volume.
fn of_a_log() -> BTreeMap<String, Metric> {
    let bench = Bench::bare(&["m"]).unwrap();
    bench.ok(&["log", "create", "fs", "--size", "16MiB"]);
    let socket = bench.path("metrics.sock");
    let address = format!("unix:{}", socket.display());
    bench.ok(&["log", "mount", "--metrics", &address, "--log-file", "log", "fs", "m"]);
    fs::write(bench.path("m/f"), "data").unwrap();
    let mut served = served(&scrape(UnixStream::connect(&socket).unwrap()));
    served.retain(|name, _| name.starts_with("braid_module_log_"));
    bench.ok(&["umount", "m"]);
    served
}

/// Metrics of a view, which has neither.
fn of_a_view() -> BTreeMap<String, Metric> {
    let bench = Bench::bare(&["m", "v"]).unwrap();
    bench.ok(&["log", "create", "fs", "--size", "16MiB"]);
    bench.ok(&["log", "mount", "--runtime", "--log-file", "log", "fs", "m"]);
    fs::write(bench.path("v.yaml"), "stack: { view: { of: m } }\n").unwrap();
    let socket = bench.path("metrics.sock");
    let address = format!("unix:{}", socket.display());
    let mounted = bench.as_written(&["mount", "--metrics", &address, "--log-file", "log", "v.yaml", "v"]);
    assert!(mounted.status.success(), "{mounted:?}");
    let mut served = served(&scrape(UnixStream::connect(&socket).unwrap()));
    served.retain(|name, _| name.starts_with("braid_module_view_"));
    ["v", "m"].iter().for_each(|point| _ = bench.ok(&["umount", point]));
    served
}

#[test]
fn what_is_served_is_documented_and_what_is_documented_is_served() {
    let Some(bench) = Bench::new() else { return };
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    let volume = text.split_once("    volume:\n").unwrap().1.replace("      ", "            ");
    let cache = "            cache: { memory: 1MiB }\n";
    bench.write_stack(&format!("stack:{MODULES}\n          volume:\n{cache}{volume}"));
    let socket = bench.path("metrics.sock");
    bench.ok(&["mount", "s.yaml", "m", "--metrics", &format!("unix:{}", socket.display())]);
    fs::write(bench.path("m/f"), vec![7; 1 << 20]).unwrap();
    let text = scrape(UnixStream::connect(&socket).unwrap());
    let (mut served, documented) = (served(&text), documented());
    served.extend(of_a_log());
    served.extend(of_a_view());
    let names = |metrics: &BTreeMap<String, Metric>| metrics.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&served), names(&documented));
    for (name, metric) in &served {
        let told = &documented[name];
        assert_eq!((&metric.kind, &metric.help), (&told.kind, &told.help), "{name}");
        // Events that have not happened yet have no samples.
        assert!(metric.labels.is_empty() || metric.labels == told.labels, "{name}: {metric:?}, {told:?}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    let written = values(&text, "braid_tier_write_bytes_total");
    assert!(written.iter().sum::<f64>() >= f64::from(1 << 20));

    let states = text.lines().filter(|line| line.starts_with("braid_tier_state{"));
    let of_slow: Vec<&str> = states.filter(|line| line.contains("tier=\"slow\"")).collect();
    assert_eq!(of_slow.iter().filter(|line| line.ends_with(" 1.0")).count(), 1, "{of_slow:?}");
    let alerts = docs("examples/braid-alerts.yaml");
    let expressions: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(expressions.len() >= 8, "{alerts}");
    for expression in expressions {
        let named = metrics_in(expression);
        assert!(!named.is_empty(), "{expression}");
        for name in named {
            assert!(served.contains_key(&metric_of(&name, &served)), "{name} is in an alert and not served");
        }
    }

    let mut shown = BTreeSet::new();
    named_in(&serde_json::from_str(&docs("examples/grafana.json")).unwrap(), &mut shown);
    assert!(shown.len() >= 10, "{shown:?}");
    for name in shown {
        assert!(served.contains_key(&metric_of(&name, &served)), "{name} is on the dashboard and not served");
    }
    bench.ok(&["umount", "m"]);
    assert!(!socket.exists(), "the socket was left");
}

/// The values of all samples of a metric.
fn values(text: &str, name: &str) -> Vec<f64> {
    let samples = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    samples.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
}

#[test]
fn every_metric_has_samples_once_what_it_tells_of_has_happened() {
    let Some(mut bench) = Bench::bare(&["c", "z", "m"]) else { return };
    bench.make_tmpfs("a", c"size=16m");
    bench.make_tmpfs("b", c"size=64m");
    let socket = bench.path("metrics.sock");
    bench.write_stack(&format!(
        "stack: {{ volume: {{ home: fast, range: 64KiB, profile: p.yaml, policy: {{ home-first: {{ watermark: 60% }} }},\n  \
         rules: [ {{ when: 'path == \"x\"', policy: dynamic }} ],\n  \
         tiers: {{ fast: {{ dir: a, weight: 9 }}, slow: {{ dir: b, weight: 3 }}, disk: {{ dir: c, weight: 1 }}, zns: {{ dir: z, weight: 1 }} }} }} }}\n\
         mount: {{ metrics: \"unix:{}\" }}\n",
        socket.display()
    ));
    bench.ok(&["zoned", "emulate", "z", "--zones", "16", "--zone-size", "1MiB"]);
    let figures = "{ bandwidth: 3000000, latency_ns: 1000, threads: 2 }";
    let tier = |name: &str| format!("  {name}: {{ read: {figures}, write: {figures} }}\n");
    let tiers: String = ["fast", "slow", "disk", "zns"].map(tier).concat();
    fs::write(bench.path("p.yaml"), format!("version: 1\ntiers:\n{tiers}")).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    // More than home takes: movers relieve it.
    for at in 0..12 {
        write_ranges(&bench.path(&format!("m/f{at}")), &pattern(at, 1 << 20));
    }
    bench.ok(&["move", "m/f1", "--to", "disk"]);
    bench.ok(&["move", "m/f2", "--to", "zns"]);
    let device = bench.tier("disk")["device"].is_object();
    let sample_of = |(name, metric): (String, Metric)| match &*metric.kind {
        "histogram" => name + "_bucket",
        _ => name,
    };
    let told = documented().into_iter().map(sample_of);
    // A device that places data is needed for it: `lab/zoned fdp` has one.
    let told = told.filter(|name| name != "braid_zone_stream_placement");
    // The stack has none.
    let told =
        told.filter(|name| !name.starts_with("braid_module_") || name.starts_with("braid_module_record"));
    let told: Vec<String> = told.filter(|name| device || !name.starts_with("braid_device_")).collect();
    let begun = Instant::now();
    let mut turn = 0;
    loop {
        // The performance of tiers is learned from their work.
        for at in [1, 2] {
            read_anew(&bench.path(&format!("m/f{at}")));
        }
        write_ranges(&bench.path("m/again"), &pattern(turn, 1 << 20));
        turn += 1;
        let text = scrape(UnixStream::connect(&socket).unwrap());
        let missing: Vec<&String> = told.iter().filter(|name| values(&text, name).is_empty()).collect();
        if missing.is_empty() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "no samples of {missing:?}: {text}");
    }
    let text = scrape(UnixStream::connect(&socket).unwrap());
    assert!(values(&text, "braid_move_ranges_total").iter().all(|ranges| *ranges > 0.0));
    // It begins with the calibrated figures.
    assert!(values(&text, "braid_tier_write_bandwidth_bytes_per_second").iter().all(|most| *most >= 3e6));
    let jobs =
        text.lines().find(|line| line.starts_with("braid_jobs{") && line.contains("\"done\"")).unwrap();
    assert!(jobs.ends_with(" 2.0"), "{jobs}");
    bench.unmount_clean();
}

/// The buckets of a histogram of one tier: bounds and counts.
fn buckets(text: &str, name: &str, tier: &str) -> Vec<(f64, f64)> {
    let mine = format!("tier=\"{tier}\"");
    let lines =
        text.lines().filter(|line| line.starts_with(&format!("{name}_bucket{{")) && line.contains(&mine));
    let parts = |line: &str| {
        let bound = line.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
        (bound.parse().unwrap(), line.rsplit_once(' ').unwrap().1.parse().unwrap())
    };
    lines.map(parts).collect()
}

#[test]
fn latencies_are_histograms_of_every_operation_since_the_mount() {
    let Some(bench) = Bench::new() else { return };
    let socket = bench.path("metrics.sock");
    bench.ok(&["mount", "s.yaml", "m", "--metrics", &format!("unix:{}", socket.display())]);
    write_ranges(&bench.path("m/f"), &pattern(1, 1 << 20));
    read_anew(&bench.path("m/f"));
    let text = scrape(UnixStream::connect(&socket).unwrap());
    let status = bench.json(&["status", "m", "--json"]);
    for tier in status["tiers"].as_array().unwrap() {
        for kind in ["read", "write"] {
            let name = format!("braid_tier_{kind}_latency_seconds");
            let found = buckets(&text, &name, tier["name"].as_str().unwrap());
            assert!(found.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{found:?}");
            assert!(found[0].0 <= 10e-6 && found[found.len() - 2].0 >= 10.0, "{found:?}");
            let (last, ops) = found[found.len() - 1];
            assert!(last.is_infinite() && ops > 0.0 && found.len() <= 24, "{found:?}");
            assert_eq!(tier[format!("{kind}_latency_total_ns")]["ops"].as_f64(), Some(ops), "{tier}");
            // The JSON has the same, not cumulative.
            let json = &tier[format!("{kind}_latency_histogram_ns")];
            let counts = json["buckets"].as_array().unwrap();
            let sums = counts.iter().scan(0.0, |sum, bucket| {
                *sum += bucket["ops"].as_f64().unwrap();
                Some((bucket["below"].as_f64().map_or(f64::INFINITY, |ns| ns / 1e9), *sum))
            });
            assert_eq!(sums.collect::<Vec<_>>(), found);
            // The mean is between the lowest and the highest bound.
            let mean = json["sum"].as_f64().unwrap() / ops / 1e9;
            let least =
                found.iter().take_while(|(_, count)| *count == 0.0).last().map_or(0.0, |(bound, _)| *bound);
            let most = found.iter().find(|(_, count)| *count == ops).unwrap().0;
            assert!((least..most).contains(&mean), "{mean}: {found:?}");
        }
    }
    let sums = values(&text, "braid_tier_write_latency_seconds_sum");
    let counts = values(&text, "braid_tier_write_latency_seconds_count");
    assert!(sums.len() == 2 && sums.iter().chain(&counts).all(|value| *value > 0.0), "{sums:?} {counts:?}");
    bench.unmount_clean();
}

#[test]
fn a_port_of_the_stack_file_is_served_and_the_flag_wins() {
    let Some(bench) = Bench::new() else { return };
    // Bound and released, so that it most likely is free.
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (first, second) = (port(), port());
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("p.yaml"), format!("{text}mount: {{ metrics: \"{first}\" }}\n")).unwrap();

    bench.ok(&["mount", "p.yaml", "m"]);
    assert!(scrape(TcpStream::connect(first).unwrap()).contains("braid_tier_home{"));
    bench.ok(&["umount", "m"]);
    assert!(TcpStream::connect(first).is_err());

    bench.ok(&["mount", "p.yaml", "m", "--metrics", &second.to_string()]);
    assert!(TcpStream::connect(first).is_err());
    assert!(scrape(TcpStream::connect(second).unwrap()).contains("braid_tier_home{"));
    bench.ok(&["umount", "m"]);
}

#[test]
fn an_address_that_others_reach_or_that_is_taken_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let (status, said) = bench.fails(&["mount", "s.yaml", "m", "--metrics", "0.0.0.0:9464"]);
    assert_eq!(status, 1);
    assert!(
        said.starts_with("braid: --metrics 0.0.0.0:9464: not an address of this machine\n  help: anyone on")
    );

    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("p.yaml"), format!("{text}mount: {{ metrics: 192.0.2.1:9464 }}\n")).unwrap();
    let (_, said) = bench.fails(&["mount", "p.yaml", "m"]);
    assert!(said.starts_with("braid: p.yaml:10: mount.metrics: found '192.0.2.1:9464', expected"), "{said}");

    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let (_, said) = bench.fails(&["mount", "s.yaml", "m", "--metrics", &taken]);
    assert!(said.starts_with(&format!("braid: --metrics {taken}: can't listen at {taken}: ")), "{said}");
    let empty = |name: &str| fs::read_dir(bench.path(name)).unwrap().next().is_none();
    assert!(empty("m") && empty("a") && empty("b"), "something was mounted or made");

    let file = bench.path("file");
    fs::write(&file, "mine").unwrap();
    let (_, said) = bench.fails(&["mount", "s.yaml", "m", "--metrics", &format!("unix:{}", file.display())]);
    assert!(said.contains("it exists and is not a socket"), "{said}");
    assert!(Path::new(&file).exists());
}

#[test]
fn a_tier_that_is_being_emptied_and_one_that_answers_errors_are_told_of() {
    let Some(bench) = Bench::new() else { return };
    let socket = bench.path("metrics.sock");
    bench.ok(&["mount", "s.yaml", "m", "--metrics", &format!("unix:{}", socket.display())]);
    write_ranges(&bench.path("m/f"), &pattern(1, 8 * RANGE));
    let sample = |name: &str, labels: &str| {
        let text = scrape(UnixStream::connect(&socket).unwrap());
        let line = text.lines().find(|line| line.starts_with(name) && line.contains(labels));
        line.unwrap_or_else(|| panic!("{name} {labels}: {text}"))
            .rsplit_once(' ')
            .unwrap()
            .1
            .parse::<f64>()
            .unwrap()
    };
    let draining = "tier=\"slow\",state=\"draining\"";
    assert_eq!(sample("braid_tier_state{", draining), 0.0);
    bench.ok(&["tier", "evacuate", "slow", "m"]);
    assert_eq!(sample("braid_tier_state{", draining), 1.0);
    bench.ok(&["tier", "evacuate", "slow", "--undo", "m"]);
    assert_eq!(sample("braid_errors_total{", "tier=\"slow\",kind=\"io\""), 0.0);
    bench.ok(&["drill", "slow", "write:EIO", "./m"]);
    // The first of them may or may not be reported.
    let file = fs::File::create(bench.path("m/g")).unwrap();
    for chunk in pattern(1, 16 * RANGE).chunks(RANGE) {
        let _ = (&file).write_all(chunk).and_then(|()| file.sync_data());
    }
    drop(file);
    assert!(sample("braid_errors_total{", "tier=\"slow\",kind=\"io\"") >= 1.0);
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    assert!(sample("braid_uptime_seconds{", "volume=") > 0.0);
    assert!(sample("process_resident_memory_bytes ", "") > 1e6);
    assert!(sample("process_open_fds ", "") < sample("process_max_fds ", ""));
    bench.ok(&["umount", "m"]);
}
