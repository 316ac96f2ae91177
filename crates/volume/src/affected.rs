//! Files with ranges on tiers that can't be relied on, for `status --affected`.

use braid_contract::{AffectedRun, Errno, Error, NamedTier, Result, TierId};
use braid_core::Core;
use braid_core::file::index_of;
use braid_format::{IdAttr, IdKind};
use braid_index::Index;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Runs that are reported at a time.
const RUNS_MAX: usize = 1024;

/// A file with ranges on tiers that can't be relied on. One with very many runs
/// is reported in several parts.
#[derive(Clone, Debug)]
pub struct AffectedFile {
    /// Path below the root. A file with several names is reported under each.
    pub path: PathBuf,
    /// The stretches on such tiers, in order; or the error, if the file's index
    /// can't be read.
    pub runs: std::result::Result<Vec<AffectedRun>, String>,
}

/// Names and states of the tiers that can't be relied on.
type Troubled = HashMap<TierId, (String, &'static str)>;

/// Hands `visit` every file of the namespace with ranges on a tier that is
/// read-only, failing, hanging, absent or lost. Reads nothing but the home
/// tier, so it does not wait for any of them.
///
/// # Errors
/// Those of the home tier, and those of `visit`, which end it.
pub(crate) fn affected(core: &Core, visit: &mut dyn FnMut(AffectedFile) -> Result<()>) -> Result<()> {
    let troubled = troubled(core);
    if troubled.is_empty() {
        return Ok(());
    }
    core.home.walk(&mut |path, fd, identity| {
        match core.home.id_attr(&**fd, identity).and_then(|attr| match attr {
            Some(IdAttr { kind: IdKind::Spread, id, .. }) => {
                affected_runs(&index_of(core, &**fd, identity, id)?, &troubled, path, visit)
            }
            Some(IdAttr { kind: IdKind::Whole(whole), .. }) => {
                affected_whole((whole.tier, identity.size()), &troubled, path, visit)
            }
            _ => Ok(()),
        }) {
            // The file was removed, or emptied, meanwhile.
            Err(error) if matches!(error.errno(), Errno::ENOENT | Errno::ESTALE) => Ok(()),
            Err(error) if error.errno() == Errno::EUCLEAN => {
                visit(AffectedFile { path: path.to_owned(), runs: Err(error.to_string()) })
            }
            result => result,
        }
    })
}

fn troubled(core: &Core) -> Troubled {
    let mut troubled: Troubled =
        core.tiers.lost().into_iter().map(|(id, name)| (id, (name, "lost"))).collect();
    // The state of a healthy tier would have to be measured.
    for tier in core.tiers.iter().filter(|tier| !tier.is_healthy()) {
        troubled.insert(tier.id, (tier.name.clone(), tier.state().name()));
    }
    troubled
}

/// Reports the runs of one file. The index on home is current even while the
/// file is open: its users map the same pages.
fn affected_runs(
    index: &Index,
    troubled: &Troubled,
    path: &Path,
    visit: &mut dyn FnMut(AffectedFile) -> Result<()>,
) -> Result<()> {
    let (size, ranges) = (index.size()?, index.range_size());
    let mut runs: Vec<AffectedRun> = Vec::new();
    let mut unknown = None;
    index.for_each(0, |range, entry| {
        let offset = ranges.start_of(range);
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                unknown.get_or_insert(error.context(format!("range {range}")));
                return Ok(());
            }
        };
        let Some((name, state)) = troubled.get(&entry.tier).filter(|_| offset < size) else {
            return Ok(());
        };
        let len = ranges.bytes().min(size - offset);
        match runs.last_mut() {
            Some(last) if last.tier.id == entry.tier && last.offset + last.len == offset => {
                last.len += len;
            }
            _ => {
                if runs.len() == RUNS_MAX {
                    let runs = Ok(std::mem::take(&mut runs));
                    visit(AffectedFile { path: path.to_owned(), runs })?;
                }
                let tier = NamedTier { id: entry.tier, name: name.clone() };
                runs.push(AffectedRun { offset, len, tier, state: (*state).to_owned() });
            }
        }
        Ok(())
    })?;
    if !runs.is_empty() {
        visit(AffectedFile { path: path.to_owned(), runs: Ok(runs) })?;
    }
    match unknown {
        Some(error) => Err(Error::new(Errno::EUCLEAN, error.to_string())),
        None => Ok(()),
    }
}

/// Reports a whole file that is on such a tier.
fn affected_whole(
    (tier, size): (TierId, u64),
    troubled: &Troubled,
    path: &Path,
    visit: &mut dyn FnMut(AffectedFile) -> Result<()>,
) -> Result<()> {
    let Some((name, state)) = troubled.get(&tier).filter(|_| size > 0) else { return Ok(()) };
    let tier = NamedTier { id: tier, name: name.clone() };
    let run = AffectedRun { offset: 0, len: size, tier, state: (*state).to_owned() };
    visit(AffectedFile { path: path.to_owned(), runs: Ok(vec![run]) })
}
