//! The loads that run while data moves: fio with checksums, SQLite, RocksDB.
//! Each does a short round again and again and looks whether everything is
//! right.

use crate::load::Phase;
use braid_tests_support::error::{Result, ensure};
use braid_tests_support::sh::cmd;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// The newest rows before those of a round, which it keeps.
const ROWS_KEPT: u64 = 400;

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

    /// Works until it is over. Once the volume is `gone`, an error is no
    /// surprise, and ends the work.
    pub(super) fn work(&mut self, done: &Sender<()>, phase: &Phase, gone: &AtomicBool) -> Result<()> {
        while !phase.is_over() {
            match self.round() {
                Ok(()) => self.rounds += 1,
                Err(_) if gone.load(Ordering::SeqCst) => return Ok(()),
                Err(error) => return Err(error),
            }
            // The receiver may be gone.
            let _ = done.send(());
        }
        Ok(())
    }

    fn prepare(&self) -> Result<()> {
        match self.kind {
            Kind::Fio => self.kept("--do_verify=1"),
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

    /// Verifies that all data written and synced is there, and intact.
    pub(super) fn verify(&self) -> Result<()> {
        match self.kind {
            Kind::Fio => self.kept("--verify_only"),
            Kind::Sqlite => self.check_sqlite(self.rounds),
            Kind::Rocksdb => self.db_bench("readseq,verifychecksum", true),
        }
    }

    /// A file that is written once, and synced, or verified by the checksums in
    /// its blocks; past the cache.
    fn kept(&self, mode: &str) -> Result<()> {
        cmd("fio")
            .arg("--name=kept")
            .arg(format!("--directory={}", self.dir.display()))
            .args(["--direct=1", "--ioengine=psync", "--rw=write", "--bs=64k", "--size=8m", "--end_fsync=1"])
            .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--randseed=7"])
            .args([mode, "--minimal"])
            .quiet()
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
            .args(["--rw=randwrite", "--bs=16k", "--size=4m", "--numjobs=2", "--iodepth=8"])
            .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--do_verify=1"])
            .args(["--group_reporting", "--minimal"])
            .quiet()
    }

    fn insert(&self) -> Result<()> {
        // A commit during the kill may be there already.
        let mut script = format!("BEGIN; DELETE FROM t WHERE n >= {};", self.rounds * ROWS);
        for row in 0..ROWS {
            // Writing to a string does not fail.
            let _ = write!(script, "INSERT INTO t VALUES({}, randomblob(20000));", self.rounds * ROWS + row);
        }
        self.sqlite(&(script + "COMMIT;"))?;
        // It would grow without end.
        let old = (self.rounds * ROWS).saturating_sub(ROWS_KEPT);
        self.sqlite(&format!("DELETE FROM t WHERE n < {old};"))?;
        self.check_sqlite(self.rounds + 1)
    }

    /// The newest rows of all acknowledged rounds are there, each once, and
    /// beyond them those of the next round, all or none: it may have been
    /// committed without an acknowledgement.
    fn check_sqlite(&self, rounds: u64) -> Result<()> {
        let end = rounds * ROWS;
        let answer = self.sqlite(&format!(
            "PRAGMA integrity_check; SELECT count(*) = count(DISTINCT n) FROM t; \
             SELECT count(*) FROM t WHERE n >= {begin} AND n < {end}; \
             SELECT count(*) IN (0, {ROWS}) AND coalesce(max(n) = {last}, 1) FROM t WHERE n >= {end};",
            begin = end.saturating_sub(ROWS_KEPT),
            last = end + ROWS - 1,
        ))?;
        let expected = ["ok".to_owned(), "1".to_owned(), end.min(ROWS_KEPT).to_string(), "1".to_owned()];
        ensure(answer.split_whitespace().eq(expected), || {
            format!("SQLite after {rounds} rounds of {ROWS} rows: {answer}")
        })
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
            .args(["--num=4000", "--value_size=1000", "--write_buffer_size=1048576"])
            .args(["--target_file_size_base=1048576", "--compression_type=none"])
            .read()?;
        ensure(!text.contains("orruption"), || text.clone())
    }
}
