//! SQLite: transactions one after the other, each acknowledged when its commit
//! has returned.

use super::part::{Found, Part, VOLUME, number, say, state_of};
use braid_tests_support::error::{Context, Failure, Result, fail};
use braid_tests_support::sh::{Cmd, cmd};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Rows of the table in which each transaction changes one.
const COUNTERS: u64 = 32;

/// The text that a row `n` holds: 200 to 999 bytes, in SQL.
const TEXT: &str = "substr(replace(hex(zeroblob(100)), '00', printf('%010d.', n)), 1, 200 + n % 800)";

/// A database, by how it journals.
#[derive(Clone, Copy)]
pub(super) enum Database {
    /// A write-ahead log.
    Wal,
    /// A rollback journal that is deleted.
    Rollback,
}

impl Database {
    /// The setting that makes a commit durable before it returns. With a
    /// rollback journal, the journal's removal commits, and only EXTRA syncs
    /// it.
    fn settings(self) -> &'static str {
        match self {
            Self::Wal => "PRAGMA synchronous=FULL",
            Self::Rollback => "PRAGMA synchronous=EXTRA",
        }
    }

    fn path(self) -> PathBuf {
        Path::new(VOLUME).join(format!("{}.db", self.name()))
    }

    fn sql(self, script: impl Into<String>) -> Cmd {
        cmd("sqlite3").args(["-bail", "-cmd", self.settings()]).arg(self.path()).input(script)
    }

    /// The transaction `n`, which says when it is committed.
    fn transaction(n: u64) -> String {
        let counter = n % COUNTERS;
        // Rows go in bunches, so that pages become free and are used again.
        let prune = match n % 40 {
            0 => format!("DELETE FROM t WHERE n < {};", n.saturating_sub(200)),
            _ => String::new(),
        };
        format!(
            "BEGIN; INSERT INTO t SELECT n, {TEXT} FROM (SELECT {n} AS n); \
             UPDATE c SET n = {n} WHERE id = {counter}; {prune} COMMIT; SELECT {n};\n"
        )
    }
}

impl Part for Database {
    fn name(&self) -> String {
        match self {
            Self::Wal => "sqlite-wal".into(),
            Self::Rollback => "sqlite-rollback".into(),
        }
    }

    fn create(&self) -> Result<Value> {
        let mode = match self {
            Self::Wal => "WAL",
            Self::Rollback => "DELETE",
        };
        self.sql(format!(
            "PRAGMA journal_mode={mode}; BEGIN; CREATE TABLE t(n INTEGER PRIMARY KEY, v TEXT); \
             CREATE TABLE c(id INTEGER PRIMARY KEY, n INTEGER); \
             WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < {COUNTERS} - 1) \
             INSERT INTO c SELECT n, 0 FROM i; COMMIT;"
        ))
        .quiet()?;
        Ok(state_of("rows", 0))
    }

    fn check(&self, state: &Value, _: u64, acknowledged: u64) -> Found {
        let ask = format!(
            "PRAGMA integrity_check; SELECT coalesce(max(n), 0) FROM t; \
             SELECT count(*) FROM t WHERE v IS NOT {TEXT}; \
             SELECT max(n) - min(n) + 1 - count(*) FROM t; \
             SELECT count(*) FROM c, (SELECT coalesce(max(n), 0) AS m FROM t) \
             WHERE n IS NOT max(0, m - (m - id + {COUNTERS}) % {COUNTERS});"
        );
        let said = self.sql(ask).read().map_err(|Failure(reason)| format!("database {reason}"))?;
        let lines: Vec<_> = said.lines().collect();
        let ["ok", rows, "0", "0" | "", "0"] = lines[..] else {
            return Err(format!("database {said}"));
        };
        let rows = rows.parse().map_err(|_| format!("database has {rows} rows"))?;
        let least = acknowledged.max(number(state, "rows"));
        if rows < least || rows > least + 1 {
            return Err(format!("lost rows: the last is {rows}, acknowledged was {least}"));
        }
        Ok(state_of("rows", rows))
    }

    fn load(&self, state: &Value, _: u64) -> Result<()> {
        // Its output is a pipe, and would be held back otherwise.
        let mut child = Command::new("stdbuf")
            .args(["-oL", "sqlite3", "-bail", "-cmd", self.settings()])
            .arg(self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("sqlite3")?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return fail("sqlite3 has no input or output");
        };
        let mut lines = BufReader::new(output).lines();
        for n in number(state, "rows") + 1.. {
            // An early end is judged by its output.
            let _ = input.write_all(Self::transaction(n).as_bytes());
            match lines.next() {
                Some(Ok(line)) if line == n.to_string() => say(&format!("ack {} {n}", self.name())),
                _ => break,
            }
        }
        drop(input);
        let output = child.wait_with_output()?;
        fail(format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}
