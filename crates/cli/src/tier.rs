//! `braid tier`: lists, adds, sets, removes and replaces tiers of a mounted
//! volume. The daemon does the work.

use crate::args::{ReplaceArgs, StartArgs, TierAddArgs, TierListArgs, TierRemoveArgs, TierSetArgs};
use crate::failure::{Failure, Result};
use crate::table::{Align, Table};
use crate::{job, locate, movers, rehome, saved, table};
use braid_contract::units::show_size;
use braid_contract::{Shown, counted};
use braid_daemon::{flags, own_files};
use braid_ipc::Client;
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{JobKind, Replaced, Replacing, Reply, Request, TierAdded, TierStatus};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The daemon's answer for a tier that holds data.
const ENOTEMPTY: i32 = 39;

pub(crate) fn list(args: &TierListArgs) -> Result<()> {
    let status = ask(args.mountpoint.as_deref(), &Request::Status, |reply| match reply {
        Reply::Status(status) => Some(status),
        _ => None,
    })?;
    if let Some((why, advice)) = status.without_tiers() {
        return Err(Failure::new(format!("{why}\n  help: {advice}")));
    }
    let mut tiers = status.tiers;
    if !args.json {
        return table::print(&render_list(&tiers));
    }
    for tier in &mut tiers {
        // A list is for people.
        tier.read_latency_histogram_ns.buckets.clear();
        tier.write_latency_histogram_ns.buckets.clear();
    }
    table::print_json(&TiersTold { tiers })
}

/// Tiers as JSON.
#[derive(Serialize)]
struct TiersTold {
    tiers: Vec<TierStatus>,
}

fn render_list(tiers: &[TierStatus]) -> String {
    let mut rows = Table::new(&[
        ("TIER", Align::Left),
        ("STATE", Align::Left),
        ("WEIGHT", Align::Right),
        ("RESERVE", Align::Right),
        ("AVAILABLE", Align::Right),
        ("RANGES", Align::Right),
        ("WHERE", Align::Left),
    ]);
    for tier in tiers {
        rows.row(vec![
            format!("{}{}", tier.name, if tier.home { "*" } else { "" }),
            tier.state.to_string(),
            if tier.weight > 0.0 { format!("{:.0}", tier.weight) } else { "-".into() },
            show_size(tier.reserve),
            show_size(tier.available),
            tier.ranges.to_string(),
            tier.location.shown().to_string(),
        ]);
    }
    rows.render()
}

pub(crate) fn add(args: &TierAddArgs) -> Result<()> {
    let Some((name, rest)) = args.tier.split_once('=') else {
        return Err(Failure::usage(format!(
            "{}: expected NAME=DIR\n  help: write archive=/mnt/sata",
            args.tier
        )));
    };
    let (dir, settings) = flags::split(rest);
    let settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let dir = real(Path::new(dir))?;
    let request = Request::AddTier { tier: name.to_owned(), dir, settings: settings.collect() };
    let added = ask(args.mountpoint.as_deref(), &request, |reply| match reply {
        Reply::TierAdded(added) => Some(added),
        _ => None,
    })?;
    if args.json {
        return table::print_json(&added);
    }
    table::print(&render_added(&added))?;
    if own_files::dir(Path::new(&added.location)) {
        eprintln!("braid: {}", own_files::notice(&added.tier.name));
    }
    Ok(())
}

fn render_added(added: &TierAdded) -> String {
    let text = format!("tier {} is at {}, and takes new data\n", added.tier.name, added.location.shown());
    text + &saved::render(&added.saved)
}

pub(crate) fn set(args: &TierSetArgs) -> Result<()> {
    let (settings, mountpoint) = split_settings(&args.settings)?;
    let request = Request::SetTier { tier: args.tier.clone(), settings };
    let set = ask(mountpoint, &request, |reply| match reply {
        Reply::TierSet(set) => Some(set),
        _ => None,
    })?;
    if args.json {
        return table::print_json(&set);
    }
    table::print(&(format!("tier {} is set\n", set.tier) + &saved::render(&set.saved)))
}

/// The settings, and the volume if one follows them.
fn split_settings(words: &[String]) -> Result<(BTreeMap<String, String>, Option<&Path>)> {
    let (words, mountpoint) = locate::split_mount(words);
    if words.is_empty() {
        return Err(Failure::usage(
            "no setting is given\n  help: write weight=NUMBER, reserve=AMOUNT, require=WHAT or readonly",
        ));
    }
    let mut settings = BTreeMap::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, "yes"));
        if !word.contains('=') && key != "readonly" {
            let advice = "a setting is weight=NUMBER, reserve=AMOUNT, require=WHAT, readonly or readonly=no; a mount point comes last, with a slash: ./DIR";
            return Err(Failure::usage(format!("{word}: this is no setting\n  help: {advice}")));
        }
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("{key}: given twice\n  help: keep one of the two")));
        }
    }
    Ok((settings, mountpoint))
}

pub(crate) fn remove(args: &TierRemoveArgs) -> Result<()> {
    let request = Request::RemoveTier { tier: args.tier.clone(), evacuate: !args.no_evacuate };
    let removed = ask(args.mountpoint.as_deref(), &request, |reply| match reply {
        Reply::TierRemoved(removed) => Some(removed),
        _ => None,
    });
    let removed = match removed {
        Err(failure) if !args.no_evacuate && failure.errno() == Some(ENOTEMPTY) => {
            return remove_by_job(args);
        }
        result => result?,
    };
    if args.start.json {
        return table::print_json(&removed);
    }
    let mut text = format!("tier {} is not part of the volume any more\n", removed.tier);
    // Writing to a string does not fail.
    _ = match &removed.not_cleared {
        None => writeln!(text, "{} can be used anew", removed.location.shown()),
        Some(why) => writeln!(
            text,
            "{} could not be cleared ({why}): remove its .braid directory before it is used anew",
            removed.location.shown()
        ),
    };
    table::print(&(text + &saved::render(&removed.saved)))
}

/// Lets the daemon empty the tier, and remove it.
fn remove_by_job(args: &TierRemoveArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    movers::start(&mount, JobKind::Evacuate { tier: args.tier.clone(), then_remove: true }, &args.start)
}

pub(crate) fn replace(args: &ReplaceArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let mut daemon = locate::need_daemon(&mount)?;
    let home = is_home(&mut daemon, &args.tier)?;
    if let Some((by, rest)) = named(&args.new) {
        if home {
            let what = format!("{by}: tier {} is home, which keeps its name", args.tier);
            return Err(Failure::usage(format!("{what}\n  help: give the directory alone")));
        }
        return replace_by(&mut daemon, &mount, args, (by, rest));
    }
    let dir = real(&args.new)?;
    if home {
        return rehome::replace(&mut daemon, &mount, dir, args);
    }
    if args.start.background || args.start.bandwidth.is_some() {
        let what = "--background and --bandwidth are for what is moved";
        let advice = "a tier that is well is replaced by NAME=DIR; leave them out for one that is lost";
        return Err(Failure::usage(format!("{what}\n  help: {advice}")));
    }
    let request = Request::ReplaceTier { tier: args.tier.clone(), dir };
    let replaced = locate::ask(&mut daemon, &request, |reply| match reply {
        Reply::Replaced(replaced) => Some(replaced),
        _ => None,
    })?;
    if args.start.json {
        table::print_json(&replaced)
    } else {
        table::print(&render(&replaced, &mount.point.shown().to_string()))
    }
}

/// The name of a new tier and the text after it, if it has that form: a
/// directory has a slash before an equals sign.
fn named(new: &Path) -> Option<(&str, &str)> {
    new.to_str()?.split_once('=').filter(|(name, _)| !name.contains('/'))
}

/// Replaces a healthy tier by a new one.
fn replace_by(
    daemon: &mut Client,
    mount: &Mount,
    args: &ReplaceArgs,
    (by, rest): (&str, &str),
) -> Result<()> {
    let StartArgs { bandwidth, background, json } = &args.start;
    let (dir, settings) = flags::split(rest);
    let settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let request = Request::ReplaceTierBy {
        tier: args.tier.clone(),
        by: by.to_owned(),
        dir: real(Path::new(dir))?,
        settings: settings.collect(),
        bandwidth: bandwidth.as_deref().map(job::rate).transpose()?,
    };
    let Replacing { added, job } = locate::ask(daemon, &request, |reply| match reply {
        Reply::Replacing(replacing) => Some(replacing),
        _ => None,
    })?;
    if !json {
        table::print(&render_added(&added))?;
    }
    if *background {
        return movers::tell_started(mount, &job, *json);
    }
    job::conclude(&job::wait(daemon, mount, job)?, *json)
}

fn is_home(daemon: &mut Client, tier: &str) -> Result<bool> {
    let status = locate::ask(daemon, &Request::Status, |reply| match reply {
        Reply::Status(status) => Some(status),
        _ => None,
    })?;
    Ok(status.tiers.iter().any(|found| found.home && found.name == tier))
}

fn render(replaced: &Replaced, point: &str) -> String {
    let Replaced { lost, lost_ranges, next_mount, saved, .. } = replaced;
    let (location, lost_location) = (replaced.location.shown(), replaced.lost_location.shown());
    let next_mount = match saved.written {
        true => saved::render(saved),
        false => format!("before the next mount, set\n  {next_mount}\n"),
    };
    format!(
        "tier {} is at {location} now, and takes new data\n\
         lost: tier number {} at {lost_location}, with {}; what was there answers EIO\n  \
         see what: braid status {point} --affected\n\
         {next_mount}",
        lost.name,
        lost.id,
        counted(*lost_ranges, "range")
    )
}

/// Sends a request to the daemon of the mount.
fn ask<T>(mountpoint: Option<&Path>, request: &Request, pick: impl FnOnce(Reply) -> Option<T>) -> Result<T> {
    let mount = locate::given_or_only(mountpoint)?;
    let mut daemon = locate::need_daemon(&mount)?;
    locate::ask(&mut daemon, request, pick)
}

/// A directory's absolute path, for the daemon, which has another working
/// directory.
fn real(dir: &Path) -> Result<String> {
    let shown = dir.shown();
    let real = std::fs::canonicalize(dir).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    match real.to_str() {
        Some(real) => Ok(real.to_owned()),
        None => Err(Failure::new(format!("{shown}: the name is not UTF-8\n  help: name another directory"))),
    }
}
