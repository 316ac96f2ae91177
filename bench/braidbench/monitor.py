"""Scenario `monitor`: the cost of watching tiers and ranges. Two Braid volumes on the same devices,
one as it is and one that keeps neither latencies nor heat, read and write the same in turns. The
devices are as fast as memory, so that only the processors are the bound.

A single pair of runs says nothing about one percent on a machine with other work: many short ones are compared pair by
pair, and the rate is set beside the processor time that the daemon took for an operation, which other work disturbs
less."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from braidbench import devices, sides
from braidbench.devices import GIB
from braidbench.evaluation import KIB, MIB, Bench, stop_all
from braidbench.host import BenchError, Host
from braidbench.report import Report

SUMMARY = "what watching costs: pairs of short runs with the monitor and heat on and off, as rates and processor time"
CELLS = ["reads", "writes"]
ON, OFF = "watched", "unwatched"
KEYS = {ON: (), OFF: ("monitor: false", "heat: { budget: 0 }")}
ROUNDS = 15
AIM_PERCENT = 1.0


@dataclass(frozen=True)
class Load:
    """One kind of operation."""

    cell: str
    rw: str
    block: int
    jobs: int

    def text(self) -> str:
        kind = "reads" if self.rw == "randread" else "writes"
        return f"{self.block // KIB} KiB random direct {kind}, {self.jobs} thread{'s' if self.jobs > 1 else ''}"


LOADS = [Load(cell, rw, block, jobs) for cell, rw in (("reads", "randread"), ("writes", "randwrite"))
         for block in (4 * KIB, 64 * KIB) for jobs in (1, 4)]


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    chosen = [load for load in LOADS if load.cell in bench.chosen(CELLS)]
    size = args.size or (32 * MIB if args.quick else 256 * MIB)
    seconds = args.seconds or (0.5 if args.quick else 1.0)
    rounds = args.reps * (1 if args.quick else ROUNDS)
    report.settings.update(size=size, seconds=seconds, rounds=rounds)
    tiers = [devices.make(host, name, kind, max(2 * GIB, 6 * size), None)
             for name, kind in (("fast", args.fast_fs), ("slow", args.slow_fs))]
    lineup = [sides.Braid(name, host, tiers, args.braid, "weighted", keys=keys) for name, keys in KEYS.items()]
    try:
        for side in lineup:
            bench.attempt(side, "fill", lambda s=side: _fill(bench, s, size))
        for number_of in range(rounds):
            bench.repetition = number_of // ROUNDS + 1
            for load in chosen:
                # Each goes first in turns.
                for side in lineup if number_of % 2 else reversed(lineup):
                    bench.attempt(side, load.text(), lambda s=side, l=load: _one(bench, s, l, size, seconds))
    finally:
        stop_all(lineup)
        _tabulate(report, chosen)


def _fill(bench: Bench, side: sides.Braid, size: int) -> None:
    bench.fio.run(f"fill-{side.name}", filename=side.root / "data", rw="write", bs="1M", size=size, direct=1,
                  ioengine="psync", fallocate="none", end_fsync=1)
    if side.layout(side.root / "data") != "spread":
        raise BenchError("the file is not spread: its I/O would not pass through the daemon")


def _one(bench: Bench, side: sides.Braid, load: Load, size: int, seconds: float) -> None:
    before = _processor_ticks(side)
    result = bench.fio.run(f"{load.cell}-{side.name}", filename=side.root / "data", rw=load.rw, bs=load.block, size=size,
                           numjobs=load.jobs, thread=1, direct=1, ioengine="psync", norandommap=1, randrepeat=0,
                           time_based=1, runtime=f"{seconds:g}s")
    ticks = _processor_ticks(side) - before
    bench.report.cell(side.name, load.text(), "kIOPS").samples.append(result.iops / 1000)
    used = ticks / os.sysconf("SC_CLK_TCK") * 1e6 / result.operations
    bench.report.cell(side.name, f"{load.text()}: daemon", "µs").samples.append(used)


def _processor_ticks(side: sides.Braid) -> int:
    """The daemon's processor time, in ticks."""
    total = 0
    for pid in side.pids():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total


def _tabulate(report: Report, chosen: list[Load]) -> None:
    rows = []
    for load in chosen:
        row = [load.text()]
        for what in (load.text(), f"{load.text()}: daemon"):
            on, off = report.cells.get((ON, what)), report.cells.get((OFF, what))
            row += [cell.text() if cell else "" for cell in (off, on)] + [_change(report, what, on, off)]
        rows.append(row)
    report.table(f"watched (as mounted) and unwatched (`monitor: false`, no heat): medians, and the median of the pairs' "
                 f"changes with their quartiles; at most {AIM_PERCENT:.0f} % is aimed at",
                 ["load", "unwatched", "watched", "rate", "daemon's processor time for one, unwatched", "watched",
                  "change"], rows)


def _change(report: Report, what: str, on, off) -> str:
    """The median change of the pairs, and between which values half of them lie."""
    if on is None or off is None or len(on.samples) < 2:
        return ""
    pairs = [100 * (with_it / without - 1) for with_it, without in zip(on.samples, off.samples) if without]
    if len(pairs) < 2:
        return ""
    low, middle, high = statistics.quantiles(pairs, n=4)
    report.ratios[f"{what}: {ON} / {OFF}"] = round(1 + middle / 100, 4)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"
