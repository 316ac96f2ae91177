//! RocksDB: `db_bench` with a sync of its log after each write. It fills a
//! database in the order of the keys, so that their number shows losses; in
//! between it overwrites them.

use super::part::{Found, Part, VOLUME, number, say};
use braid_tests_support::error::{Context, Failure, Result, fail};
use braid_tests_support::sh::{Cmd, cmd};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Small tables, so that there are many, and compactions.
const SETTINGS: &[&str] = &[
    "--sync=1",
    "--disable_wal=0",
    "--value_size=400",
    "--write_buffer_size=65536",
    "--target_file_size_base=131072",
    "--max_bytes_for_level_base=524288",
    "--compression_type=none",
    "--stats_interval=5",
];

/// Fills of one database before a new one is begun.
const LOADS: u64 = 3;

/// The database of this load.
pub(super) struct Database;

fn path(generation: u64) -> PathBuf {
    Path::new(VOLUME).join(format!("rocksdb{generation}"))
}

fn read(generation: u64) -> Cmd {
    cmd("db_bench").arg(format!("--db={}", path(generation).display())).args([
        "--use_existing_db=1",
        "--num=100000000",
        "--benchmarks=readseq,verifychecksum",
    ])
}

/// Reads `readseq : 1.5 micros/op 580551 ops/sec 0.001 seconds 400 operations; …`.
fn keys(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.starts_with("readseq"))?;
    let before = line.split(" operations").next()?;
    before.rsplit(' ').next()?.parse().ok()
}

/// Reads `… thread 0: (5,20) ops and …`: the second number is of all.
fn finished(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(": (")?;
    rest.split_once(") ops")?.0.split_once(',')?.1.parse().ok()
}

impl Part for Database {
    fn name(&self) -> String {
        "rocksdb".into()
    }

    fn create(&self) -> Result<Value> {
        Ok(json!({ "generation": 0, "loads": 0, "keys": 0 }))
    }

    /// `state` counts the loads of the database of a generation, and its keys.
    fn check(&self, state: &Value, _: u64, acknowledged: u64) -> Found {
        let (generation, loads) = (number(state, "generation"), number(state, "loads"));
        let fills = loads == 0;
        let least = if fills { acknowledged } else { number(state, "keys") };
        // Before it fills a database, db_bench makes one and removes it again, so
        // that until the first acknowledgement anything may be there.
        if least == 0 {
            return Ok(json!({ "generation": generation + 1, "loads": 0, "keys": 0 }));
        }
        let said = read(generation).read().map_err(|Failure(reason)| format!("database {reason}"))?;
        let found = keys(&said).ok_or_else(|| format!("database {said}"))?;
        if said.contains("orruption") {
            return Err(format!("database {said}"));
        }
        if found < least {
            return Err(format!("lost keys: {found} are left, acknowledged were {least}"));
        }
        if loads + 1 < LOADS {
            return Ok(json!({ "generation": generation, "loads": loads + 1, "keys": found }));
        }
        // The load removes this one, when it is known to have been checked.
        Ok(json!({ "generation": generation + 1, "loads": 0, "keys": 0 }))
    }

    fn load(&self, state: &Value, seed: u64) -> Result<()> {
        let fills = number(state, "loads") == 0;
        let before = path(number(state, "generation").saturating_sub(1));
        if fills && number(state, "generation") > 0 && before.exists() {
            std::fs::remove_dir_all(&before).at(&before)?;
        }
        let (benchmark, num) =
            if fills { ("fillseq", 10_000_000) } else { ("overwrite", number(state, "keys")) };
        let mut child = Command::new("db_bench")
            .arg(format!("--db={}", path(number(state, "generation")).display()))
            .args([
                format!("--benchmarks={benchmark}"),
                format!("--num={num}"),
                format!("--seed={}", seed + 1),
            ])
            .args([format!("--use_existing_db={}", u8::from(!fills)), "--writes=10000000".into()])
            .args(SETTINGS)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("db_bench")?;
        let mut said = String::new();
        for line in child.stderr.take().into_iter().flat_map(|errors| BufReader::new(errors).lines()) {
            let line = line?;
            match finished(&line) {
                Some(done) => say(&format!("ack rocksdb {done}")),
                None => said = said + &line + "\n",
            }
        }
        fail(format!("db_bench {}\n{said}", child.wait()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_db_bench_says_is_read() {
        let line =
            "readseq      :       1.587 micros/op 580551 ops/sec 0.001 seconds 400 operations;  230.3 MB/s";
        assert_eq!(keys(line), Some(400));
        let line =
            "2026/11/20-22:15:04  ... thread 0: (5,20) ops and (1.0,2.0) ops/second in (0.1,0.2) seconds";
        assert_eq!(finished(line), Some(20));
    }
}
