//! Placement by the settings of a volume.

use crate::config::{Rule, VolumeSettings};
use crate::movers;
use braid_volume::PlacementConfig;

/// The placement of these settings.
pub(crate) fn placement(settings: &VolumeSettings) -> PlacementConfig {
    PlacementConfig {
        policy: settings.policy.value.clone(),
        rules: settings.rules.iter().map(Rule::config).collect(),
        hints: settings.hints.clone(),
        movers: movers::config(settings),
    }
}
