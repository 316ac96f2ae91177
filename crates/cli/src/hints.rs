//! `braid hints`: the streams that are known.

use crate::args::{HintsExplainArgs, HintsLearnArgs, HintsListArgs};
use crate::failure::{Failure, Result};
use crate::locate;
use crate::table::{self, Align, Table};
use braid_contract::{Shown, counted};
use braid_daemon::config::Config;
use braid_daemon::stack_file;
use braid_daemon::streams::{self, Listed, Question};
use braid_daemon::{learn as learning, trace};
use braid_ipc::protocol::{LearnedStream, LearnedStreams, Reply, Request};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

pub(crate) fn list(args: &HintsListArgs) -> Result<()> {
    if let Some(mount) = &args.mount {
        return list_learned(&learned(mount)?, args.json);
    }
    let config = config(args.stack.as_deref())?;
    let listed = streams::list(config.as_ref().and_then(|config| config.stack.volume()))?;
    if args.json {
        return table::print_json(&BTreeMap::from([("streams", listed)]));
    }
    let columns = ["STREAM", "LIFE", "FILES", "WRITTEN BY"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    for stream in &listed {
        let row = vec![stream.stream.clone(), stream.life.clone(), stream.files.join(" "), writers(stream)];
        table.row(row);
    }
    table::print(&table.render())
}

pub(crate) fn explain(args: &HintsExplainArgs) -> Result<()> {
    let config = config(args.stack.as_deref())?;
    let question = Question {
        path: args.path.trim_start_matches('/').to_owned(),
        program: args.program.clone(),
        thread: args.thread.clone(),
    };
    let volume = config.as_ref().and_then(|config| config.stack.volume());
    let Some(stream) = streams::explain(volume, &question)? else {
        let learned = args.mount.as_deref().map(learned).transpose()?.unwrap_or_default();
        if let Some(stream) =
            learned.streams.iter().find(|stream| streams::is_one_of(&stream.files, &question.path))
        {
            return explain_learned(args, stream);
        }
        return Err(Failure::new(format!("{}: it belongs to no stream that is known", args.path)));
    };
    if args.json {
        return table::print_json(&stream);
    }
    let by = stream.profile.as_ref().map_or_else(
        || format!("a rule: {}", stream.files.join(" ")),
        |profile| format!("the profile {profile} ({}): {}", stream.about, stream.files.join(" ")),
    );
    let (name, life) = (&stream.stream, &stream.life);
    table::print(&format!("{}: {name}, by {by}; expected life: {life}\n", args.path))
}

pub(crate) fn learn(args: &HintsLearnArgs) -> Result<()> {
    let trace = trace::load(&args.trace)?;
    let found = learning::learn(&trace, &args.trace, args.out.as_deref())?;
    let Some(out) = &args.out else { return table::print(&found.profile) };
    let written = File::create_new(out).and_then(|mut file| file.write_all(found.profile.as_bytes()));
    written.map_err(|error| Failure::new(format!("{} can't be written: {error}", out.shown())))?;
    let (streams, files) = (counted(found.streams as u64, "stream"), counted(found.files, "file"));
    let mut told = format!(
        "{}: {streams}, which {} of {files} that were written fall into\n",
        out.shown(),
        found.fitting
    );
    if found.left_out > 0 {
        told.push_str(&format!("rare kinds of files left out: {}\n", found.left_out));
    }
    table::print(&told)
}

/// The learned streams of the volume that is mounted there.
fn learned(mount: &Path) -> Result<LearnedStreams> {
    let mount = locate::mounted_at(mount)?;
    let mut daemon = locate::need_daemon(&mount)?;
    locate::ask(&mut daemon, &Request::LearnedStreams, |reply| match reply {
        Reply::LearnedStreams(learned) => Some(learned),
        _ => None,
    })
}

fn list_learned(learned: &LearnedStreams, json: bool) -> Result<()> {
    if json {
        return table::print_json(learned);
    }
    let columns =
        [("STREAM", Align::Left), ("LIFE", Align::Left), ("TOLD", Align::Right), ("FILES", Align::Left)];
    let mut table = Table::new(&columns);
    for stream in &learned.streams {
        let life = format!("{}, about {} s", stream.life, stream.life_seconds);
        table.row(vec![stream.name.clone(), life, stream.told.to_string(), stream.files.join(" ")]);
    }
    table::print(&table.render())
}

fn explain_learned(args: &HintsExplainArgs, stream: &LearnedStream) -> Result<()> {
    if args.json {
        return table::print_json(stream);
    }
    let LearnedStream { name, life, life_seconds, told, .. } = stream;
    let files = counted(*told, "file");
    table::print(&format!(
        "{}: {name}, learned from {files}; expected life: {life}, about {life_seconds} s\n",
        args.path
    ))
}

fn config(stack: Option<&Path>) -> Result<Option<Config>> {
    Ok(stack.map(stack_file::load_without_profile).transpose()?)
}

/// The writers of a stream's files.
fn writers(stream: &Listed) -> String {
    let programs = stream.programs.join(" ");
    let threads =
        stream.threads.iter().map(|thread| format!("thread {thread}")).collect::<Vec<_>>().join(" ");
    match [programs, threads].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>() {
        none if none.is_empty() => "any".to_owned(),
        parts => parts.join(", "),
    }
}
