//! `braid status --affected`: the files with data on tiers that can't be relied
//! on.

use crate::failure::{Failure, Result};
use crate::table;
use braid_contract::Shown;
use braid_ipc::Client;
use braid_ipc::protocol::{AffectedFile, Reply, Request};
use std::fmt::Write as _;

pub(crate) fn run(daemon: &mut Client, json: bool) -> Result<()> {
    let mut files: Vec<AffectedFile> = Vec::new();
    // All lines are collected before printing: the daemon must not wait for a
    // pager.
    let asked = daemon.request_all(&Request::Affected, &mut |reply| match reply {
        Reply::Affected(file) => {
            add(&mut files, file);
            true
        }
        _ => false,
    });
    asked.map_err(|error| Failure::new(error.to_string()))?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut text = String::new();
    for file in &files {
        if json {
            text.push_str(&table::json_line(file)?);
        } else {
            render(file, &mut text);
        }
    }
    if !json {
        text.push_str(&match files.len() {
            0 => "no file is affected\n".to_owned(),
            1 => "1 file is affected\n".to_owned(),
            count => format!("{count} files are affected\n"),
        });
    }
    table::print(&text)
}

/// Adds a part of a file; those of a file with many runs follow each other.
fn add(files: &mut Vec<AffectedFile>, next: AffectedFile) {
    match files.last_mut() {
        Some(last) if last.path == next.path => {
            last.runs.extend(next.runs);
            last.unknown = last.unknown.take().or(next.unknown);
        }
        _ => files.push(next),
    }
}

/// One line for each run, so that `sort`, `grep` and `cut` work on it.
fn render(file: &AffectedFile, text: &mut String) {
    // Writing to a string does not fail.
    let path = file.path.shown();
    for run in &file.runs {
        let (first, last) = (run.offset, run.offset + run.len.saturating_sub(1));
        _ = writeln!(text, "{path}: bytes {first}-{last}: tier {} is {}", run.tier.name, run.state);
    }
    if let Some(why) = &file.unknown {
        _ = writeln!(text, "{path}: not known: {why} (see braid fsck)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::TierId;
    use braid_ipc::protocol::{AffectedRun, NamedTier};

    fn part(path: &str, offset: u64) -> AffectedFile {
        let tier = NamedTier { id: TierId(1), name: "slow".into() };
        let run = AffectedRun { offset, len: 65_536, tier, state: "failing".into() };
        AffectedFile { path: path.into(), unknown: None, runs: vec![run] }
    }

    #[test]
    fn the_parts_of_a_file_are_put_together() {
        let mut files = Vec::new();
        for next in [part("a", 0), part("a", 131_072), part("b", 0)] {
            add(&mut files, next);
        }
        let mut text = String::new();
        files.iter().for_each(|file| render(file, &mut text));
        let expected = "\
a: bytes 0-65535: tier slow is failing
a: bytes 131072-196607: tier slow is failing
b: bytes 0-65535: tier slow is failing
";
        assert_eq!((files.len(), text.as_str()), (2, expected));
    }
}
