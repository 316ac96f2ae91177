"""Scenario `change`: the bandwidth while the load or a tier changes (PolyStore figure 4a). 32
threads work on private files; half of them finish, then a tier slows to a third, then it recovers.
Bandwidth comes from the block devices' counters, for each epoch of 200 ms; the throttle is changed
while everything runs.

The side `both-natives` drives each tier by fio of its own, with no file system between: the figures
of a perfect policy on this instrument."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from braidbench import fio, sides
from braidbench.devices import MB, Device, Limit
from braidbench.epochs import EPOCH_S, SMOOTH, Sampler, Trace, converged
from braidbench.evaluation import KIB, MIB, Bench, combined, device_size, stop_all
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "threads finish, a tier slows to a third and recovers: bandwidth for each epoch, epochs to converge, moves"
THREADS = 32
BLOCK = 64 * KIB
RANGE = 2 * MIB
READ_BYTES = 1024 * MIB
STARTS_WITHIN_S = 20
AIM_EPOCHS = 10


@dataclass(frozen=True)
class Timeline:
    """One run: its load, and the tier that slows down."""

    name: str
    rw: str
    slowed: int


TIMELINES = {"write-fast": Timeline("write-fast", "write", 0), "write-slow": Timeline("write-slow", "write", 1),
             "read-fast": Timeline("read-fast", "read", 0)}
PHASES = ["all threads", "half of them", "a tier at a third", "recovered"]


class BothNatives(sides.Side):
    """Both tiers at once, each by files of its own."""


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    chosen = [TIMELINES[name] for name in bench.chosen(list(TIMELINES), quick=["write-fast"])]
    seconds = args.seconds or (2 if args.quick else 6)
    report.settings.update(threads=THREADS, block=BLOCK, phase_seconds=seconds, epoch_seconds=EPOCH_S)
    room = device_size(int(len(PHASES) * seconds * args.fast.write_bps))
    tiers = bench.tiers(2, [room] * 2)
    lineup = [*bench.wanted([BothNatives("both-natives", host, tiers)]), *bench.mergerfs(tiers), *bench.braids(tiers)]
    try:
        for repetition in range(args.reps):
            bench.repetition = repetition + 1
            for timeline in chosen:
                for side in lineup:
                    bench.attempt(side, timeline.name, lambda s=side, t=timeline: _one(bench, s, t, seconds), stop=True)
    finally:
        stop_all(lineup)
        for timeline in chosen:
            _tabulate(bench, lineup, timeline)
        report.remarks.append(
            "epochs to converge: the first epoch of a phase from which on the bandwidth stays above 90 % of the tiers' "
            f"combined bandwidth until the phase ends, each epoch taken as the mean of {SMOOTH} up to it (strictly, "
            "without the mean, in brackets); `both-natives` is what this instrument shows for a perfect policy")


def _one(bench: Bench, side: sides.Side, timeline: Timeline, seconds: float) -> None:
    used = side.used()
    roots = side.stores if isinstance(side, BothNatives) else [side.root]
    for root in roots:
        run("mkdir", "-p", root / "load")
    groups = _groups(bench, side, timeline, seconds, roots)
    if timeline.rw == "read":
        _fill(bench, side, groups, seconds)
        side.evict()
    device, whole = side.devices[timeline.slowed], list(bench.limits(2))
    try:
        trace, began = _run(bench, side, timeline, groups, seconds, device)
    finally:
        _throttle(bench, device, device.limit)
    _evaluate(bench, side, timeline, trace, began, seconds, whole)
    for root in roots:
        run("find", root / "load", "-type", "f", "-delete")
    cell = bench.report.cell(side.name, f"{timeline.name}: {PHASES[0]}", "MB/s")
    # Leftovers would take the next side's room.
    bench.clear(side, cell, used, RANGE * THREADS)


def _groups(bench: Bench, side: sides.Side, timeline: Timeline, seconds: float, roots: list[Path]) -> list[dict]:
    """Half of the threads work to the end, the others finish after the first phase."""
    direct = bench.direct(side)
    size = READ_BYTES // THREADS if timeline.rw == "read" else _never_filled(bench, seconds)
    groups = []
    for number_, length in enumerate((len(PHASES) * seconds, seconds)):
        for root in roots:
            groups.append({"directory": root / "load", "filename_format": f"g{number_}.$jobnum", "rw": timeline.rw,
                           "bs": BLOCK, "size": size, "numjobs": THREADS // 2 // len(roots), "thread": 1,
                           "direct": direct, "ioengine": "psync", "fallocate": "none", "runtime": f"{length:g}s"})
            if timeline.rw == "read":
                groups[-1]["time_based"] = 1
    return groups


def _never_filled(bench: Bench, seconds: float) -> int:
    return int(len(PHASES) * seconds * 1.3 * combined(bench.limits(2), "write")) * MB // MIB * MIB


def _fill(bench: Bench, side: sides.Side, groups: list[dict], seconds: float) -> None:
    """Writes the files that the timeline reads, all at once, by the side's own policy."""
    made = [{key: value for key, value in group.items() if key not in ("runtime", "time_based")}
            | {"rw": "write", "end_fsync": 1} for group in groups]
    bench.fio.run_groups(f"fill-{side.name}", made)


def _run(bench: Bench, side: sides.Side, timeline: Timeline, groups: list[dict], seconds: float,
         device: Device) -> tuple[Trace, float]:
    """Runs the load, changes the throttle at its times, and gives the trace and the moment when the load began."""
    slowed = Limit(device.limit.write_bps // 3, device.limit.read_bps // 3)
    with Sampler(side.devices) as sampler:
        process, output = bench.fio.start(f"{timeline.name}-{side.name}", groups)
        try:
            began = _wait_for_load(sampler, process, timeline.rw)
            for phase, limit in ((2, slowed), (3, device.limit)):
                time.sleep(max(0.0, began + phase * seconds - sampler.now()))
                _throttle(bench, device, limit)
            said, _ = process.communicate(timeout=4 * seconds + 60)
        except subprocess.TimeoutExpired:
            raise BenchError("fio: no end long after its time") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    fio.results(output, process.returncode, said, groups)
    return sampler.trace, began


def _wait_for_load(sampler: Sampler, process: subprocess.Popen, rw: str) -> float:
    deadline = sampler.now() + STARTS_WITHIN_S
    while sampler.now() < deadline and process.poll() is None:
        if len(sampler.trace.times) > 1 and sampler.trace.moved(rw, 0, sampler.now()) > 4 * MIB:
            return sampler.trace.times[-1]
        time.sleep(0.01)
    raise BenchError("the load did not begin")


def _throttle(bench: Bench, device: Device, limit: Limit) -> None:
    bench.host.group.limit(device.nodes[0], limit.read_bps, limit.write_bps)


def _optima(timeline: Timeline, limits: list[Limit]) -> list[float]:
    """The tiers' combined bandwidth in each phase."""
    slowed = [limit if i != timeline.slowed else Limit(limit.write_bps // 3, limit.read_bps // 3)
              for i, limit in enumerate(limits)]
    full = combined(limits, timeline.rw)
    return [full, full, combined(slowed, timeline.rw), full]


def _evaluate(bench: Bench, side: sides.Side, timeline: Timeline, trace: Trace, began: float, seconds: float,
              limits: list[Limit]) -> None:
    optima, report = _optima(timeline, limits), bench.report
    rates, other = trace.rates(timeline.rw), "read" if timeline.rw == "write" else "write"
    for phase, (name, optimum) in enumerate(zip(PHASES, optima)):
        start, end = began + phase * seconds, began + (phase + 1) * seconds
        # Neither the epoch in which a phase begins nor the one in which it ends is whole.
        part = rates[trace.at(start):trace.at(end) - 1]
        what = f"{timeline.name}: {name}"
        if not part:
            raise BenchError("a phase without epochs")
        report.cell(side.name, what, "MB/s").samples.append(sum(part) / len(part))
        for kind, smooth in (("epochs", SMOOTH), ("strict epochs", 1)):
            count = converged(part, optimum, smooth)
            # Never converged: the number of all epochs.
            report.cell(side.name, f"{what} {kind}", "").samples.append(len(part) if count is None else count)
            if count is None:
                report.cell(side.name, f"{what} {kind}", "").note("not before the phase ended, in at least one repetition")
        moved = trace.moved(other, start, end)
        report.cell(side.name, f"{what} moves", "/s").samples.append(moved / RANGE / seconds)
    report.series.append(trace.as_series(
        f"{timeline.name}", side.name, [(round(began + phase * seconds, 3), optimum) for phase, optimum in enumerate(optima)],
        timeline.rw))


def _tabulate(bench: Bench, lineup: list[sides.Side], timeline: Timeline) -> None:
    optima, rows = _optima(timeline, bench.limits(2)), []
    for side in lineup:
        row = [side.name]
        for name, optimum in zip(PHASES, optima):
            row.append(_phase_text(bench.report, side.name, f"{timeline.name}: {name}", optimum))
        rows.append(row)
    tier = ("fast", "slow")[timeline.slowed]
    heads = ["side", *(f"{name}, of {number(optimum)} MB/s" for name, optimum in zip(PHASES, optima))]
    bench.report.table(f"{timeline.rw}s, the {tier} tier slows: mean share of the tiers' bandwidth; epochs to converge "
                       f"(strict), at most {AIM_EPOCHS} are aimed at; ranges moved in a second", heads, rows)


def _phase_text(report: Report, side: str, what: str, optimum: float) -> str:
    cell = report.cells.get((side, what))
    if cell is None or cell.median is None:
        return cell.text() if cell else ""
    report.ratios[f"{what}: {side} / combined"] = round(cell.median / optimum, 4)
    epochs = []
    for kind in ("epochs", "strict epochs"):
        count = report.cells[side, f"{what} {kind}"]
        epochs.append(("≥ " if count.notes else "") + f"{count.median:.0f}")
    moves = report.cells[side, f"{what} moves"].median
    return f"{100 * cell.median / optimum:.0f} %; {epochs[0]} ({epochs[1]}); {number(moves)}/s"
