//! The check of a volume: its input, and the repairs that it leaves to a mount.
//! [`check`] and [`check_with`] check a volume that is not mounted,
//! [`Volume::check`] one that is; the daemon and tests call them.

use crate::config::VolumeConfig;
use crate::membership::leave_out_removed;
use crate::placement::sizes_of;
use crate::volume::Volume;
use braid_check::{
    CheckOptions, CheckProgress, CheckReport, Mounted, Unmounted, check_mounted, check_unmounted,
};
use braid_contract::{Errno, Error, RefusalKind, Result, counted};
use braid_home::OpenError;
use std::sync::Arc;

/// Checks a volume that is not mounted. With `repair`, it repairs damage where
/// that loses no data; without, it changes nothing. It calls `progress` with
/// how far it has come.
///
/// # Errors
/// An [`OpenError`] if `config` does not describe a volume.
pub fn check(
    config: VolumeConfig,
    repair: bool,
    progress: &mut dyn FnMut(&CheckProgress),
) -> std::result::Result<CheckReport, OpenError> {
    let options = CheckOptions { repair, ..CheckOptions::default() };
    check_with(config, &options, &mut |now| {
        progress(now);
        true
    })
}

/// As [`check`], with all options. Ends early, with `EINTR`, when `progress`
/// answers `false`.
///
/// # Errors
/// As [`check`].
pub fn check_with(
    mut config: VolumeConfig,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckProgress) -> bool,
) -> std::result::Result<CheckReport, OpenError> {
    let _ = leave_out_removed(&mut config);
    let volume = Unmounted {
        home: &config.home,
        tiers: &config.tiers,
        range_sizes: sizes_of(&config.rules),
        environment: Arc::clone(&config.environment),
    };
    let mut report = check_unmounted(&volume, options, progress)?;
    if options.repair {
        recover(&mut report, config)?;
    }
    Ok(report)
}

/// Lets the mount's own recovery repair the effects of a crash.
fn recover(report: &mut CheckReport, config: VolumeConfig) -> std::result::Result<(), OpenError> {
    let Some(problem) = report.problems.iter_mut().find(|problem| problem.code == "not-clean") else {
        return Ok(());
    };
    let volume = match Volume::open(config) {
        Ok(volume) => volume,
        Err(error) => {
            problem.repair = format!("{}; that failed: {error}", problem.repair);
            return Ok(());
        }
    };
    volume.shutdown()?;
    let left = volume.core.index.marked()?;
    problem.repaired = left.is_empty();
    if !left.is_empty() {
        problem.repair = format!("not recovered: {}", counted(left.len() as u64, "file"));
    }
    Ok(())
}

impl Volume {
    /// Checks the volume while it is in use. Damage that can't be repaired
    /// meanwhile is reported and left. Ends early, with `EINTR`, when
    /// `progress` answers `false`.
    ///
    /// # Errors
    /// Those of the tiers; `EBUSY` while another check is under way, or home is
    /// being replaced.
    pub fn check(
        &self,
        options: &CheckOptions,
        progress: &mut dyn FnMut(&CheckProgress) -> bool,
    ) -> Result<CheckReport> {
        let Some(_alone) = self.core.maintenance.try_lock() else {
            let what = "another check is under way, or the home tier is being replaced: wait for it to end";
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Busy, what));
        };
        let range_sizes = self.core.table.lock().range_sizes;
        check_mounted(&Mounted { core: &self.core, range_sizes }, options, progress)
    }
}
