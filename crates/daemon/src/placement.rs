//! Where data goes, by the settings of a volume.

use crate::config::{Rule, VolumeSettings};
use crate::movers;
use braid_volume::PlacementConfig;

/// What the settings come to.
pub(crate) fn placement(settings: &VolumeSettings) -> PlacementConfig {
    PlacementConfig {
        policy: settings.policy.value.clone(),
        rules: settings.rules.iter().map(Rule::config).collect(),
        movers: movers::config(settings),
    }
}
