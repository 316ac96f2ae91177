"""RocksDB (db_bench, Debian's rocksdb-tools) in scenario `zoned`: its defaults but for compression."""

from __future__ import annotations

import json
import re
import signal
import sys

from braidbench import programs
from braidbench.host import BenchError, Host
from braidbench.zoned_volume import Volume

KEY_LEN, VALUE_LEN = 20, 400
# With FIFO compaction: the share of the zones' room that the tables may take, and how often the room is written.
FIFO_SHARE, FIFO_TIMES = 0.8, 2
PERCENTILES = re.compile(r"P50: ([0-9.]+) .*P99: ([0-9.]+) .*P99\.99: ([0-9.]+)")
SECONDS = re.compile(r"ops/sec ([0-9.]+) seconds")
WRITTEN = re.compile(r"rocksdb\.bytes\.written COUNT : (\d+)")
WRITES = re.compile(r"rocksdb\.db\.write\.micros P50 : ([0-9.]+) .*P99 : ([0-9.]+) P100 : ([0-9.]+)")
# Writes eight logs in turn, 32 MiB each, and begins each anew, until it is killed.
LOGS = """
import os, sys
line = b"2026-01-01T00:00:00Z INFO request served in 12 ms\\n" * 1311
at = 0
while True:
    with open(os.path.join(sys.argv[1], "app.log.%d" % (at % 8)), "wb") as log:
        for _ in range(512):
            log.write(line)
    at += 1
"""


def fill(host: Host, volume: Volume, keys: int) -> dict[str, float]:
    """Fills a new database."""
    return _writes(host, volume, keys, "fillrandom", "--use_existing_db=0")


def overwrite(host: Host, volume: Volume, keys: int) -> dict[str, float]:
    """Writes as many keys once more."""
    return _writes(host, volume, keys, "overwrite", "--use_existing_db=1")


def mixed(host: Host, volume: Volume, keys: int) -> dict[str, float]:
    """The same, beside a program that writes and rotates logs."""
    logs = volume.mount / "logs"
    logs.mkdir(exist_ok=True)
    beside = programs.start(host, [sys.executable, "-c", LOGS, str(logs)])
    try:
        return overwrite(host, volume, keys)
    finally:
        programs.end(beside)


def read_while_writing(host: Host, volume: Volume, keys: int) -> dict[str, float]:
    """One thread reads half as many keys as there are, another one writes meanwhile. db_bench
    reports only the reads; RocksDB's own statistics report the writes."""
    with volume.measured() as figures:
        said = programs.output(host, _db_bench(volume, keys, "readwhilewriting", "--use_existing_db=1", "--statistics=1",
                                               f"--reads={keys // 2}"))
    seconds, written, writes = (_found(pattern, said) for pattern in (SECONDS, WRITTEN, WRITES))
    figures |= _told(said)
    figures["program wrote"] = written[0] / 1e6 / seconds[0]
    figures |= zip(("write p50", "write p99", "write at most"), writes)
    return figures


def fifo(host: Host, volume: Volume) -> dict[str, float]:
    """Overwrites with FIFO compaction: the oldest table goes when they take more than their share of the room."""
    room = volume.room()
    keys = FIFO_TIMES * room // (KEY_LEN + VALUE_LEN)
    return _writes(host, volume, keys, "overwrite", "--use_existing_db=0", "--compaction_style=2",
                   f"--fifo_compaction_max_table_files_size_mb={int(FIFO_SHARE * room) >> 20}")


def several(host: Host, volume: Volume, keys: int, loads: dict[str, list[str]]) -> dict[str, float]:
    """Overwrites beside other loads, which are ended with it; each of them reports how long its
    files took."""
    beside = {name: programs.start(host, argv) for name, argv in loads.items()}
    try:
        with volume.measured() as figures:
            own = _told(programs.output(host, _db_bench(volume, keys, "overwrite", "--use_existing_db=1")))
            for process in beside.values():
                process.send_signal(signal.SIGTERM)
            said = {name: json.loads(programs.finish(process)) for name, process in beside.items()}
    finally:
        for process in beside.values():
            programs.end(process)
    figures |= own
    for name, told in said.items():
        figures[f"{name} p99"] = told["p99"]
        figures[f"{name} wrote"] = told["program wrote"]
    return figures


def _writes(host: Host, volume: Volume, keys: int, benchmark: str, *more: str) -> dict[str, float]:
    with volume.measured() as figures:
        said = programs.output(host, _db_bench(volume, keys, benchmark, *more))
    figures |= _told(said)
    return figures


def _db_bench(volume: Volume, keys: int, benchmark: str, *more: str) -> list[str]:
    return ["db_bench", f"--db={volume.mount / 'db'}", f"--benchmarks={benchmark}", f"--num={keys}", f"--key_size={KEY_LEN}",
            f"--value_size={VALUE_LEN}", "--compression_type=none", "--seed=1", "--max_background_jobs=4", "--histogram=1",
            *more]


def _told(said: str) -> dict[str, float]:
    """The figures of db_bench on its operations."""
    rate = programs.operations(said)
    told = {"operations": rate, "program wrote": rate * (KEY_LEN + VALUE_LEN) / 1e6}
    return told | dict(zip(("p50", "p99", "p99.99"), _found(PERCENTILES, said)))


def _found(pattern: re.Pattern, said: str) -> list[float]:
    found = pattern.search(said)
    if found is None:
        raise BenchError(f"db_bench did not say {pattern.pattern}")
    return [float(text) for text in found.groups()]
