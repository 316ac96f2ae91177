"""Scenario `misplaced`: how soon misplaced data in use is moved to the right place. Files were
written where they do not belong; then 16 threads read or overwrite them for a while. The rate is
that of the programs, second by second, and `braid status` reports the moved data. Braid's volumes
are as by default: no weights, `adaptive` and its movers."""

from __future__ import annotations

import json
from dataclasses import dataclass

from braidbench import sides
from braidbench.devices import MB
from braidbench.evaluation import KIB, MIB, Bench, combined, device_size
from braidbench.host import BenchError, Host, run
from braidbench.report import Report

SUMMARY = "files in the wrong place are read or overwritten: seconds until it is put right, bytes moved, latency"
THREADS = 16
BLOCK = 64 * KIB
# Of the rate that is possible.
AIM = 0.9
# Seconds that the mean of the rate is taken over.
SMOOTH = 3
SECONDS = 60


@dataclass(frozen=True)
class Wrong:
    """A wrong placement: the weights by which `weighted` deals the files, of each tier, the fastest first."""

    name: str
    weights: tuple[int, ...]

    def part(self, tier: int) -> float:
        """The part of the data on that tier."""
        return self.weights[tier] / sum(self.weights)


PLACEMENTS = {wrong.name: wrong for wrong in (
    Wrong("slow", (1, 1000)), Wrong("half", (1, 1)), Wrong("quarter", (50, 60)), Wrong("thirds", (1, 1, 1)))}
PATTERNS = ["read", "write"]
CELLS = [f"{wrong}-{pattern}" for wrong in PLACEMENTS for pattern in PATTERNS]


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = bench.chosen(CELLS, quick=["slow-read"])
    size = args.size or (256 * MIB if args.quick else 2048 * MIB)
    seconds = args.seconds or (10 if args.quick else SECONDS)
    report.settings.update(threads=THREADS, block=BLOCK, size=size, seconds=seconds)
    counts = sorted({len(_wrong(cell).weights) for cell in cells})
    tiers = bench.tiers(counts[-1], [device_size(size)] * counts[-1])
    for count in counts:
        chosen = [cell for cell in cells if len(_wrong(cell).weights) == count]
        side = sides.Braid("braid-adaptive", host, tiers[:count], args.braid, "adaptive", keys=tuple(args.volume_key),
                           weights=None)
        try:
            bench.each_cell(side, chosen, lambda cell: _one(bench, side, cell, size, seconds))
        finally:
            _tabulate(bench, side, chosen)


def _wrong(cell: str) -> Wrong:
    return PLACEMENTS[cell.split("-")[0]]


def _one(bench: Bench, side: sides.Braid, cell: str, size: int, seconds: float) -> None:
    wrong, pattern = _wrong(cell), cell.split("-")[1]
    _fill(bench, side, wrong, size)
    before = moves_of(side)
    log = bench.keep / f"{bench.fio.count + 1:03}-{cell}"
    options = _options(side, size) | {"rw": pattern, "time_based": 1, "runtime": f"{seconds:g}s", "direct": 1,
                                      "write_bw_log": log, "log_avg_msec": 1000, "per_job_logs": 0}
    result = bench.fio.run(cell, **options)
    rates = rates_of(log, seconds)
    count = len(side.devices)
    whole = combined(bench.limits(count), pattern)
    # The misplaced data at first.
    needed = sum(max(0.0, _limit(side, tier, pattern) / whole - wrong.part(tier)) for tier in range(count)) * size
    moved = moves_of(side)["bytes"] - before["bytes"]
    late = rates[-SMOOTH * 3:]
    for what, unit, value in (("first seconds", "MB/s", sum(rates[:2]) / 2), ("last seconds", "MB/s", sum(late) / len(late)),
                              ("part of what is possible", "%", 100 * sum(late) / len(late) / whole),
                              ("seconds to 90 %", "s", _converged(rates, AIM * whole)),
                              ("moved", "MB", moved / MB), ("moved over needed", "", moved / needed),
                              ("p99", "ms", (result.latency_ns_p99 or 0) / 1e6)):
        if value is not None:
            bench.report.cell(side.name, f"{cell}: {what}", unit).samples.append(value)


def _fill(bench: Bench, side: sides.Braid, wrong: Wrong, size: int) -> None:
    """Writes the files where they do not belong: on a new volume, by weights, without movers."""
    # The speeds that the first mount finds are remembered.
    side.renew()
    side.stop()
    adaptive, keys = side.policy, side.keys
    side.policy, side.keys = "weighted", (*keys, "measure: no")
    side.weights = dict(zip((device.name for device in side.devices), wrong.weights))
    try:
        side.start()
        run("mkdir", "-p", side.root / "load")
        bench.fio.run(f"fill-{wrong.name}", **_options(side, size), rw="write", direct=1, fallocate="none", end_fsync=1)
    finally:
        side.stop()
        side.policy, side.keys, side.weights = adaptive, keys, None
    side.start()


def _options(side: sides.Braid, size: int) -> dict:
    return {"directory": side.root / "load", "filename_format": "f.$jobnum", "bs": BLOCK, "size": size // THREADS,
            "numjobs": THREADS, "thread": 1, "ioengine": "psync"}


def _limit(side: sides.Braid, tier: int, pattern: str) -> float:
    return side.devices[tier].ceiling("write" if pattern == "write" else "read") / MB


def moves_of(side: sides.Braid) -> dict[str, int]:
    """Ranges and bytes that movers have moved since the mount."""
    try:
        moves = json.loads(side.ask("status", str(side.root)))["moves"]
        return {what: sum(move[what] for move in moves) for what in ("ranges", "bytes")}
    except (ValueError, KeyError):
        raise BenchError(f"{side.name}: cannot read the answer of `braid status`") from None


def rates_of(log, seconds: float) -> list[float]:
    """MB/s of all threads in each second, from fio's log. The last one is left out: a thread logs a second with its next
    operation, if there is one."""
    path = log.with_name(f"{log.name}_bw.log")
    sums = [0.0] * max(1, int(seconds) - 1)
    for line in path.read_text().splitlines():
        at, kib, *_ = line.split(",")
        second = round(int(at) / 1000) - 1
        if 0 <= second < len(sums):
            sums[second] += int(kib) * 1024 / MB
    path.unlink()
    return sums


def _converged(rates: list[float], aim: float) -> float | None:
    """The first second from which on the mean stays above the aim; none if it does not."""
    means = [sum(rates[max(0, at - SMOOTH + 1): at + 1]) / min(SMOOTH, at + 1) for at in range(len(rates))]
    below = [at for at, mean in enumerate(means) if mean < aim]
    if not below:
        return 0
    return below[-1] + 1 if below[-1] + 1 < len(means) else None


def _tabulate(bench: Bench, side: sides.Braid, cells: list[str]) -> None:
    figures = ["first seconds", "last seconds", "part of what is possible", "seconds to 90 %", "moved", "moved over needed", "p99"]
    bench.report.table(f"data in the wrong place on {len(side.devices)} tiers, in use by 16 threads: MB/s at first and at "
                       "last, part of what is possible at last (%), seconds until 90 % of it, MB moved, that over what had to "
                       "move, p99 (ms)",
                       ["case", *figures], [bench.row(side, cell, figures) for cell in cells])
