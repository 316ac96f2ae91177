"""Scenario `capacity`: more data than the fast tier holds (PolyStore's CAP_Move; Mux figure 3a). Foreground throughput
while data is written past it, how full it is then and later, the latency of a paced reader while data moves away, and
the rate at which `braid move` takes a file from each tier to each other one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from braidbench import sides
from braidbench.devices import GIB, MB, Device
from braidbench.epochs import Sampler
from braidbench.evaluation import KIB, MIB, Bench, combined, median_text, share_text, stop_all
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "writing past the fast tier's capacity, latency while data moves away, migration between all pairs of tiers"
CELLS = ["fill", "latency", "pairs"]
WRITERS = 8
WATERMARK = 0.9
# How many times the fast tier's size is written.
FACTOR = 2
# From the fast tier through all six pairs and back.
ROUND = [("fast", "slow"), ("slow", "third"), ("third", "fast"), ("fast", "third"), ("third", "slow"), ("slow", "fast")]
AIM_P99 = 2.0
PACED_BPS = 20 * MB
MOVE_TIMEOUT_S = 300


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = bench.chosen(CELLS)
    small = args.size or (GIB // 2 if args.quick else 2 * GIB)
    seconds = args.seconds or (3 if args.quick else 15)
    report.settings.update(fast_tier=small, written=FACTOR * small, seconds=seconds, writers=WRITERS, paced_bps=PACED_BPS)
    tiers = bench.tiers(3 if "pairs" in cells else 2, [small, 4 * small, 4 * small])
    two = tiers[:2]
    lineup = [*bench.mergerfs(two), *bench.braids(two)] if {"fill", "latency"} & set(cells) else []
    # A file is moved in the same way under every policy.
    movers = bench.braids(tiers, "-3")[-1:] if "pairs" in cells else []
    try:
        for repetition in range(args.reps):
            bench.repetition = repetition + 1
            for side in lineup:
                for cell, action in (("fill", _fill), ("latency", _latency)):
                    if cell in cells:
                        bench.attempt(side, cell, lambda s=side, a=action: a(bench, s, two[0], small, seconds), stop=True)
            for side in movers:
                bench.attempt(side, "pairs", lambda s=side: _pairs(bench, s, tiers, small), stop=True)
    finally:
        stop_all([*lineup, *movers])
        _tabulate(bench, lineup, cells)
        _tabulate_pairs(bench, movers, tiers)


def _fill(bench: Bench, side: sides.Side, fast: Device, small: int, seconds: float) -> None:
    """New files until twice the fast tier is written, as fast as it goes."""
    used, report = side.used(), bench.report
    each = FACTOR * small // WRITERS // MIB * MIB
    before = side.transferred()
    try:
        with Sampler(side.devices) as sampler:
            result = bench.fio.run(f"fill-{side.name}", **_files(bench, side, "f", each, WRITERS))
            ended = sampler.now()
            report.cell(side.name, "fill: fast tier full at the end", "%").samples.append(100 * _fullness(fast))
            bench.record(side, "fill", "write", result, before)
            time.sleep(seconds)
            settled = sampler.now()
        trace = sampler.trace
        bench.latencies(side, "fill", result)
        report.cell(side.name, "fill: moved meanwhile", "MB").samples.append(trace.moved("read", 0, ended) / MB)
        report.cell(side.name, "fill: moved after", "MB").samples.append(trace.moved("read", ended, settled) / MB)
        report.cell(side.name, "fill: fast tier full later", "%").samples.append(100 * _fullness(fast))
        report.series.append(trace.as_series("past the fast tier", side.name, [(0, combined(bench.limits(2), "write"))],
                                             "write"))
    finally:
        bench.clear(side, report.cell(side.name, "fill", "MB/s"), used, each * WRITERS)


def _files(bench: Bench, side: sides.Side, name: str, each: int, count: int) -> dict:
    return {"directory": side.root, "filename_format": f"{name}.$jobnum", "rw": "write", "bs": "1M", "size": each,
            "numjobs": count, "thread": 1, "direct": bench.direct(side), "ioengine": "psync", "fallocate": "none",
            "end_fsync": 1}


def _fullness(device: Device) -> float:
    """As `df` counts it: space that only root may use does not count."""
    state = os.statvfs(device.mount)
    used = state.f_blocks - state.f_bfree
    return used / (used + state.f_bavail)


def _latency(bench: Bench, side: sides.Side, fast: Device, small: int, seconds: float) -> None:
    """A paced reader of a small file, first alone, and again right after the fast tier was filled to its watermark and
    beyond, while data moves away."""
    used, each = side.used(), int(1.2 * small) // WRITERS // MIB * MIB
    reader = {"filename": side.root / "paced.0", "rw": "randread", "bs": 64 * KIB, "size": 16 * MIB, "numjobs": 4,
              "thread": 1, "direct": bench.direct(side), "ioengine": "psync", "norandommap": 1, "randrepeat": 0,
              "time_based": 1, "runtime": f"{seconds:g}s", "rate": PACED_BPS // 4, "rate_process": "poisson"}
    try:
        bench.fio.run(f"paced-file-{side.name}", **_files(bench, side, "paced", 16 * MIB, 1))
        side.evict()
        bench.latencies(side, "latency alone", bench.fio.run(f"paced-alone-{side.name}", **reader))
        bench.fio.run(f"paced-fill-{side.name}", **_files(bench, side, "g", each, WRITERS))
        before = side.transferred()
        bench.latencies(side, "latency beside movement", bench.fio.run(f"paced-beside-{side.name}", **reader))
        written = sum(now[1] - then[1] for now, then in zip(side.transferred(), before))
        bench.report.cell(side.name, "latency: moved beside", "MB").samples.append(written / MB)
    finally:
        bench.clear(side, bench.report.cell(side.name, "latency alone p99", "ms"), used, each * WRITERS)


def _pairs(bench: Bench, side: sides.Braid, tiers: list[Device], small: int) -> None:
    """One file goes round over all pairs. Rates are of the whole command."""
    size = small // 4 // MIB * MIB
    path, named = side.root / "traveller", {tier.name: i for i, tier in enumerate(tiers)}
    _on_fast(bench, side, path, size)
    for source, target in ROUND:
        what = f"{source} to {target}"
        before, began = side.transferred(), time.monotonic()
        run(side.binary, "move", path, "--to", target, timeout=MOVE_TIMEOUT_S)
        seconds = time.monotonic() - began
        cell = bench.report.cell(side.name, what, "MB/s")
        cell.samples.append(size / MB / seconds)
        taken = side.transferred()[named[target]][1] - before[named[target]][1]
        if taken < 0.9 * size:
            cell.note(f"SUSPECT: {target} took only {100 * taken / size:.0f} % of the bytes")
        _expect_on(side, path, target)
    run("rm", "-f", path)


def _on_fast(bench: Bench, side: sides.Braid, path: Path, size: int) -> None:
    """A file on the fast tier, whatever the side's policy is."""
    own = side.policy
    side.stop()
    side.policy = "home-first"
    try:
        side.start()
        bench.fio.run(f"traveller-{side.name}", filename=path, rw="write", bs="4M", size=size, direct=1, ioengine="psync",
                      fallocate="none", end_fsync=1)
    finally:
        side.stop()
        side.policy = own
    side.start()


def _expect_on(side: sides.Braid, path: Path, tier: str) -> None:
    told = json.loads(side.ask("explain", str(path)))
    where = {part["tier"]["name"] for part in told.get("runs", []) if part.get("tier")}
    # A plain file has no runs: it is at home, the fast tier.
    if where != {tier} and not (told.get("layout") == "plain" and tier == "fast"):
        raise BenchError(f"after `braid move --to {tier}`, ranges are on {', '.join(sorted(where)) or 'no tier'}")


def _tabulate(bench: Bench, lineup: list[sides.Side], cells: list[str]) -> None:
    report = bench.report
    if "fill" in cells:
        whole = combined(bench.limits(2), "write")
        parts = ["fill: fast tier full at the end", "fill: fast tier full later", "fill: moved meanwhile", "fill: moved after",
                 "fill p99"]
        rows = [[side.name, share_text(report, side.name, "fill", whole),
                 *(median_text(report, side.name, what) for what in parts)] for side in lineup]
        report.table(f"{WRITERS} threads write {FACTOR} times the fast tier's size: MB/s and share of all tiers; how full the "
                     f"fast tier is (%; its watermark is {100 * WATERMARK:.0f}), MB moved, write latency in ms",
                     ["side", "MB/s", "full at the end", "full later", "moved meanwhile", "moved after", "p99"], rows)
    if "latency" in cells:
        report.table(f"a reader paced at {PACED_BPS // MB} MB/s, latency in ms, alone and after the fast tier was filled; a "
                     f"ratio of at most {number(AIM_P99)} is aimed at, and says something only where data was moved",
                     ["side", "p50 alone", "p99 alone", "p50 beside", "p99 beside", "MB moved beside", "p99 ratio"],
                     [_latency_row(report, side.name) for side in lineup])


def _latency_row(report: Report, side: str) -> list[str]:
    alone, beside = (report.cells.get((side, f"latency {when} p99")) for when in ("alone", "beside movement"))
    ratio = beside.median / alone.median if alone and beside and alone.median and beside.median else None
    if ratio:
        report.ratios[f"latency p99: {side} beside movement / alone"] = round(ratio, 4)
    figures = [median_text(report, side, f"latency {when} {name}") for when in ("alone", "beside movement")
               for name in ("p50", "p99")]
    return [side, *figures, median_text(report, side, "latency: moved beside"), number(ratio) if ratio else ""]


def _tabulate_pairs(bench: Bench, movers: list[sides.Braid], tiers: list[Device]) -> None:
    limits = {tier.name: tier.limit for tier in tiers}
    for side in movers:
        rows = []
        for source, target in ROUND:
            bound = min(limits[source].read_bps, limits[target].write_bps) / MB
            rows.append([f"{source} → {target}", share_text(bench.report, side.name, f"{source} to {target}", bound),
                         number(bound)])
        bench.report.table(f"`braid move` of one file between all pairs of tiers ({side.name}): MB/s, and share of the slower "
                           "of reading there and writing here", ["pair", "MB/s", "bound"], rows)
