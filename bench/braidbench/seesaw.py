"""Scenario `seesaw`: a tier slows down to a third and recovers, again and again. Data must not move
back and forth with it. Files that `adaptive` placed without given weights are read or overwritten
by 16 threads; or, in `new`, written anew again and again. At the end the tier stays as it was, for
a minute."""

from __future__ import annotations

import subprocess
import time

from braidbench import fio, sides
from braidbench.devices import Limit
from braidbench.evaluation import KIB, MIB, Bench, combined, device_size
from braidbench.host import BenchError, Host, run
from braidbench.misplaced import moves_of, rates_of
from braidbench.report import Report

SUMMARY = "a tier slows to a third and recovers, ten times: rates, and what is moved for it"
THREADS = 16
BLOCK = 64 * KIB
RANGE = 2 * MIB
CYCLES = 10
# Of each half of a cycle, and of the end.
SECONDS, END_S = 30, 60
# Of a phase, the seconds at its end that its rate is taken over.
LATE_S = 9
CELLS = {"read": {"rw": "read", "time_based": 1}, "overwrite": {"rw": "write", "overwrite": 1, "time_based": 1},
         # A job that is `time_based` starts at the beginning of the file without removing it.
         "new": {"rw": "write", "loops": 10_000, "unlink_each_loop": 1, "fallocate": "none"}}
FIGURES = ["slow", "recovered", "end", "ranges moved", "moves of a range", "p99"]


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = bench.chosen(list(CELLS), quick=["read"])
    size = args.size or (256 * MIB if args.quick else 2048 * MIB)
    seconds = args.seconds or (4 if args.quick else SECONDS)
    cycles, end = (2, 10) if args.quick else (CYCLES, END_S)
    report.settings.update(threads=THREADS, block=BLOCK, size=size, phase_seconds=seconds, cycles=cycles, end_seconds=end)
    tiers = bench.tiers(2, [device_size(size)] * 2)
    side = sides.Braid("braid-adaptive", host, tiers, args.braid, "adaptive", keys=tuple(args.volume_key), weights=None)
    try:
        bench.each_cell(side, cells, lambda cell: _one(bench, side, cell, size, (seconds, cycles, end)))
    finally:
        bench.report.table(f"the fast tier slows to a third and recovers, {cycles} times: part of what is possible (%) at the end "
                           "of slow and of recovered phases, and some time after the last; ranges moved in all, for each range "
                           "of the data; p99 (ms)", ["load", *FIGURES], [bench.row(side, cell, FIGURES) for cell in cells])


def _one(bench: Bench, side: sides.Braid, cell: str, size: int, times: tuple[float, int, float]) -> None:
    seconds, cycles, end = times
    side.renew()
    run("mkdir", "-p", side.root / "load")
    common = {"directory": side.root / "load", "filename_format": "f.$jobnum", "bs": BLOCK, "size": size // THREADS,
              "numjobs": THREADS, "thread": 1, "ioengine": "psync", "direct": 1}
    if cell != "new":
        bench.fio.run(f"fill-{cell}", **common, rw="write", fallocate="none", end_fsync=1)
    before = moves_of(side)
    log = bench.keep / f"{bench.fio.count + 1:03}-seesaw-{cell}"
    length = 2 * cycles * seconds + end
    group = common | CELLS[cell] | {"runtime": f"{length:g}s", "write_bw_log": log, "log_avg_msec": 1000, "per_job_logs": 0}
    result = _run(bench, side, group, times)
    moved = moves_of(side)["ranges"] - before["ranges"]
    _keep(bench, side, cell, rates_of(log, length), times)
    for what, value in (("ranges moved", moved), ("moves of a range", moved * RANGE / size),
                        ("p99", (result.latency_ns_p99 or 0) / 1e6)):
        bench.report.cell(side.name, f"{cell}: {what}", "ms" if what == "p99" else "").samples.append(value)


def _run(bench: Bench, side: sides.Braid, group: dict, times: tuple[float, int, float]):
    """Runs the load, and throttles the fast tier at its times."""
    seconds, cycles, end = times
    device = side.devices[0]
    slowed = Limit(device.limit.write_bps // 3, device.limit.read_bps // 3)
    process, output = bench.fio.start("seesaw", [group])
    began = time.monotonic()
    try:
        for phase in range(2 * cycles + 1):
            limit = device.limit if phase % 2 else slowed
            limit = device.limit if phase == 2 * cycles else limit
            bench.host.group.limit(device.nodes[0], limit.read_bps, limit.write_bps)
            time.sleep(max(0.0, began + (phase + 1) * seconds - time.monotonic()) if phase < 2 * cycles else 0)
        said, _ = process.communicate(timeout=end + 120)
    except subprocess.TimeoutExpired:
        raise BenchError("fio: no end long after its time") from None
    finally:
        bench.host.group.limit(device.nodes[0], device.limit.read_bps, device.limit.write_bps)
        if process.poll() is None:
            process.kill()
            process.wait()
    return fio.results(output, process.returncode, said, [group])[0]


def _keep(bench: Bench, side: sides.Braid, cell: str, rates: list[float], times: tuple[float, int, float]) -> None:
    """The part of the possible rate in the last seconds of each phase, in percent: the median of
    all alike phases."""
    seconds, cycles, _ = times
    rw, limits = CELLS[cell]["rw"], bench.limits(2)
    slowed = [Limit(limits[0].write_bps // 3, limits[0].read_bps // 3), limits[1]]
    late = max(1, min(LATE_S, int(seconds / 2)))

    def part(end: float, possible: float) -> float:
        seen = rates[int(end) - late:int(end)]
        return 100 * sum(seen) / max(1, len(seen)) / possible

    phases = range(2 * cycles)
    for what, found in (
            ("slow", [part((phase + 1) * seconds, combined(slowed, rw)) for phase in phases if phase % 2 == 0]),
            ("recovered", [part((phase + 1) * seconds, combined(limits, rw)) for phase in phases if phase % 2]),
            ("end", [part(len(rates), combined(limits, rw))])):
        bench.report.cell(side.name, f"{cell}: {what}", "%").samples.extend(found)
