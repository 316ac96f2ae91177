"""Scenario `shared`: one file, read by 16 threads and written by 16 others at once, at random places (PolyStore
figure 6c). The file is written first, by the side's own policy, so that it lies where that puts it."""

from __future__ import annotations

from pathlib import Path

from braidbench import checks, sides
from braidbench.devices import GIB, MB
from braidbench.evaluation import (KIB, MIB, Bench, combined, device_size, explain_suspects, median_text, number,
                                   share_text, stop_all)
from braidbench.host import Host, run
from braidbench.report import Report

SUMMARY = "one file shared by 16 readers and 16 writers at random places: rates and latencies of each"
CELLS = {"4K": 4 * KIB, "64K": 64 * KIB, "1M": MIB}
THREADS = 16
# The aim of the readers and the writers over the best tier alone.
AIM = 1.25


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = bench.chosen(list(CELLS), quick=["64K"])
    size = args.size or (GIB // 8 if args.quick else GIB)
    seconds = args.seconds or (1 if args.quick else 5)
    report.settings.update(size=size, seconds=seconds, readers=THREADS, writers=THREADS)
    room = device_size(size)
    tiers = bench.tiers(2, [room] * 2)
    lineup = [*bench.natives(tiers), *bench.mergerfs(tiers), *bench.btrfs(2, room), *bench.braids(tiers)]
    try:
        for repetition in range(args.reps):
            bench.repetition = repetition + 1
            for cell in cells:
                for side in lineup:
                    bench.attempt(side, cell, lambda s=side, c=cell: _one(bench, s, c, size, seconds))
    finally:
        stop_all(lineup)
        for cell in cells:
            _tabulate(bench, lineup, cell)
        explain_suspects(report)


def _one(bench: Bench, side: sides.Side, cell: str, size: int, seconds: float) -> None:
    """The file, fixed work on it, and the timed run."""
    used, path = side.used(), side.root / "shared"
    direct = bench.direct(side)
    bench.fio.run(f"fill-{cell}-{side.name}", filename=path, rw="write", bs="1M", size=size, ioengine="psync",
                  direct=direct, fallocate="none", end_fsync=1)
    # Each group covers the file's size once in all; at 4 KiB the processors are the bound, and less shows as much.
    work = size // THREADS // (8 if cell == "4K" else 1)
    base = {"filename": path, "bs": CELLS[cell], "size": size, "numjobs": THREADS, "thread": 1, "direct": direct,
            "ioengine": "psync", "norandommap": 1, "randrepeat": 0}
    groups = [base | {"rw": "randread"}, base | {"rw": "randwrite", "end_fsync": 1}]
    for name, more in ((cell, {"io_size": work}), (f"{cell} timed", {"time_based": 1, "runtime": f"{seconds:g}s"})):
        side.evict()
        before = side.transferred()
        results = bench.fio.run_groups(f"{name.replace(' ', '-')}-{side.name}", [group | more for group in groups])
        for rw, result in zip(("read", "write"), results):
            target = bench.report.cell(side.name, f"{rw} {name}", "MB/s")
            target.samples.append(result.rate / MB)
            checks.examine(target, side, rw, result.bytes, before, max(each.seconds for each in results))
            if name == cell:
                bench.latencies(side, f"{rw} {cell}", result)
    run("rm", "-f", path)
    checks.freed(bench.report.cell(side.name, f"write {cell}", "MB/s"), side, used, size)


def _tabulate(bench: Bench, lineup: list[sides.Side], cell: str) -> None:
    report, rows = bench.report, []
    for side in lineup:
        row = [side.name]
        for rw in ("read", "write"):
            whole = combined(bench.limits(2), rw)
            row += [share_text(report, side.name, f"{rw} {cell}", whole), share_text(report, side.name, f"{rw} {cell} timed", whole),
                    _over_best(report, lineup, side, f"{rw} {cell}")]
        row += [median_text(report, side.name, f"{rw} {cell} p99") for rw in ("read", "write")]
        rows.append(row)
    heads = ["side", "readers", "timed", "of the best tier", "writers", "timed", "of the best tier", "read p99, ms", "write p99, ms"]
    report.table(f"{THREADS} readers and {THREADS} writers of one file, random, {cell}: MB/s and share of all tiers; "
                 f"at least {AIM} of the best tier is aimed at", heads, rows)


def _over_best(report: Report, lineup: list[sides.Side], side: sides.Side, what: str) -> str:
    natives = [report.cells[side.name, what].median or 0 for side in lineup
               if side.name.startswith("native-") and (side.name, what) in report.cells]
    own = report.cells.get((side.name, what))
    if not natives or not max(natives) or own is None or own.median is None:
        return ""
    report.ratios[f"{what}: {side.name} / best tier"] = round(own.median / max(natives), 4)
    return number(own.median / max(natives))
