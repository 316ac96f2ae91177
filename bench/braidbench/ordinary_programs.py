"""Loads of `ordinary` that are databases: RocksDB by db_bench, Redis, PostgreSQL by pgbench. All
use their defaults unless noted, so buffered files."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from braidbench import programs, sides
from braidbench.host import BenchError, run
from braidbench.ordinary_bench import TIMEOUT_S, Bench, Load, Row

ROCKSDB = {name: Row(f"RocksDB {name}", "/s")
           for name in ("fillrandom", "overwrite", "readrandom", "readwhilewriting", "fillsync")}
EVERYSEC, ALWAYS = Row("Redis SET, AOF synced each second", "/s"), Row("Redis SET, AOF always synced", "/s")
BGSAVE = Row("Redis BGSAVE", "s")
INITDB = Row("PostgreSQL initdb", "s")
MIXED, SELECTS = Row("pgbench, TPC-B-like", "/s"), Row("pgbench, SELECT only", "/s")
POSTGRES = "postgres"
CLIENTS = 4


def _rocksdb(bench: Bench, side: sides.Side) -> None:
    keys, database = bench.work.keys, side.root / "rocksdb"
    steps = [
        ("fillrandom", "fillrandom", keys, []),
        ("overwrite", "overwrite", keys, ["--use_existing_db=1"]),
        # The second time, the caches are as full as they get.
        ("readrandom", "readrandom,readrandom", keys, ["--use_existing_db=1"]),
        ("readwhilewriting", "readwhilewriting", keys, ["--use_existing_db=1", f"--reads={keys // 4}"]),
        ("fillsync", "fillsync", keys, [f"--writes={bench.work.synced_keys}"]),
    ]
    for name, benchmarks, count, more in steps:
        row = ROCKSDB[name]
        argv = ["db_bench", f"--db={database}", f"--benchmarks={benchmarks}", f"--num={count}", "--seed=1",
                "--compression_type=none", *more]
        with bench.counted(side, row):
            said = programs.output(bench.host, argv)
        bench.put(side, row, programs.operations(said))


def _redis(bench: Bench, side: sides.Side) -> None:
    keys = bench.work.redis_keys
    for row, sync, count in ((EVERYSEC, "everysec", keys), (ALWAYS, "always", keys // 10)):
        with programs.redis(bench.host, side, "--appendonly", "yes", "--appendfsync", sync) as socket:
            with bench.counted(side, row):
                said = programs.output(bench.host, programs.sets(socket, count, keys))
            bench.put(side, row, programs.requests(said)[0])
        run("rm", "-rf", side.root / "redis")
    with programs.redis(bench.host, side, "--appendonly", "no") as socket:
        programs.output(bench.host, programs.sets(socket, keys, keys))
        with bench.counted(side, BGSAVE):
            began = time.monotonic()
            run("redis-cli", "-s", socket, "bgsave")
            bench.put(side, BGSAVE, programs.until_saved(socket) - began)


def postgres_programs() -> Path | None:
    """Where PostgreSQL's programs are: the newest of Debian's versions, or those of the search path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[4]))
    other = shutil.which("postgres")
    return found[-1].parent if found else Path(other).parent if other else None


def _postgresql(bench: Bench, side: sides.Side) -> None:
    bin, data, socket = postgres_programs(), side.root / "postgresql", bench.host.directory("pg")
    # The server refuses to be root, and reaches its files through directories that are root's.
    bench.host.work.chmod(0o711)
    run("mkdir", data)
    run("chown", POSTGRES, data, socket)
    demoted = ["env", "--chdir=/", "setpriv", f"--reuid={POSTGRES}", f"--regid={POSTGRES}", "--clear-groups"]
    bench.put(side, INITDB, bench.seconds(side, INITDB, *demoted, bin / "initdb", "-D", data, "-U", POSTGRES, "-A", "trust",
                                          "-E", "UTF8", "--locale=C"))
    client = ["-h", str(socket), "-U", POSTGRES]
    server = [*demoted, str(bin / "postgres"), "-D", str(data), "-k", str(socket), "-c", "listen_addresses="]
    with _postgres(server, bench, side):
        _until_ready(str(bin / "pg_isready"), client)
        run(bin / "pgbench", *client, "--initialize", "--quiet", f"--scale={bench.work.pgbench_scale}", POSTGRES,
            timeout=TIMEOUT_S)
        for row, more in ((MIXED, []), (SELECTS, ["--select-only"])):
            with bench.counted(side, row):
                said = run(bin / "pgbench", *client, f"--time={bench.work.pgbench_seconds}", f"--client={CLIENTS}", "--jobs=2",
                           *more, POSTGRES, timeout=TIMEOUT_S)
            rate = re.search(r"tps = ([\d.]+)", said)
            if not rate:
                raise BenchError("pgbench gave no result")
            bench.put(side, row, float(rate[1]))


@contextlib.contextmanager
def _postgres(argv: list[str], bench: Bench, side: sides.Side):
    """A PostgreSQL server while the block runs."""
    with open(bench.host.work / f"postgres-{side.place}.out", "ab") as log:
        process = bench.host.spawn(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        # Its fast shutdown.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            programs.end(process)


def _until_ready(program: str, client: list[str]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            run(program, *client)
            return
        except BenchError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


DATABASES = [
    Load("rocksdb", tuple(ROCKSDB.values()), _rocksdb, ("db_bench",), "rocksdb-tools"),
    Load("redis", (EVERYSEC, ALWAYS, BGSAVE), _redis, ("redis-server", "redis-cli", "redis-benchmark"), "redis-server"),
    Load("postgresql", (INITDB, MIXED, SELECTS), _postgresql, ("postgresql",), "postgresql"),
]
