//! The importer, and its messages to the front end's cache.

use super::walk::open_dir;
use braid_contract::NativeFd;
use braid_contract::{Errno, Error, Fd, RefusalKind, Result, Store};
use braid_core::Core;
use braid_tiers::Tier;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

/// Brings files of tiers' directories into the namespace.
pub(crate) struct Importer {
    pub(super) core: Arc<Core>,
}

impl Importer {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core) }
    }

    /// The tier of this name, if it has a directory whose files can come in.
    pub(crate) fn importable(&self, name: &str) -> Result<(Arc<Tier>, Arc<dyn Store>, Fd)> {
        let refuse = |why, what: String| Err(Error::refused(Errno::EINVAL, why, what));
        let tier = self.core.tiers.named(name)?;
        if tier.is_home() {
            let what = format!("tier {name} is home: the files in its directory are the volume's already");
            return refuse(RefusalKind::Home, what);
        }
        if !tier.is_healthy() || tier.is_draining() || tier.is_set_readonly() {
            let what = format!("tier {name} is {}: it takes no files", tier.state().name());
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Trouble, what));
        }
        let Some((_, store)) = self.core.tiers.stores().find(|(other, _)| other.id == tier.id) else {
            return Err(Errno::ENODEV.into());
        };
        match store.directory() {
            Ok(root) => Ok((tier, store, root)),
            Err(error) if error.errno() == Errno::EOPNOTSUPP => refuse(
                RefusalKind::Request,
                format!("tier {name} is no directory: it has no files of its own"),
            ),
            Err(error) => Err(error),
        }
    }

    /// Notifies the front end of new names.
    pub(super) fn names_came<'p>(&self, home: &Fd, paths: impl IntoIterator<Item = &'p Path>) {
        let Some(cache) = self.core.front_cache.get() else { return };
        let mut dirs: BTreeMap<&Path, Vec<OsString>> = BTreeMap::new();
        for path in paths {
            let dir = path.parent().unwrap_or(Path::new(""));
            dirs.entry(dir).or_default().push(path.file_name().unwrap_or(OsStr::new(".")).to_owned());
        }
        for (dir, names) in dirs {
            // A file that is gone again has no names.
            let Ok(identity) = open_dir(home, dir).and_then(|dir| self.core.home.identify(&*dir)) else {
                continue;
            };
            cache.names_came(self.core.home.public_ino(identity.ino()), &names);
        }
    }

    /// Notes that a file got one more name.
    pub(super) fn name_was_added(&self, file: &dyn NativeFd) -> Result<()> {
        if let Some(cache) = self.core.front_cache.get() {
            cache.attributes_changed(self.core.home.public_ino(self.core.home.identify(file)?.ino()));
        }
        Ok(())
    }
}
