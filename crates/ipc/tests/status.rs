//! The state of a tier on the wire: names that scripts and peers of other
//! versions rely on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_ipc::protocol::{TierState, TierStatus};
use serde_json::Value;

/// A tier with all fields known.
const TIER: &str = r#"{
    "id": 1,
    "name": "slow",
    "location": "/mnt/slow",
    "home": false,
    "state": "failing",
    "trouble": { "error": "EIO", "seconds": 1.5 },
    "durable": true,
    "faults": ["error write"],
    "weight": 60.0,
    "reserve": 1,
    "readonly": false,
    "draining": false,
    "total": 10,
    "free": 5,
    "available": 4,
    "used": 5,
    "ranges": 2,
    "errors": { "io": 3 },
    "read_bytes": 1,
    "read_ops": 2,
    "write_bytes": 3,
    "write_ops": 4,
    "read_rate": 1.0,
    "write_rate": 2.0,
    "read_bandwidth": 120.0,
    "write_bandwidth": null,
    "speed_basis": "last-mount",
    "speed_age": 60,
    "read_latency_ns": { "ops": 4, "mean": 10, "p50": 8, "p99": 30 },
    "write_latency_ns": { "ops": 4, "mean": 10, "p50": 8, "p99": 30 },
    "read_latency_total_ns": { "ops": 4, "mean": 10, "p50": 8, "p99": 30 },
    "write_latency_total_ns": { "ops": 4, "mean": 10, "p50": 8, "p99": 30 },
    "read_latency_histogram_ns": { "sum": 40, "buckets": [{ "below": 8192, "ops": 3 }, { "below": null, "ops": 1 }] },
    "write_latency_histogram_ns": { "sum": 40, "buckets": [{ "below": 8192, "ops": 3 }, { "below": null, "ops": 1 }] },
    "in_flight": 0.5,
    "threads": 1,
    "busiest_threads": [{
        "thread": 7,
        "program": "cp",
        "read_rate": 1.0,
        "write_rate": 2.0,
        "read_op_rate": 3.0,
        "write_op_rate": 4.0,
        "read_latency_ns": 5,
        "write_latency_ns": 6,
        "in_flight": 0.5
    }],
    "mover_rate": 1.0,
    "mover_limit": null,
    "device": { "name": "sda", "read_rate": 1.0, "write_rate": 2.0, "in_flight": 1, "busy": 0.5 }
}"#;

fn tier() -> Value {
    serde_json::from_str(TIER).unwrap()
}

#[test]
fn every_field_goes_by_its_name_and_comes_back() {
    let read: TierStatus = serde_json::from_value(tier()).unwrap();
    assert_eq!((read.read_latency_ns.p99_ns, read.busiest_threads[0].write_latency_ns), (30, 6));
    assert_eq!(serde_json::to_value(&read).unwrap(), tier());
    let numbered = TierStatus { device_number: 9, ..read };
    assert_eq!(serde_json::to_value(&numbered).unwrap(), tier(), "a number of this machine is not sent");
}

#[test]
fn each_state_is_the_word_that_it_is_shown_as() {
    use TierState::{Absent, Draining, Failing, Full, Hanging, Online, ReadOnly, SetReadOnly};
    for state in [Online, Full, Draining, SetReadOnly, ReadOnly, Failing, Hanging, Absent] {
        assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        assert!(TierState::NAMES.contains(&state.name()), "{state}");
    }
    for name in TierState::NAMES {
        let state: TierState = serde_json::from_value(name.into()).unwrap();
        assert_eq!(state.name(), name);
    }
}
