//! `braid hints`: the streams that are known.

use crate::args::{HintsExplainArgs, HintsListArgs};
use crate::failure::{Failure, Result};
use crate::table::{self, Align, Table};
use braid_daemon::config::Config;
use braid_daemon::stack_file;
use braid_daemon::streams::{self, Listed, Question};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn list(args: &HintsListArgs) -> Result<()> {
    let config = config(args.stack.as_deref())?;
    let listed = streams::list(config.as_ref().map(|config| config.stack.volume()))?;
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
    let volume = config.as_ref().map(|config| config.stack.volume());
    let Some(stream) = streams::explain(volume, &question)? else {
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

fn config(stack: Option<&Path>) -> Result<Option<Config>> {
    Ok(stack.map(stack_file::load_without_profile).transpose()?)
}

/// Who writes the files of a stream.
fn writers(stream: &Listed) -> String {
    let programs = stream.programs.join(" ");
    let threads =
        stream.threads.iter().map(|thread| format!("thread {thread}")).collect::<Vec<_>>().join(" ");
    match [programs, threads].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>() {
        none if none.is_empty() => "any".to_owned(),
        parts => parts.join(", "),
    }
}
