"""Scenario `metadata`: loads that are mostly names and small files (PolyStore figure 8): the operations of Filebench's
varmail and fileserver, as fixed work by several processes (`metaload.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from braidbench import sides
from braidbench.devices import GIB
from braidbench.evaluation import Bench, median_text, stop_all
from braidbench.host import BenchError, Host
from braidbench.report import Report, number
from braidbench.sync import FAST_IOPS, SLOW_IOPS

SUMMARY = "varmail-like and fileserver-like loads of several processes: operations in a second, latency of a sync"
LOAD = Path(__file__).with_name("metaload.py")
CELLS = ["varmail", "fileserver", "varmail-iops", "fileserver-iops"]
PROCESSES = 16
SEED = 1
TIMEOUT_S = 900


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = bench.chosen(CELLS)
    files, loops = (160, 5) if args.quick else (2000, 100)
    report.settings.update(processes=PROCESSES, files=files, loops=loops, fast_iops=FAST_IOPS, slow_iops=SLOW_IOPS)
    room = 4 * GIB
    tiers = bench.tiers(2, [room] * 2)
    lineup = [*bench.natives(tiers), *bench.mergerfs(tiers), *bench.btrfs(2, room), *bench.braids(tiers)]
    try:
        for cell in cells:
            _limit(bench, tiers, lineup, cell.endswith("-iops"))
            for repetition in range(args.reps):
                bench.repetition = repetition + 1
                for side in lineup:
                    bench.attempt(side, cell, lambda s=side, c=cell: _one(bench, s, c, files, loops))
    finally:
        stop_all(lineup)
        for cell in cells:
            _tabulate(bench, lineup, cell)


def _limit(bench: Bench, tiers, lineup: list[sides.Side], operations: bool) -> None:
    """Limits the devices in operations per second too, or lifts that: btrfs's devices as the tiers that they stand for."""
    counts = {tiers[0].nodes[0]: FAST_IOPS, tiers[1].nodes[0]: SLOW_IOPS}
    for side in lineup:
        if side.name == "btrfs-raid0":
            counts |= {node: SLOW_IOPS for node in side.devices[0].nodes}
        elif side.name == "btrfs-unequal":
            counts |= dict(zip(side.devices[0].nodes, (FAST_IOPS, SLOW_IOPS)))
    for node, count in counts.items():
        everybody = bench.host.group.limit_operations(node, count if operations else 0)
        if operations and not everybody:
            bench.host.warn("the kernel's own threads, which write the journals, were not limited")


def _one(bench: Bench, side: sides.Side, cell: str, files: int, loops: int) -> None:
    used, load = side.used(), cell.removesuffix("-iops")
    before = side.transferred()
    try:
        told = run_load(bench.host, load, side, files, loops)
        target = bench.report.cell(side.name, cell, "/s")
        target.samples.append(told["operations"] / told["seconds"])
        for name in ("p50", "p99"):
            if told[f"sync_ms_{name}"] is not None:
                bench.report.cell(side.name, f"{cell} sync {name}", "ms").samples.append(told[f"sync_ms_{name}"])
        written = [(now[1] - then[1]) / 2**20 for now, then in zip(side.transferred(), before)]
        target.note("written, MiB: " + ", ".join(f"{device.name} {number(part)}"
                                                 for device, part in zip(side.devices, written)))
    finally:
        bench.clear(side, bench.report.cell(side.name, cell, "/s"), used, 2**28)


def run_load(host: Host, load: str, side: sides.Side, files: int, loops: int) -> dict:
    """Runs `metaload.py` on a side; returns its output."""
    argv = [sys.executable, str(LOAD), load, str(side.root / "load"), str(PROCESSES), str(files), str(loops), str(SEED)]
    process = host.spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        said, complaint = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{load}: no end after {TIMEOUT_S} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise BenchError((complaint.strip().splitlines() or [f"{load}: exit status {process.returncode}"])[-1])
    return json.loads(said)


def _tabulate(bench: Bench, lineup: list[sides.Side], cell: str) -> None:
    report = bench.report
    base = report.cells.get(("native-fast", cell))
    rows = []
    for side in lineup:
        own = report.cells.get((side.name, cell))
        ratio = ""
        if own and base and own.median and base.median:
            report.ratios[f"{cell}: {side.name} / native-fast"] = round(own.median / base.median, 4)
            ratio = number(own.median / base.median)
        rows.append([side.name, own.text() if own else "", ratio,
                     *(median_text(report, side.name, f"{cell} sync {name}") for name in ("p50", "p99"))])
    limits = f", devices limited to {FAST_IOPS} and {SLOW_IOPS} operations per second too" if cell.endswith("-iops") else ""
    report.table(f"{cell.removesuffix('-iops')}-like, {PROCESSES} processes, fixed work{limits}: operations in a second, and "
                 "fsync in ms", ["side", "operations", "of native-fast", "fsync p50", "fsync p99"], rows)
