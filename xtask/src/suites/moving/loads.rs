//! What runs while data moves: fio with checksums, SQLite, RocksDB. Each does
//! a short round again and again and looks whether everything is right.

use super::super::load::Phase;
use crate::error::{Result, ensure};
use crate::sh::cmd;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

/// A program, where it works, and how many rounds it has done.
pub(super) struct Load {
    kind: Kind,
    dir: PathBuf,
    rounds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fio,
    Sqlite,
    Rocksdb,
}

/// Rows of a round of SQLite.
const ROWS: u64 = 40;

impl Load {
    /// All of them, each in a directory of its own below `dir`.
    pub(super) fn all(dir: &Path) -> Result<Vec<Self>> {
        let make = |(kind, name)| {
            let dir = dir.join(name);
            std::fs::create_dir(&dir)?;
            let load = Self { kind, dir, rounds: 0 };
            load.prepare()?;
            Ok(load)
        };
        [(Kind::Fio, "fio"), (Kind::Sqlite, "sqlite"), (Kind::Rocksdb, "rocksdb")]
            .into_iter()
            .map(make)
            .collect()
    }

    /// Works until it is over. Where the daemon is killed, an error after that
    /// is no surprise, and ends the work.
    pub(super) fn work(&mut self, done: &Sender<()>, phase: &Phase, lethal: bool) -> Result<()> {
        while !phase.is_over() {
            match self.round() {
                Ok(()) => self.rounds += 1,
                Err(_) if lethal && phase.is_failing() => return Ok(()),
                Err(error) => return Err(error),
            }
            // Nobody may be listening any more.
            let _ = done.send(());
        }
        Ok(())
    }

    fn prepare(&self) -> Result<()> {
        match self.kind {
            Kind::Fio => Ok(()),
            Kind::Sqlite => self
                .sqlite(
                    "PRAGMA journal_mode=WAL; CREATE TABLE t(n INTEGER, filling); CREATE INDEX i ON t(n);",
                )
                .map(drop),
            Kind::Rocksdb => self.db_bench("fillseq,verifychecksum", false),
        }
    }

    fn round(&self) -> Result<()> {
        match self.kind {
            Kind::Fio => self.fio(),
            Kind::Sqlite => self.insert(),
            Kind::Rocksdb => self.db_bench("overwrite,readrandom,verifychecksum", true),
        }
    }

    /// What is there after the daemon was killed is whole.
    pub(super) fn verify(&self) -> Result<()> {
        match self.kind {
            Kind::Fio => Ok(()),
            Kind::Sqlite => self.check_sqlite(),
            Kind::Rocksdb => self.db_bench("readseq,verifychecksum", true),
        }
    }

    /// Written at random, by direct I/O and through the cache in turns, and
    /// read back.
    fn fio(&self) -> Result<()> {
        let direct = self.rounds % 2;
        let engine = if direct == 1 { "libaio" } else { "psync" };
        cmd("fio")
            .arg("--name=moving")
            .arg(format!("--directory={}", self.dir.display()))
            .arg(format!("--direct={direct}"))
            .arg(format!("--ioengine={engine}"))
            .arg(format!("--randseed={}", self.rounds + 1))
            .args(["--rw=randwrite", "--bs=16k", "--size=8m", "--numjobs=2", "--iodepth=8"])
            .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--do_verify=1"])
            .args(["--group_reporting", "--minimal"])
            .quiet()
    }

    fn insert(&self) -> Result<()> {
        // What was committed just as the daemon was killed is there already.
        let mut script = format!("BEGIN; DELETE FROM t WHERE n >= {};", self.rounds * ROWS);
        for row in 0..ROWS {
            // Writing to a string does not fail.
            let _ = write!(script, "INSERT INTO t VALUES({}, randomblob(20000));", self.rounds * ROWS + row);
        }
        self.sqlite(&(script + "COMMIT;"))?;
        // It would grow without end.
        self.sqlite(&format!("DELETE FROM t WHERE n < {};", (self.rounds * ROWS).saturating_sub(400)))?;
        self.check_sqlite()
    }

    fn check_sqlite(&self) -> Result<()> {
        let answer = self.sqlite("PRAGMA integrity_check; SELECT count(*) = count(DISTINCT n) FROM t;")?;
        ensure(answer.split_whitespace().eq(["ok", "1"]), || format!("SQLite: {answer}"))
    }

    fn sqlite(&self, script: &str) -> Result<String> {
        let sqlite =
            cmd("sqlite3").args(["-bail", "-cmd", ".timeout 60000", "-cmd", "PRAGMA synchronous=FULL"]);
        sqlite.arg(self.dir.join("db")).input(script).read()
    }

    fn db_bench(&self, benchmarks: &str, existing: bool) -> Result<()> {
        let text = cmd("db_bench")
            .arg(format!("--db={}", self.dir.join("db").display()))
            .arg(format!("--benchmarks={benchmarks}"))
            .arg(format!("--use_existing_db={}", u8::from(existing)))
            .args(["--num=8000", "--value_size=1000", "--write_buffer_size=1048576"])
            .args(["--target_file_size_base=1048576", "--compression_type=none"])
            .read()?;
        ensure(!text.contains("orruption"), || text.clone())
    }
}
