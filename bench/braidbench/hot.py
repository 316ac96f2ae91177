"""Scenario `hot`: data that is read again and again lies on the slow tier (PolyStore's BW_Move, section 4.5.2). Time
until reads run at the fast tier's speed, bytes moved; latency of a paced reader meanwhile; and whether nothing moves
while the fast tier is saturated.

The data is placed by mounting with the policy `size`, which sends large files to a tier by name, before the side is
mounted with its own policy."""

from __future__ import annotations

from pathlib import Path

from braidbench import sides
from braidbench.devices import MB, Device
from braidbench.epochs import EPOCH_S, NEAR, SMOOTH, Sampler, Trace, converged
from braidbench.evaluation import KIB, MIB, Bench, device_size, stop_all
from braidbench.host import Host, run
from braidbench.report import Report, number

SUMMARY = "hot data on the slow tier: time until reads are fast, bytes moved, latency meanwhile, nothing moved when full"
CELLS = ["speed", "latency", "saturated"]
READERS = 8
BLOCK = 64 * KIB
# Share of the slow tier's read bandwidth that the paced reader asks for.
PACE = 0.5
AIM_P99 = 2.0
# The paced reader has so much more data, and half the time: movement lasts about as long as it reads.
PACED_DATA = 3
STILL = "-still"


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = bench.chosen(CELLS)
    size = args.size or (32 * MIB if args.quick else 256 * MIB)
    seconds = args.seconds or (3 if args.quick else 30)
    report.settings.update(size=size, seconds=seconds, readers=READERS, block=BLOCK, pace=PACE)
    tiers = bench.tiers(2, [device_size(4 * size)] * 2)
    lineup = _lineup(bench, tiers)
    try:
        for repetition in range(args.reps):
            bench.repetition = repetition + 1
            for cell in cells:
                for side in lineup:
                    if _takes_part(side, cell):
                        bench.attempt(side, cell, lambda s=side, c=cell: _one(bench, s, c, size, seconds), stop=True)
    finally:
        stop_all(lineup)
        _tabulate(bench, lineup, cells, seconds)


def _lineup(bench: Bench, tiers: list[Device]) -> list[sides.Side]:
    """Native; Braid, and each of its sides again with nothing that moves."""
    lineup = bench.natives(tiers)
    for side in bench.braids(tiers):
        keys = tuple(key for key in side.keys if not key.startswith("movers:"))
        lineup += [side, sides.Braid(side.name + STILL, bench.host, tiers, bench.args.braid, side.policy,
                                     keys=(*keys, "movers: { promote: false, demote: false }"))]
    return lineup


def _takes_part(side: sides.Side, cell: str) -> bool:
    if side.name.endswith(STILL):
        return cell == "latency"
    return cell != "saturated" or isinstance(side, sides.Braid)


def _one(bench: Bench, side: sides.Side, cell: str, size: int, seconds: float) -> None:
    if cell == "latency":
        size, seconds = PACED_DATA * size, seconds / 2
    _place(bench, side, "hot", size, "slow")
    if cell == "saturated":
        _place(bench, side, "busy", 2 * size, "fast")
    side.evict()
    try:
        {"speed": _speed, "latency": _latency, "saturated": _saturated}[cell](bench, side, size, seconds)
    finally:
        run("rm", "-f", side.root / "hot", side.root / "busy")


def _place(bench: Bench, side: sides.Side, name: str, size: int, tier: str) -> None:
    """Makes a file whose data is on one tier; a native side has only one."""
    own = side.policy if isinstance(side, sides.Braid) else None
    if own:
        side.stop()
        side.policy = f"size:small=64KiB,large={tier}"
    try:
        side.start()
        bench.fio.run(f"place-{name}-{side.name}", filename=side.root / name, rw="write", bs="4M", size=size, direct=1,
                      ioengine="psync", fallocate="none", end_fsync=1)
    finally:
        if own:
            side.stop()
            side.policy = own
    side.start()


def _reader(side: sides.Side, size: int, seconds: float) -> dict:
    return {"filename": side.root / "hot", "rw": "randread", "bs": BLOCK, "size": size, "numjobs": READERS, "thread": 1,
            "direct": 1, "ioengine": "psync", "norandommap": 1, "randrepeat": 0, "time_based": 1,
            "runtime": f"{seconds:g}s"}


def _speed(bench: Bench, side: sides.Side, size: int, seconds: float) -> None:
    """Reads as fast as they go, and when that is as fast as the fast tier."""
    with Sampler(side.devices) as sampler:
        result = bench.fio.run(f"speed-{side.name}", **_reader(side, size, seconds))
        ended = sampler.now()
    trace, report = sampler.trace, bench.report
    # fio takes a moment to begin.
    began = max(0.0, ended - result.seconds)
    rates = _reads(trace)[trace.at(began) + 1:trace.at(ended) - 1]
    fast = bench.args.fast.read_bps / MB
    first = converged(rates, fast, SMOOTH)
    report.cell(side.name, "speed: at the start", "MB/s").samples.append(_mean(rates[:5]))
    report.cell(side.name, "speed: at the end", "MB/s").samples.append(_mean(rates[-5:]))
    cell = report.cell(side.name, "speed: until fast", "s")
    cell.samples.append(seconds if first is None else first * EPOCH_S)
    if first is None:
        cell.note("not within the run, in at least one repetition")
    report.cell(side.name, "speed: moved", "MB").samples.append(trace.moved("write", began, ended) / MB)
    report.series.append(trace.as_series("hot data", side.name, [(round(began, 3), fast)], "read"))


def _reads(trace: Trace) -> list[float]:
    """The readers' bytes: all bytes read, less those that movement read, which are as many as were
    written."""
    return [max(0.0, read - written) for read, written in zip(trace.rates("read"), trace.rates("write"))]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _latency(bench: Bench, side: sides.Side, size: int, seconds: float) -> None:
    """A reader that asks for half of the slow tier's bandwidth, so that its latency is not the
    throttle's queue."""
    rate = int(bench.args.slow.read_bps * PACE / READERS)
    with Sampler(side.devices) as sampler:
        result = bench.fio.run(f"latency-{side.name}", rate=rate, rate_process="poisson", **_reader(side, size, seconds))
    bench.latencies(side, "latency", result)
    moved = sampler.trace.moved("write", 0, sampler.trace.times[-1])
    bench.report.cell(side.name, "latency: moved", "MB").samples.append(moved / MB)


def _saturated(bench: Bench, side: sides.Side, size: int, seconds: float) -> None:
    """Other programs write and read as much as the fast tier takes: the rest of the bytes written
    there has been moved."""
    busy = {"filename": side.root / "busy", "bs": "1M", "size": 2 * size, "numjobs": READERS, "thread": 1, "direct": 1,
            "ioengine": "psync", "norandommap": 1, "randrepeat": 0, "time_based": 1, "runtime": f"{seconds + 2:g}s"}
    groups = [busy | {"rw": "randwrite"}, busy | {"rw": "randread"},
              # The target is saturated before the data becomes hot.
              _reader(side, size, seconds) | {"startdelay": "1s", "rate": int(bench.args.slow.read_bps * PACE / READERS)}]
    before = side.transferred()
    written = bench.fio.run_groups(f"saturated-{side.name}", groups)[0].bytes
    moved = side.transferred()[0][1] - before[0][1] - written
    bench.report.cell(side.name, "saturated: moved", "MB").samples.append(max(0.0, moved / MB))
    bench.report.cell(side.name, "saturated: others wrote", "MB/s").samples.append(written / MB / (seconds + 2))


def _tabulate(bench: Bench, lineup: list[sides.Side], cells: list[str], seconds: float) -> None:
    report, rows = bench.report, []
    columns = {"speed": ["speed: at the start", "speed: at the end", "speed: until fast", "speed: moved"],
               "latency": ["latency p50", "latency p99", "latency: moved"],
               "saturated": ["saturated: others wrote", "saturated: moved"]}
    chosen = [what for cell in cells for what in columns[cell]]
    for side in lineup:
        row = [side.name]
        for what in chosen:
            cell = report.cells.get((side.name, what))
            late = "> " if cell and cell.notes else ""
            row.append(late + cell.text() if cell else "")
        rows.append(row + [_against(report, side.name, side.name + STILL), _against(report, side.name, "native-slow")])
    heads = ["side", *chosen, f"p99 over its own without movers (at most {number(AIM_P99)} is aimed at)",
             "p99 over native-slow's"]
    report.table(f"hot data on the slow tier, {READERS} threads reading {BLOCK // KIB} KiB at random for {seconds:g} s; fast "
                 f"means at least {100 * NEAR:.0f} % of {bench.args.fast.read_bps // MB} MB/s from then on", heads, rows)
    report.remarks.append("moved: what was written to the devices while the load only read; `saturated: moved`: what was "
                          "written to the fast tier beside what the others wrote there")


def _against(report: Report, side: str, other: str) -> str:
    own, base = report.cells.get((side, "latency p99")), report.cells.get((other, "latency p99"))
    if own is None or base is None or not own.median or not base.median:
        return ""
    report.ratios[f"latency p99: {side} / {other}"] = round(own.median / base.median, 4)
    return number(own.median / base.median)
