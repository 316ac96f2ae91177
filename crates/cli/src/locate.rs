//! Finding the Braid file system of a path, and its daemon.

use crate::failure::{Failure, Result};
use crate::served;
use braid_contract::Shown;
use braid_ipc::Client;
use braid_ipc::mounts::{self, Mount};
use braid_ipc::protocol::{Reply, Request};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The Braid file system that `path` is in. Works even if its daemon is dead or
/// does not let this user in.
pub(crate) fn containing(path: &Path) -> Result<Mount> {
    let table = table()?;
    if let Some(mount) = of_stack_file(&table, path) {
        return Ok(mount);
    }
    // A mount point is not opened: its daemon may be unable to answer.
    let named = std::path::absolute(path).unwrap_or_default();
    if let Some(mount) = mounts::at(&table, &named).filter(|mount| mount.is_braid()) {
        return Ok(mount.clone());
    }
    if let Ok(found) = std::fs::metadata(path)
        && let Some(mount) = table.iter().rev().find(|mount| mount.is_braid() && mount.dev == found.dev())
    {
        return Ok(mount.clone());
    }
    let found = resolve(path).and_then(|resolved| match mounts::containing(&table, &resolved) {
        Some(mount) if mount.is_braid() => Ok(mount.clone()),
        mount => Err(not_braid(path, mount)),
    });
    // The mount named by its source may still be served.
    found.or_else(|failure| served::find(path).map(|daemon| daemon.mount()).ok_or(failure))
}

/// The Braid file system that was mounted with the stack file `path`, if there
/// is one.
fn of_stack_file(table: &[Mount], path: &Path) -> Option<Mount> {
    let is_source = |mount: &&Mount| mount.is_braid() && mount.source.starts_with('/');
    if !table.iter().any(|mount| is_source(&mount)) || !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = std::fs::canonicalize(path).ok()?;
    table.iter().rev().filter(is_source).find(|mount| Path::new(&mount.source) == file).cloned()
}

/// The Braid file system that is mounted at `path` itself, or with the stack
/// file `path`.
pub(crate) fn mounted_at(path: &Path) -> Result<Mount> {
    let table = table()?;
    if let Some(mount) = of_stack_file(&table, path) {
        return Ok(mount);
    }
    let resolved = resolve(path)?;
    match mounts::at(&table, &resolved) {
        Some(mount) if mount.is_braid() => Ok(mount.clone()),
        Some(mount) => Err(not_braid(path, Some(mount))),
        None => match mounts::containing(&table, &resolved) {
            Some(mount) if mount.is_braid() => Err(Failure::new(format!(
                "{} is not a mount point\n  help: it is below the one at {}",
                path.shown(),
                mount.point.shown()
            ))),
            _ => Err(Failure::new(format!("nothing is mounted at {}", path.shown()))),
        },
    }
}

/// The volume of a command, from its last argument: the one that `path` is in;
/// without a path, the one of the working directory or else the only one.
pub(crate) fn given_or_only(path: Option<&Path>) -> Result<Mount> {
    if let Some(path) = path {
        return containing(path);
    }
    if let Ok(mount) = containing(Path::new(".")) {
        return Ok(mount);
    }
    let mut mounts: Vec<Mount> = table()?.into_iter().filter(Mount::is_braid).collect();
    mounts.dedup_by_key(|mount| mount.dev);
    match mounts.as_slice() {
        [mount] => Ok(mount.clone()),
        [] => Err(Failure::new("no Braid file system is mounted\n  help: mount one: braid mount")),
        several => {
            let points: Vec<String> = several.iter().map(|mount| mount.point.shown().to_string()).collect();
            let points = points.join(", ");
            Err(Failure::usage(format!(
                "several Braid file systems are mounted: {points}\n  help: name one at the end, or work in it"
            )))
        }
    }
}

/// Takes the volume off the end of the words, of which only it has a slash, or
/// is `.` or `..`.
pub(crate) fn split_mount(words: &[String]) -> (&[String], Option<&Path>) {
    match words.split_last() {
        Some((last, words)) if last.contains('/') || matches!(last.as_str(), "." | "..") => {
            (words, Some(Path::new(last)))
        }
        _ => (words, None),
    }
}

/// The Braid file system that the file or directory `path` is in, and its path
/// below that one's root.
pub(crate) fn within(path: &Path) -> Result<(Mount, String)> {
    let resolved = resolve(path)?;
    let mount = containing(path)?;
    let table = table()?;
    let at = mounts::containing(&table, &resolved).filter(|at| at.dev == mount.dev);
    let within = at.unwrap_or(&mount).path_within(&resolved);
    let within = within.ok_or_else(|| not_braid(path, None))?;
    let below = within.strip_prefix("/").unwrap_or(&within).to_owned();
    match below.into_os_string().into_string() {
        Ok(below) => Ok((mount, below)),
        Err(name) => Err(Failure::new(format!(
            "{}: the name is not UTF-8\n  help: name the directory that it is in",
            name.shown()
        ))),
    }
}

/// The daemon that serves `mount`.
pub(crate) fn daemon(mount: &Mount) -> io::Result<Client> {
    Client::find(mount.dev, mount.owner().unwrap_or(0))
}

/// The daemon that serves `mount`, for a command that can't do without.
pub(crate) fn need_daemon(mount: &Mount) -> Result<Client> {
    daemon(mount).map_err(|error| no_daemon(mount, &error))
}

/// Why the daemon of `mount` does not answer.
pub(crate) fn no_daemon(mount: &Mount, error: &io::Error) -> Failure {
    let point = mount.point.shown();
    if mount.is_dead() {
        return Failure::new(format!(
            "the daemon of {point} is gone\n  help: clean up: braid umount {point}"
        ));
    }
    Failure::new(format!("the daemon of {point} can't be asked: {error}"))
}

/// Sends a request to a daemon; `pick` takes the answer out of the reply, if it
/// matches the request.
pub(crate) fn ask<T>(
    daemon: &mut Client,
    request: &Request,
    pick: impl FnOnce(Reply) -> Option<T>,
) -> Result<T> {
    let reply = daemon.request(request).map_err(|error| Failure::of_client(&error))?;
    pick(reply).ok_or_else(|| Failure::new("the daemon answered something else"))
}

fn table() -> Result<Vec<Mount>> {
    mounts::list().map_err(|error| Failure::new(format!("the mount table can't be read: {error}")))
}

fn resolve(path: &Path) -> Result<PathBuf> {
    mounts::resolve(path).map_err(|error| Failure::new(format!("{}: {error}", path.shown())))
}

fn not_braid(path: &Path, mount: Option<&Mount>) -> Failure {
    let path = path.shown();
    Failure::new(match mount {
        Some(mount) => {
            let (kind, point) = (&mount.fs_type, mount.point.shown());
            format!("{path} is not in a Braid file system, but in the {kind} mounted at {point}")
        }
        None => format!("{path} is not in a Braid file system"),
    })
}
