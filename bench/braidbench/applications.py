"""Scenario `applications`: RocksDB by `db_bench`, Redis with its append-only file and BGSAVE, and both together
(PolyStore figure 9). Both are fixed work; each side does the same."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from braidbench import checks, programs, sides
from braidbench.devices import GIB
from braidbench.evaluation import Bench, explain_suspects, median_text, stop_all
from braidbench.host import Host, run
from braidbench.report import Report, number

SUMMARY = "RocksDB (db_bench), Redis (append-only file, BGSAVE) and both together"
CELLS = ["rocksdb", "redis", "both"]
PROGRAMS = {"rocksdb": ["db_bench"], "redis": ["redis-server", "redis-cli", "redis-benchmark"]}
VALUE_LEN = 512
# Name, db_bench's own name, threads, share of the keys that are read or written, and more options.
STEPS = [
    ("fillrandom", "fillrandom", 4, 1.0, []),
    ("overwrite", "overwrite", 4, 1.0, []),
    ("readrandom", "readrandom", 16, 0.25, []),
    ("readwhilewriting", "readwhilewriting", 8, 0.25, []),
    ("YCSB-like A: half reads", "readrandomwriterandom", 16, 0.25, ["--readwritepercent=50"]),
    ("YCSB-like B: 95 % reads", "readrandomwriterandom", 16, 0.25, ["--readwritepercent=95"]),
    ("YCSB-like C: skewed reads", "readrandom", 16, 0.25, ["--read_random_exp_range=10"]),
    ("YCSB-like E: scans of 50", "seekrandom", 16, 0.01, ["--seek_nexts=50"]),
    ("YCSB-like F: read-modify-write", "updaterandom", 16, 0.25, []),
]
REDIS = ["AOF, synced each second", "AOF, always synced", "set during BGSAVE", "BGSAVE"]


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = [cell for cell in bench.chosen(CELLS) if _has_programs(bench, cell)]
    keys = 20_000 if args.quick else 200_000
    report.settings.update(keys=keys, value=VALUE_LEN, redis_value=programs.REDIS_VALUE_LEN)
    room = 8 * GIB
    tiers = bench.tiers(2, [room] * 2)
    lineup = [*bench.natives(tiers), *bench.mergerfs(tiers), *bench.btrfs(2, room), *bench.braids(tiers)]
    actions = {"rocksdb": _rocksdb, "redis": _redis, "both": _both}
    try:
        for repetition in range(args.reps):
            bench.repetition = repetition + 1
            for cell in cells:
                for side in lineup:
                    bench.attempt(side, cell, lambda s=side, c=cell: _one(bench, s, actions[c], keys))
    finally:
        stop_all(lineup)
        _tabulate(bench, lineup, cells)
        explain_suspects(report)


def _has_programs(bench: Bench, cell: str) -> bool:
    wanted = [name for part, names in PROGRAMS.items() if cell in (part, "both") for name in names]
    missing = [name for name in wanted if shutil.which(name) is None]
    if missing:
        bench.report.remarks.append(f"{cell} was left out, missing: {', '.join(missing)} (Debian: rocksdb-tools, redis-server)")
    return not missing


def _one(bench: Bench, side: sides.Side, action, keys: int) -> None:
    used = side.used()
    try:
        action(bench, side, keys)
    finally:
        bench.clear(side, bench.report.cell(side.name, "cleaning"), used, 2**29)


def _db_bench(side: sides.Side, name: str, threads: int, count: int, keys: int, more: list[str]) -> list[str]:
    """Compaction and reads are direct, so that they meet the devices and their throttle."""
    each = max(1, count // threads)
    argv = ["db_bench", f"--db={side.root / 'db'}", f"--wal_dir={side.root / 'db'}", f"--benchmarks={name}", f"--num={keys}",
            f"--threads={threads}", f"--reads={each}", f"--writes={each}", f"--value_size={VALUE_LEN}", "--seed=1",
            "--compression_type=none", "--max_background_jobs=4", "--write_buffer_size=16777216",
            "--target_file_size_base=16777216", "--wal_bytes_per_sync=1048576", f"--use_existing_db={int(name != 'fillrandom')}"]
    if side.takes_direct():
        argv += ["--use_direct_reads=1", "--use_direct_io_for_flush_and_compaction=1"]
    return argv + more


def _rocksdb(bench: Bench, side: sides.Side, keys: int) -> None:
    for text, name, threads, share, more in STEPS:
        side.evict()
        before, began = side.transferred(), time.monotonic()
        said = programs.output(bench.host, _db_bench(side, name, threads, int(share * keys), keys, more))
        cell = bench.report.cell(side.name, text, "/s")
        cell.samples.append(programs.operations(said))
        for rw in ("write", "read"):
            checks.examine(cell, side, rw, 0, before, time.monotonic() - began)


def _record_redis(bench: Bench, side: sides.Side, what: str, said: str) -> None:
    rate, p99 = programs.requests(said)
    bench.report.cell(side.name, what, "/s").samples.append(rate)
    bench.report.cell(side.name, f"{what} p99", "ms").samples.append(p99)


def _redis(bench: Bench, side: sides.Side, keys: int) -> None:
    for what, sync, count in ((REDIS[0], "everysec", keys), (REDIS[1], "always", keys // 10)):
        with programs.redis(bench.host, side, "--appendonly", "yes", "--appendfsync", sync) as socket:
            _record_redis(bench, side, what, programs.output(bench.host, programs.sets(socket, count, keys)))
        run("rm", "-rf", side.root / "redis")
    with programs.redis(bench.host, side, "--appendonly", "no") as socket:
        programs.output(bench.host, programs.sets(socket, keys, keys))
        began = time.monotonic()
        run("redis-cli", "-s", socket, "bgsave")
        beside = programs.start(bench.host, programs.sets(socket, keys // 2, keys))
        try:
            seconds = programs.until_saved(socket) - began
        finally:
            said = programs.finish(beside)
        _record_redis(bench, side, REDIS[2], said)
    size = (side.root / "redis/dump.rdb").stat().st_size
    bench.report.cell(side.name, REDIS[3], "MB/s").samples.append(size / 1e6 / seconds)


def _both(bench: Bench, side: sides.Side, keys: int) -> None:
    with programs.redis(bench.host, side, "--appendonly", "yes", "--appendfsync", "everysec") as socket:
        began = time.monotonic()
        database = programs.start(bench.host, _db_bench(side, "fillrandom", 4, keys, keys, []))
        try:
            _record_redis(bench, side, "both: Redis, AOF", programs.output(bench.host, programs.sets(socket, keys, keys)))
            bench.report.cell(side.name, "both: fillrandom", "/s").samples.append(programs.operations(programs.finish(database)))
        finally:
            programs.end(database)
        bench.report.cell(side.name, "both: until both were done", "s").samples.append(time.monotonic() - began)


def _tabulate(bench: Bench, lineup: list[sides.Side], cells: list[str]) -> None:
    if "rocksdb" in cells:
        names = [text for text, *_ in STEPS]
        _table(bench, lineup, "RocksDB: operations in a second (over the best native tier)", names)
    if "redis" in cells:
        _table(bench, lineup, "Redis: requests in a second, and MB/s of BGSAVE (over the best native tier)", REDIS)
        p99s = [f"{what} p99" for what in REDIS[:3]]
        bench.report.table("Redis: p99 in ms", ["side", *p99s],
                           [[side.name, *(median_text(bench.report, side.name, what) for what in p99s)] for side in lineup])
    if "both" in cells:
        names = ["both: fillrandom", "both: Redis, AOF", "both: until both were done"]
        _table(bench, lineup, "both at once: rates in a second (over the best native tier), and seconds", names)


def _table(bench: Bench, lineup: list[sides.Side], title: str, names: list[str]) -> None:
    rows = [[side.name, *(_over_native(bench.report, lineup, side.name, what) for what in names)] for side in lineup]
    bench.report.table(title, ["side", *names], rows)


def _over_native(report: Report, lineup: list[sides.Side], side: str, what: str) -> str:
    text, own = median_text(report, side, what), report.cells.get((side, what))
    natives = [report.cells[other.name, what].median for other in lineup
               if other.name.startswith("native-") and (other.name, what) in report.cells]
    natives = [median for median in natives if median]
    if own is None or not own.median or not natives:
        return text
    best = min(natives) if own.unit == "s" else max(natives)
    report.ratios[f"{what}: {side} / best native"] = round(own.median / best, 4)
    return f"{text} ({number(own.median / best)})"
