"""Scenario `overhead`: Braid's cost against the native file system on the same tier.

Every measurement alternates between the sides. A ratio of 1 is the native speed, and less is slower, whether
the figure is a rate or a latency.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from braidbench import devices, sides
from braidbench.devices import GIB, MB
from braidbench.fio import Fio
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "Braid (and mergerfs) against native on the same tier: streams, random reads, stat, small and large I/O"
MIB = 2**20
TREE = Path(__file__).with_name("tree.py")
FLAT_FILES = 10_000
FULL = 0.5


@dataclass(frozen=True)
class Work:
    """How much is done in each measurement."""

    stream: int
    warm_file: int
    spread_file: int
    tree_directories: int
    seconds: float

    @staticmethod
    def of(quick: bool) -> "Work":
        if quick:
            return Work(GIB // 4, 64 * MIB, GIB // 8, 10, 1)
        return Work(GIB, 256 * MIB, GIB, 99, 2)


@dataclass(frozen=True)
class Measure:
    """One row of the table."""

    group: str
    name: str
    unit: str
    sample: Callable
    prepare: Callable | None = None
    lower_is_better: bool = False
    spread: bool = False
    throttled: bool = False
    direct: bool = False
    # The file whose layout is checked after the measurement, where there is one.
    file: str = "stream"
    # Short measurements are noisy: taken several times in each repetition.
    rounds: int = 3
    aim: float | None = None


class Bench:
    """The tools of one run: fio, the amounts of work, and the operations that measurements are made of."""

    def __init__(self, host: Host, fio: Fio, work: Work):
        self.host, self.fio, self.work = host, fio, work

    def label(self, side: sides.Side, text: str) -> str:
        """The name of a raw result."""
        return f"{text}-{side.name}"

    def sequential(self, side: sides.Side, rw: str, **options) -> float:
        """A stream of `stream` bytes, in MB/s. A write makes a new file; a read meets the device."""
        path = side.root / "stream"
        if rw == "write":
            run("rm", "-f", path)
        else:
            side.evict()
        options = {"ioengine": "libaio", "iodepth": 16, "direct": 1, "bs": "1M", "fallocate": "native"} | options
        result = self.fio.run(self.label(side, f"sequential-{rw}"), filename=path, rw=rw, size=self.work.stream,
                              end_fsync=1, **options)
        return result.rate / MB

    def fill(self, side: sides.Side, name: str, size: int) -> Path:
        """A file of a size, written once."""
        path = side.root / name
        try:
            run("test", "-e", path)
        except BenchError:
            self.fio.run(self.label(side, f"fill-{name}"), filename=path, rw="write", bs="1M", size=size,
                         ioengine="psync", fallocate="none", end_fsync=1)
        return path

    def warm(self, path: Path) -> None:
        """Reads a file into the caches."""
        run("dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none", timeout=300)

    def random_reads(self, side: sides.Side, name: str, block: str, size: int, *, jobs: int = 1, warm: bool = True):
        """Buffered random reads for a fixed time; with `warm`, of a file that was just read."""
        path = side.root / name
        if warm:
            self.warm(path)
        else:
            side.evict()
        return self.fio.run(self.label(side, f"random-{block}-{jobs}-{'warm' if warm else 'cold'}"), filename=path,
                            rw="randread", bs=block, size=size, numjobs=jobs, ioengine="psync", norandommap=1,
                            invalidate=int(not warm), time_based=1, runtime=self.work.seconds)

    def make_tree(self, side: sides.Side) -> None:
        """The tree for `stat`: directories of a thousand files, and one of ten thousand."""
        for name, directories, files in (("tree", self.work.tree_directories, 1000), ("flat", 1, FLAT_FILES)):
            try:
                run("test", "-d", side.root / name)
            except BenchError:
                run(sys.executable, TREE, side.root / name, directories, files, timeout=300)

    def find(self, side: sides.Side) -> float:
        """Microseconds for each file that `find` looks at; it calls `stat` on each because of the time test."""
        argv = ["find", side.root / "tree", "-newermt", "@0", "-printf", ""]
        run(*argv, timeout=300)
        began = time.perf_counter()
        run(*argv, timeout=300)
        return (time.perf_counter() - began) * 1e6 / (self.work.tree_directories * 1001)

    def file_stat(self, side: sides.Side) -> float:
        """Median nanoseconds of one `stat`, measured inside fio; the tree was walked right before."""
        run("find", side.root / "flat", "-newermt", "@0", "-printf", "", timeout=300)
        result = self.fio.run(self.label(side, "filestat"), directory=side.root / "flat/0", rw="read",
                              ioengine="filestat", stat_type="stat", nrfiles=FLAT_FILES,
                              filename_format="f.$filenum", filesize="4k", bs="4k")
        if result.latency_ns_p50 is None:
            raise BenchError("fio gave no latencies")
        return result.latency_ns_p50


def measures(work: Work) -> list[Measure]:
    """The rows, in order."""
    def stream(bench, side, rw, **options):
        return bench.sequential(side, rw, **options)

    def microseconds(result):
        if result.latency_ns_p50 is None:
            raise BenchError("fio gave no latencies")
        return result.latency_ns_p50 / 1000

    rows = []
    for throttled in (True, False):
        where = "throttled" if throttled else "unthrottled"
        common = {"throttled": throttled, "direct": True, "rounds": 1 if throttled else 3, "aim": 0.9}
        rows += [
            Measure("a", f"1 MiB sequential direct write, plain, preallocated, {where}", "MB/s",
                    lambda b, s: stream(b, s, "write"), **common),
            Measure("a", f"1 MiB sequential direct read, plain, {where}", "MB/s",
                    lambda b, s: stream(b, s, "read"), lambda b, s: b.fill(s, "stream", work.stream), **common),
            Measure("a", f"1 MiB sequential direct write, plain, extending, {where}", "MB/s",
                    lambda b, s: stream(b, s, "write", fallocate="none"), **common),
        ]
    for jobs in (1, 4):
        rows.append(Measure(
            "b", f"4 KiB random read, plain, warm, {jobs} job{'s' if jobs > 1 else ''}", "kIOPS",
            lambda b, s, jobs=jobs: b.random_reads(s, "warm", "4k", work.warm_file, jobs=jobs).iops / 1000,
            lambda b, s: b.fill(s, "warm", work.warm_file), file="warm", aim=0.7))
    rows += [
        Measure("c", f"find with stat of each, {work.tree_directories},000 files, warm", "µs/file",
                lambda b, s: b.find(s), lambda b, s: b.make_tree(s), lower_is_better=True, file="", aim=0.9),
        Measure("c", "stat of 10,000 files, warm, median", "ns", lambda b, s: b.file_stat(s),
                lambda b, s: b.make_tree(s), lower_is_better=True, file="", aim=0.9),
    ]
    for warm in (True, False):
        rows.append(Measure(
            "d", f"1-byte random read, spread, {'warm' if warm else 'cold'}, median", "µs",
            lambda b, s, warm=warm: microseconds(b.random_reads(s, "spread", "1", work.spread_file, warm=warm)),
            lambda b, s: b.fill(s, "spread", work.spread_file), lower_is_better=True, spread=True,
            file="spread"))
    for throttled in (True, False):
        for direct in (True, False):
            where = "throttled" if throttled else "unthrottled"
            rows.append(Measure(
                "e", f"4 MiB sequential {'direct' if direct else 'buffered'} write, spread, {where}", "MB/s",
                lambda b, s, d=direct: stream(b, s, "write", ioengine="psync", iodepth=1, bs="4M", direct=int(d),
                                              fallocate="none"),
                spread=True, throttled=throttled, direct=direct, rounds=1 if throttled else 3))
    return rows


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    work = Work.of(args.quick)
    bench = Bench(host, Fio(host, keep), work)
    chosen = [row for row in measures(work) if not args.cells or row.group in args.cells]
    if not host.throttled:
        report.remarks.append(f"no throttled cells: {host.group.reason}")
        chosen = [row for row in chosen if not row.throttled]
    report.settings.update(reps=args.reps, fast=str(args.fast), slow=str(args.slow), work=vars(work))
    lineups = _Lineups(host, args)
    try:
        for row in chosen:
            lineup = [side for side in lineups.get(row) if side.direct or not row.direct]
            for repetition in range(args.reps * row.rounds):
                for key, side in ((lineups.key(side), side) for side in lineup):
                    args.progress(f"{row.group}: {row.name}, {key}, {repetition + 1}/{args.reps * row.rounds}")
                    _one(bench, report, row, key, side)
            for side in lineup:
                _forget(side, row)
    finally:
        lineups.stop()
        _tabulate(report, chosen)


class _Lineups:
    """The sides for each kind of row, made when first needed."""

    def __init__(self, host: Host, args):
        self.host, self.args, self.made, self.tiers = host, args, {}, {}

    def get(self, row: Measure) -> list[sides.Side]:
        """The sides that a row compares, the native one first."""
        kind = (row.throttled, row.spread)
        if kind not in self.made:
            self.made[kind] = self._make(*kind)
        return self.made[kind]

    def key(self, side: sides.Side) -> str:
        """The side's name in the table."""
        return side.name.split("-", 1)[0]

    def _make(self, throttled: bool, spread: bool) -> list[sides.Side]:
        if throttled not in self.tiers:
            where, args = ("" if throttled else "free-"), self.args
            self.tiers[throttled] = [
                devices.make(self.host, f"{where}fast", args.fast_fs, 16 * GIB, args.fast if throttled else None),
                devices.make(self.host, f"{where}slow", args.slow_fs, 16 * GIB, args.slow if throttled else None),
            ]
        tiers = self.tiers[throttled]
        end = ("throttled" if throttled else "free") + ("-spread" if spread else "-plain")
        policy = "weighted" if spread else "home-first"
        lineup = [
            sides.Side(f"native-{end}", self.host, tiers[:1]),
            sides.Mergerfs(f"mergerfs-{end}", self.host, tiers, "ff"),
            sides.Braid(f"braid-{end}", self.host, tiers, self.args.braid, policy),
        ]
        return [side for side in lineup if not self.args.sides or self.key(side) in self.args.sides]

    def stop(self) -> None:
        """Ends every side."""
        for lineup in self.made.values():
            for side in lineup:
                side.stop()


def _one(bench: Bench, report: Report, row: Measure, key: str, side: sides.Side) -> None:
    cell = report.cell(key, row.name, row.unit)
    if len(cell.failures) >= 2:
        # A side that failed twice at this will not do better: do not wait for it again.
        return
    if side.running and side.fullness() > FULL:
        # No more than a few GiB are in files at any time.
        bench.host.warn(f"{key} was restarted: removed files still take space on its tiers")
        side.stop()
    try:
        side.start()
        if row.prepare:
            row.prepare(bench, side)
        cell.samples.append(row.sample(bench, side))
        wanted = "spread" if row.spread else "plain"
        found = side.layout(side.root / row.file) if row.file else None
        if found not in (None, wanted):
            cell.note(f"SUSPECT: {key}: {row.name}: the file was {found}, not {wanted}")
    except BenchError as error:
        cell.failures.append(str(error))
        side.stop()


def _forget(side: sides.Side, row: Measure) -> None:
    """Removes the large files of a row; the tree and the small files stay for the next."""
    try:
        if side.running:
            run("rm", "-f", side.root / "stream")
    except (BenchError, subprocess.SubprocessError):
        side.stop()


def _tabulate(report: Report, chosen: list[Measure]) -> None:
    rows = []
    for row in chosen:
        native = report.cells.get(("native", row.name))
        line = [row.group, row.name]
        for key in ("native", "braid", "mergerfs"):
            cell = report.cells.get((key, row.name))
            line.append(cell.text() if cell else "")
            if key != "native":
                line.append(_ratio(report, row, key, native, cell))
        rows.append([*line, f"≥ {row.aim}" if row.aim else ""])
    report.remarks += [note for cell in report.cells.values() for note in cell.notes]
    heads = ["", "measurement", "native", "Braid", "ratio", "mergerfs", "ratio", "aim"]
    report.table("against native on the same tier: median (lowest–highest)", heads, rows)


def _ratio(report: Report, row: Measure, key: str, native, cell) -> str:
    if not (native and cell and native.median and cell.median):
        return ""
    ratio = native.median / cell.median if row.lower_is_better else cell.median / native.median
    report.ratios[f"{row.name}: {key} / native"] = round(ratio, 4)
    return number(ratio)
