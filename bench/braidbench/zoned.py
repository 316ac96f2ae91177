"""Scenario `zoned`: programs on an emulated zoned device in memory, with streams by profile, without, and learned (Reshim,
figures 3 to 6 and 9 to 11): RocksDB, alone and beside others, loads that no profile knows, and loads that write in place."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from braidbench import programs, zoned_rocksdb
from braidbench.evaluation import chosen
from braidbench.host import BenchError, Host
from braidbench.report import Report, number
from braidbench.zoned_volume import OPEN, SIDES, Volume, mounted

SUMMARY = "RocksDB and others on an emulated zoned device: throughput, latency, write amplification, with and without streams"
WORK_DIR = Path("/dev/shm")
HERE = Path(__file__).parent
MIB = 2**20
ZONE_MIB = 64
# These go on with the same volume, each with the files of those before it.
ONE_BY_ONE = {"fill": zoned_rocksdb.fill, "overwrite": zoned_rocksdb.overwrite, "mixed": zoned_rocksdb.mixed}
# Steps, steps a second, zones, MiB of a zone.
LOADS = {"log-store": (2000, 40, 44, 8), "spool": (8000, 100, 30, 4)}
# Times the room is written, zones, MiB of a zone.
CHURN = (100, 130, 2)
# Zones for the bytes of the load: for those of a document store that are free between checkpoints,
# and its journal; a cache fills its device. In each, a zone is a 64th of the bytes.
ROOM = {"document": 104, "cache": 72}
# Whether the journal's files have their whole length at once.
PREALLOCATED = {"document": "no", "document-preallocated": "yes"}
# Zones that the log store and the spool take beside RocksDB.
SEVERAL_ZONES = 6
FIGURES = [("operations", "/s"), ("program wrote", "MB/s"), ("in all", "GB"), ("seconds", "s"), ("p50", "µs"), ("p99", "µs"),
           ("p99.99", "µs"), ("at most", "µs"), ("write p50", "µs"), ("write p99", "µs"), ("write at most", "µs"),
           ("region p50", "µs"), ("region p99", "µs"), ("log-store wrote", "MB/s"), ("log-store p99", "µs"),
           ("spool wrote", "MB/s"), ("spool p99", "µs"), ("written", "GB"), ("amplification", ""), ("moved", "MB"),
           ("mixed zones", ""), ("streams", ""), ("memory", "MB"), ("waits", ""), ("longest wait", "ms"), ("in use", "%"),
           ("in use at most", "%"), ("to home", "MB"), ("on home", "MB"), ("journal in zones", "%"),
           ("collection in zones", "%"), ("index in zones", "%"), ("history in zones", "%"), ("regions in zones", "%"),
           ("buckets in zones", "%")]


class Run:
    """The means of all cells' measurements."""

    def __init__(self, host: Host, report: Report, args):
        self.host, self.report, self.args = host, report, args
        self.keys = args.keys or (200_000 if args.quick else 5_000_000)
        self.size = args.size or (64 if args.quick else 1024) * MIB

    def mounted(self, side: str, zones: int, zone_mib: int, **more):
        """A new volume of the side."""
        return mounted(self.host, self.args.braid, side, zones, zone_mib, **more)

    def output(self, program: str, *words: str | int | float) -> dict[str, float]:
        """Runs a load of ours to its end; returns its output."""
        return json.loads(programs.output(self.host, command(program, *words)))

    def keep(self, side: str, cell: str, figures: dict[str, float]) -> None:
        """Adds a sample of each figure."""
        for what, unit in FIGURES:
            if what in figures:
                self.report.cell(side, f"{cell}: {what}", unit).samples.append(figures[what])


def command(program: str, *words: str | int | float) -> list[str]:
    """The command of a load of ours."""
    return [sys.executable, "-B", str(HERE / program), *map(str, words)]


def measure(host: Host, report: Report, args, _keep: Path) -> None:
    """Runs the scenario."""
    own = {"readwhilewriting": _read_while_writing, "fifo": _fifo, "several": _several, "log-store": _load, "spool": _load,
           "document": _document, "document-preallocated": _document, "cache": _cache, "churn": _churn}
    cells = chosen(args, [*ONE_BY_ONE, *own])
    if {*ONE_BY_ONE, "readwhilewriting", "fifo", "several"} & {*cells} and shutil.which("db_bench") is None:
        raise BenchError("db_bench is missing (Debian: rocksdb-tools)")
    lineup = [side for side in SIDES if not args.sides or side in args.sides]
    bench = Run(host, report, args)
    report.settings.update(keys=bench.keys, key=zoned_rocksdb.KEY_LEN, value=zoned_rocksdb.VALUE_LEN, zones=args.zones,
                           zone_mib=ZONE_MIB, open=OPEN, size=bench.size)
    try:
        for repetition in range(args.reps):
            for side in lineup if repetition % 2 == 0 else reversed(lineup):
                args.progress(f"repetition {repetition + 1}/{args.reps}, {side}")
                _one_by_one(bench, side, [cell for cell in ONE_BY_ONE if cell in cells])
                for cell in (cell for cell in own if cell in cells):
                    args.progress(f"repetition {repetition + 1}/{args.reps}, {cell}, {side}")
                    _attempt(bench, side, cell, own[cell])
    finally:
        for cell in cells:
            _tabulate(report, cell, lineup)


def _attempt(bench: Run, side: str, cell: str, action: Callable[[Run, str, str], dict[str, float]]) -> None:
    """A cell that fails is the side's failure, not the run's."""
    try:
        bench.keep(side, cell, action(bench, side, cell))
    except BenchError as error:
        bench.report.cell(side, cell).failures.append(str(error))


def _tabulate(report: Report, cell: str, lineup: list[str]) -> None:
    """A table with a row for each existing figure."""
    told = [(what, unit) for what, unit in FIGURES if any((side, f"{cell}: {what}") in report.cells for side in lineup)]
    rows = [[f"{what}, {unit}" if unit else what, *(_text(report, side, f"{cell}: {what}") for side in lineup)]
            for what, unit in told]
    report.table(f"{cell} on zones", ["", *lineup], rows)


def _text(report: Report, side: str, what: str) -> str:
    median = report.cell(side, what).median
    return "" if median is None else f"{median:.2f}" if median < 10 else number(median)


def _one_by_one(bench: Run, side: str, cells: list[str]) -> None:
    """A new volume; the cells build on one another."""
    if not cells:
        return
    with bench.mounted(side, bench.args.zones, ZONE_MIB, small_files=False) as volume:
        for cell in cells:
            _attempt(bench, side, cell, lambda *_, cell=cell: ONE_BY_ONE[cell](bench.host, volume, bench.keys))


def _read_while_writing(bench: Run, side: str, _cell: str) -> dict[str, float]:
    with bench.mounted(side, bench.args.zones, ZONE_MIB, small_files=False) as volume:
        zoned_rocksdb.fill(bench.host, volume, bench.keys)
        return zoned_rocksdb.read_while_writing(bench.host, volume, bench.keys)


def _fifo(bench: Run, side: str, _cell: str) -> dict[str, float]:
    with bench.mounted(side, bench.args.zones, ZONE_MIB, small_files=False) as volume:
        return zoned_rocksdb.fifo(bench.host, volume)


def _several(bench: Run, side: str, _cell: str) -> dict[str, float]:
    """RocksDB overwrites a filled database; the log store and the spool end with it."""
    with bench.mounted(side, bench.args.zones + SEVERAL_ZONES, ZONE_MIB) as volume:
        zoned_rocksdb.fill(bench.host, volume, bench.keys)
        loads = {load: command("zoned_loads.py", load, volume.mount, sys.maxsize, pace)
                 for load, (_, pace, *_) in LOADS.items()}
        return zoned_rocksdb.several(bench.host, volume, bench.keys, loads)


def _load(bench: Run, side: str, load: str) -> dict[str, float]:
    steps, pace, *geometry = LOADS[load]
    with bench.mounted(side, *geometry) as volume:
        with volume.measured() as figures:
            told = bench.output("zoned_loads.py", load, volume.mount, steps // 8 if bench.args.quick else steps, pace)
        return figures | told


def _document(bench: Run, side: str, cell: str) -> dict[str, float]:
    with bench.mounted(side, ROOM["document"], max(1, bench.size // 64 // MIB)) as volume:
        with volume.measured() as figures:
            told = bench.output("zoned_traces.py", "document", volume.mount, bench.size, PREALLOCATED[cell])
        database = volume.mount / "db"
        journal = volume.in_zones(max(database.glob("journal/WiredTigerLog.*")), 0, int(told["journal"]))
        files = {"collection": "collection-0-1.wt", "index": "index-1-1.wt", "history": "WiredTigerHS.wt"}
        return figures | told | {"journal in zones": journal} | {
            f"{what} in zones": volume.in_zones(database / name) for what, name in files.items()}


def _cache(bench: Run, side: str, _cell: str) -> dict[str, float]:
    with bench.mounted(side, ROOM["cache"], max(1, bench.size // 64 // MIB)) as volume:
        with volume.measured() as figures:
            told = bench.output("zoned_traces.py", "cache", volume.mount, bench.size)
        path, buckets = volume.mount / "cache/navy", int(told["buckets"])
        return figures | told | {"regions in zones": volume.in_zones(path, 0, buckets),
                                 "buckets in zones": volume.in_zones(path, buckets)}


def _churn(bench: Run, side: str, _cell: str) -> dict[str, float]:
    """Files that take nine tenths of the room are replaced at random."""
    times, *geometry = CHURN
    with bench.mounted(side, *geometry) as volume:
        room = volume.room()
        with volume.measured() as figures:
            told = bench.output("zoned_loads.py", "churn", volume.mount, room, 3 if bench.args.quick else times)
        return figures | told
