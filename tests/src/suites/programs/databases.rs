//! SQLite, RocksDB and Redis.

use super::place::Place;
use braid_tests_support::error::{Context, Result, ensure, fail};
use braid_tests_support::sh::{Cmd, cmd, uninterrupted};
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

const SQLITE_WRITERS: u64 = 4;

/// Four processes, each with transactions of its own, on a database with a
/// write-ahead log.
pub(super) fn sqlite(place: &Place<'_>) -> Result<()> {
    let rows = 100 * place.scale;
    let create = "PRAGMA journal_mode=WAL; CREATE TABLE t(writer, n, filling);";
    sqlite_cmd(place).input(create).quiet()?;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..SQLITE_WRITERS)
            .map(|writer| scope.spawn(move || sqlite_writer(place, writer, rows)))
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|_| fail("a writer panicked")))
    })?;
    let count = sqlite_cmd(place).input("SELECT count(DISTINCT writer * 1000000 + n) FROM t;").read()?;
    ensure(count.trim() == (SQLITE_WRITERS * rows).to_string(), || format!("{} rows", count.trim()))?;
    sqlite_integrity(place)
}

fn sqlite_writer(place: &Place<'_>, writer: u64, rows: u64) -> Result<()> {
    let mut script = String::new();
    for n in 0..rows {
        // Writing to a string does not fail.
        let _ = writeln!(script, "INSERT INTO t VALUES({writer}, {n}, randomblob(2000));");
    }
    sqlite_cmd(place).input(script).quiet()
}

/// The database is whole.
pub(super) fn sqlite_integrity(place: &Place<'_>) -> Result<()> {
    let answer = sqlite_cmd(place).input("PRAGMA integrity_check;").read()?;
    ensure(answer.trim() == "ok", || answer.clone())
}

fn sqlite_cmd(place: &Place<'_>) -> Cmd {
    cmd("sqlite3")
        .args(["-bail", "-cmd", ".timeout 60000", "-cmd", "PRAGMA synchronous=FULL"])
        .arg(place.dir.join("db"))
}

/// Synced writes, then reads, then a check of every checksum.
pub(super) fn rocksdb(place: &Place<'_>) -> Result<()> {
    let num = 2_000 * place.scale;
    let sync = [format!("--num={num}"), "--sync=1".into()];
    db_bench(place, "fillseq,overwrite,readrandom,verifychecksum", &sync)?;
    let bulk = [format!("--num={}", 40 * num), "--use_existing_db=1".into()];
    db_bench(place, "overwrite,compact,readrandom,verifychecksum", &bulk)
}

/// The same by direct I/O, and by mapping.
pub(super) fn rocksdb_direct(place: &Place<'_>) -> Result<()> {
    let num = format!("--num={}", 40_000 * place.scale);
    let direct =
        [num.clone(), "--use_direct_reads=1".into(), "--use_direct_io_for_flush_and_compaction=1".into()];
    db_bench(place, "fillrandom,compact,readrandom,verifychecksum", &direct)?;
    let mapped = [num, "--mmap_read=1".into(), "--mmap_write=1".into(), "--use_existing_db=1".into()];
    db_bench(place, "overwrite,compact,readrandom,verifychecksum", &mapped)
}

fn db_bench(place: &Place<'_>, benchmarks: &str, options: &[String]) -> Result<()> {
    let text = cmd("db_bench")
        .arg(format!("--db={}", place.dir.join("db").display()))
        .arg(format!("--benchmarks={benchmarks}"))
        .args(["--value_size=1000", "--write_buffer_size=4194304", "--compression_type=none"])
        .args(options)
        .read()?;
    ensure(!text.contains("orruption"), || text.clone())
}

/// Every write is acknowledged only when it is in the append-only file; the
/// server is killed, and started again on the remaining data.
pub(super) fn redis(place: &Place<'_>) -> Result<()> {
    let keys = 500 * place.scale;
    let socket = place.arena.lab.path().join("redis.sock");
    let mut server = Redis::start(place.dir, &socket)?;
    let script = (0..keys).map(|n| format!("SET key{n} value{n}\n")).collect::<String>();
    let answers = server.command().input(script).read()?;
    ensure(answers.matches("OK").count() as u64 == keys, || format!("not every SET succeeded: {answers}"))?;
    server.kill()?;
    let server = Redis::start(place.dir, &socket)?;
    let count = server.command().arg("DBSIZE").read()?;
    ensure(count.trim() == keys.to_string(), || format!("{} of {keys} keys", count.trim()))?;
    let last = server.command().arg("GET").arg(format!("key{}", keys - 1)).read()?;
    ensure(last.trim() == format!("value{}", keys - 1), || format!("the last value is {last}"))
}

/// A Redis server that ends with this value.
struct Redis<'a> {
    child: Child,
    socket: &'a Path,
}

impl<'a> Redis<'a> {
    fn start(dir: &Path, socket: &'a Path) -> Result<Self> {
        uninterrupted()?;
        let mut child = std::process::Command::new("redis-server")
            .args(["--port", "0", "--daemonize", "no", "--appendonly", "yes", "--appendfsync", "always"])
            .args(["--save", "", "--unixsocket"])
            .arg(socket)
            .arg("--dir")
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("redis-server")?;
        let out = child.stdout.take();
        let server = Self { child, socket };
        let mut said = String::new();
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let line = line?;
            if line.contains("eady to accept connections") {
                return Ok(server);
            }
            said = said + &line + "\n";
        }
        fail(format!("redis-server did not start:\n{said}"))
    }

    fn command(&self) -> Cmd {
        cmd("redis-cli").arg("-s").arg(self.socket)
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Redis<'_> {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.kill();
    }
}
