//! Modules of frames that lie on each other, as one.

use crate::frames::{Framed, Pipeline};
use crate::{Configured, Member};
use braid_contract::{FileSystem, Result};
use std::sync::Arc;

/// From the top down, the order in which they make sense: encrypted data can't be compressed, and a
/// checksum is to cover the stored bytes.
const ORDER: [&str; 3] = ["compress", "encrypt", "checksum"];

/// The settings of the modules together; `None` if the upper one has nothing to do with frames.
///
/// # Errors
/// Why the lower one can't lie below: its name, and the reason.
pub fn fused(
    above: &dyn Configured,
    below: &[&dyn Configured],
) -> std::result::Result<Option<Pipeline>, String> {
    let Some(mut pipeline) = above.frames() else { return Ok(None) };
    let mut last = above.name();
    let mut are_adjacent = true;
    for module in below {
        if module.puts_off_syncs() {
            let (above, below) = (above.name(), module.name());
            return Err(format!("'{above}' counts on each sync, and '{below}' below it would put them off"));
        }
        let (name, Some(more)) = (module.name(), module.frames()) else {
            are_adjacent = false;
            continue;
        };
        let place = |name| ORDER.iter().position(|other| *other == name);
        if place(name) <= place(last) {
            return Err(format!("'{name}' can't be below '{last}': the order is {}", ORDER.join(", ")));
        }
        if !are_adjacent {
            return Err(format!("'{name}' has to be directly below '{last}'"));
        }
        pipeline = pipeline.over(&more)?;
        last = name;
    }
    Ok(Some(pipeline))
}

/// Puts several modules, as one, on a file system.
///
/// # Errors
/// As for a module of its own.
pub fn wrap(pipeline: Pipeline, child: Arc<dyn FileSystem>) -> Result<Arc<dyn Member>> {
    Ok(Arc::new(Framed::new(pipeline, child, true)?))
}
