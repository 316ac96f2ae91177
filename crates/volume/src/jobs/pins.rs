//! Pinned files: movers leave them where they are.

use super::targets::open_below;
use braid_contract::{Access, Context, Errno, Error, Fd, FileKind, Pinned, RefusalKind, Result, Shown};
use braid_core::Core;
use braid_core::namespace::found;
use braid_format::PinAttr;
use braid_home::{Identity, Seen};
use std::path::Path;

/// Most files that are synced one by one when they are pinned; more share one
/// sync of everything.
const SYNCED_ALONE_MAX: usize = 16;

/// Pins the file at `path`, so that movers leave it where it is; with `tier`, a
/// job may still move it there. With `recursive`, all files of a directory.
///
/// # Errors
/// `ENOENT` if there is no such file or tier, `EISDIR` if it is a directory and
/// `recursive` was not asked for, those of the home tier.
pub(crate) fn pin_below(core: &Core, path: &str, tier: Option<&str>, recursive: bool) -> Result<Pinned> {
    let tier = tier.map(|name| core.tiers.named(name)).transpose()?;
    let pin = PinAttr { tier: tier.map(|tier| tier.name.clone()) };
    set_pins(core, path, Some(&pin), recursive)
}

/// Lets movers move the file at `path` again.
///
/// # Errors
/// As [`pin_below`].
pub(crate) fn unpin_below(core: &Core, path: &str, recursive: bool) -> Result<Pinned> {
    set_pins(core, path, None, recursive)
}

fn set_pins(core: &Core, path: &str, pin: Option<&PinAttr>, recursive: bool) -> Result<Pinned> {
    let _entered = core.barrier.enter();
    let fd = open_below(core, path)?;
    let identity = core.home.identify(&*fd)?;
    let kind = identity.kind();
    match kind {
        FileKind::Regular => {}
        FileKind::Directory if recursive => {}
        FileKind::Directory => return Err(Error::new(Errno::EISDIR, path)),
        _ => {
            let what = format!("{path} has no data: nothing moves it");
            return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
        }
    }
    let mut pinned = Pinned::default();
    let mut alone = Vec::new();
    let mut set = |path: &Path, fd: &Fd, identity: &Identity| {
        pinned.files += 1;
        if set_pin(core, fd, identity, pin).with_context(|| path.shown().to_string())? {
            pinned.changed += 1;
            if alone.len() <= SYNCED_ALONE_MAX {
                alone.push(Fd::clone(fd));
            }
        }
        Ok(())
    };
    if kind == FileKind::Regular {
        set(Path::new(path), &fd, &identity)?;
    } else {
        let starts = if path.is_empty() { Vec::new() } else { vec![path.into()] };
        core.home.walk_below(&starts, &mut |seen| match seen {
            Seen::File(path, fd, identity) => set(path, fd, identity),
            Seen::Failed(path, error) => Err(error).with_context(|| path.shown().to_string()),
        })?;
    }
    sync_pins(core, &alone)?;
    Ok(pinned)
}

fn sync_pins(core: &Core, files: &[Fd]) -> Result<()> {
    let sync = |fd: &Fd| fd.reopen(Access::Read)?.sync(false);
    if files.len() <= SYNCED_ALONE_MAX && files.iter().all(|fd| sync(fd).is_ok()) {
        return Ok(());
    }
    core.home.root().sync_fs().context("making pins durable")
}

/// Sets a pin; answers whether that changed anything.
fn set_pin(core: &Core, fd: &Fd, identity: &Identity, pin: Option<&PinAttr>) -> Result<bool> {
    if core.home.pin_of(&**fd, identity)?.as_ref() == pin {
        return Ok(false);
    }
    core.home.set_pin(&**fd, identity, pin)?;
    // Movers that look from now on see it.
    if let Ok(inode) = core.inodes.get(core.home.public_ino(identity.ino()))
        && let Some(file) = inode.file.lock().upgrade()
    {
        file.pin_was_set();
    }
    if core.observer.follows_changes() {
        core.observer.inode_changed(&found(core, identity, Fd::clone(fd)).inode);
    }
    Ok(true)
}
