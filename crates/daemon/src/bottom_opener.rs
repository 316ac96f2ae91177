//! Opens the file systems at the bottom of stacks that are no volumes.

use crate::bottom::{Bottom, Handle};
use crate::config::{BottomNode, Config};
use crate::guard::{CrashProtection, Guarded};
use crate::life::{Opener, Stack};
use crate::logfs::bottom::OpenLog;
use crate::refusal::{Place, Refusal};
use crate::upgrade::{BottomState, GuardedState, Suspension};
use crate::view::bottom::OpenView;
use std::sync::Arc;

/// Opens file systems that are no volumes.
pub(crate) struct BottomOpener;

impl Opener for BottomOpener {
    type Stack = Handle;

    fn open(&self, config: &Config, guard: Option<&Guarded>) -> Result<Handle, Refusal> {
        let bottom = match config.stack.bottom() {
            BottomNode::Log(log) => OpenLog::open(log)?,
            BottomNode::View(view) => OpenView::open(view)?,
            BottomNode::Volume(volume) => {
                return Err(volume.place.refuse("it is a volume", "mount it as one"));
            }
        };
        Handle::new(config, bottom, guard)
    }

    fn open_again(
        &self,
        config: &Config,
        suspension: &Suspension,
        protection: &CrashProtection,
    ) -> Result<Handle, Refusal> {
        let place = Place::flag("take-over");
        let state = match suspension {
            Suspension::Upgrade { state, .. } => state,
            Suspension::Crash(crash) => return open_after_crash(config, crash, protection),
        };
        let bottom: Arc<dyn Bottom> = match (config.stack.bottom(), &state.bottom) {
            (BottomNode::Log(log), BottomState::Log(state)) => OpenLog::open_taken(log, state)?,
            (BottomNode::View(_), BottomState::View(given)) => OpenView::open_taken(given)
                .map_err(|error| place.refuse(format!("no session goes on: {error}"), "mount it anew"))?,
            _ => return Err(state.refuse_bottom()),
        };
        let handle = Handle::new(config, bottom, protection.guard.as_ref())?;
        let imported = handle.modules().import(&state.modules);
        imported.map_err(|error| place.refuse(error.to_string(), "unmount, and mount with this program"))?;
        Ok(handle)
    }
}

fn open_after_crash(
    config: &Config,
    crash: &GuardedState,
    protection: &CrashProtection,
) -> Result<Handle, Refusal> {
    let crashes = protection.crashes();
    let open = crash.open_below(&config.stack);
    let (place, bottom) = match config.stack.bottom() {
        BottomNode::Log(log) => (&log.place, OpenLog::open_after_crash(log, crash, open.clone(), crashes)?),
        BottomNode::View(view) => {
            let opened = OpenView::open_after_crash(&crash.bottom, &open);
            let refused =
                |error| view.of.place.refuse(format!("no session goes on: {error}"), "mount it anew");
            (&view.of.place, opened.map_err(refused)?)
        }
        BottomNode::Volume(volume) => return Err(volume.place.refuse("it is a volume", "mount it anew")),
    };
    let handle = Handle::new(config, bottom, protection.guard.as_ref())?;
    handle.modules().go_on_after_crash(&open, &crash.modules, crashes).map_err(|error| {
        place.whole_file().refuse(error.to_string(), "unmount, and mount anew; the log may say more")
    })?;
    Ok(handle)
}
