//! The settings of the throttle: clients, and the limits of all and of each.

use super::who::By;
use braid_contract::units::parse_rate;
use serde::Deserialize;
use std::collections::HashMap;

/// The least bandwidth: a request of 1 MiB takes 16 seconds then.
const BANDWIDTH_MIN: u64 = 64 << 10;
const WEIGHTS: [f64; 2] = [0.01, 1000.0];

/// The limits of a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Limits {
    /// Bytes read and written.
    pub(super) bandwidth: Option<f64>,
    /// Operations of any kind.
    pub(super) operations: Option<f64>,
}

impl Limits {
    pub(super) fn is_any(self) -> bool {
        self.bandwidth.is_some() || self.operations.is_some()
    }
}

/// Clients, limits and weights.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Settings {
    pub(super) by: By,
    /// For all clients together, who share it.
    pub(super) all: Limits,
    /// For each client.
    pub(super) each: Limits,
    /// By the client's name; 1 for the others.
    pub(super) weights: HashMap<String, f64>,
}

/// Settings as a stack file gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    by: By,
    bandwidth: Option<String>,
    operations: Option<String>,
    each: Option<String>,
    each_operations: Option<String>,
    weights: Option<HashMap<String, f64>>,
}

impl TryFrom<Given> for Settings {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        let Given { by, bandwidth, operations, each, each_operations, weights } = given;
        let limits = |bytes: (&str, Option<String>), count: (&str, Option<String>)| {
            let bandwidth = bytes.1.map(|text| rate(bytes.0, &text)).transpose()?;
            let operations = count.1.map(|text| frequency(count.0, &text)).transpose()?;
            Ok::<_, String>(Limits { bandwidth, operations })
        };
        let all = limits(("bandwidth", bandwidth), ("operations", operations))?;
        let each = limits(("each", each), ("each_operations", each_operations))?;
        let needed = "write 'bandwidth', 'operations', 'each' or 'each_operations'";
        if !(all.is_any() || each.is_any()) {
            return Err(format!("nothing is limited: {needed}"));
        }
        for (name, one, total) in
            [("each", each.bandwidth, all.bandwidth), ("each_operations", each.operations, all.operations)]
        {
            if one.zip(total).is_some_and(|(one, total)| one >= total) {
                return Err(format!(
                    "{name}: one client gets no more than all together: write less, or leave it out"
                ));
            }
        }
        if weights.is_some() && !all.is_any() {
            return Err("weights: nothing is shared without 'bandwidth' or 'operations'".to_owned());
        }
        let weights = weights.unwrap_or_default();
        weights.iter().try_for_each(|(name, weight)| check_weight(by, name, *weight))?;
        Ok(Self { by, all, each, weights })
    }
}

fn rate(key: &str, text: &str) -> Result<f64, String> {
    let bytes = parse_rate(text).map_err(|why| format!("{key}: '{text}': {why}"))?;
    if bytes < BANDWIDTH_MIN {
        return Err(format!("{key}: '{text}' is less than 64KiB/s, by which a single request takes 16 s"));
    }
    Ok(bytes as f64)
}

fn frequency(key: &str, text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim_end().parse::<u32>();
    let number = number.ok().filter(|number| *number > 0);
    number
        .map(f64::from)
        .ok_or_else(|| format!("{key}: '{text}' is no whole number above 0 a second, as 500/s"))
}

fn check_weight(by: By, name: &str, weight: f64) -> Result<(), String> {
    let [least, most] = WEIGHTS;
    if !(least..=most).contains(&weight) {
        return Err(format!("weights: {name}: {weight} is not from {least} to {most}"));
    }
    let is_client = match by {
        By::Uid | By::Gid => name.parse::<u32>().is_ok(),
        By::Cgroup => name.starts_with('/'),
        By::Process => return Err("weights: processes have no lasting names: use another 'by'".to_owned()),
    };
    if is_client {
        return Ok(());
    }
    Err(match by {
        By::Cgroup => {
            format!("weights: '{name}' is no cgroup: write its path, as in /proc/PID/cgroup after '::'")
        }
        _ => format!("weights: '{name}' is no id: write a number"),
    })
}
