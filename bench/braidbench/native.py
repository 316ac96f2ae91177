"""Scenario `native`: Braid's cost on each tier against the tier's native file system, with no
tiering to gain from (Mux section 3.2): the latency of 1-byte random reads, and the throughput of 4
MiB writes one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from braidbench import devices, overhead, sides
from braidbench.devices import GIB, Device
from braidbench.evaluation import MIB, TIER_NAMES, Bench, stop_all
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "on each tier, Braid against native: 1-byte random reads and 4 MiB writes, plain files and indexed ones"
CELLS = ["reads", "writes"]


@dataclass(frozen=True)
class Row:
    """One measurement on one tier."""

    cell: str
    text: str
    unit: str
    # Whether the data is cached, or the I/O direct.
    flag: bool
    throttled: bool

    @property
    def lower_is_better(self) -> bool:
        return self.cell == "reads"


ROWS = [
    Row("reads", "1-byte random read, cached", "µs", True, False),
    Row("reads", "1-byte random read, not cached", "µs", False, False),
    Row("writes", "4 MiB writes, direct", "MB/s", True, True),
    Row("writes", "4 MiB writes, direct, device not limited", "MB/s", True, False),
    Row("writes", "4 MiB writes, buffered and synced, device not limited", "MB/s", False, False),
]


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    chosen = [row for row in ROWS if row.cell in bench.chosen(CELLS)]
    size = args.size or (64 * MIB if args.quick else GIB)
    report.settings.update(size=size)
    tools = overhead.Bench(host, bench.fio, overhead.Work(size, size, size, 0, 1 if args.quick else 3))
    tiers = {throttled: _tiers(bench, throttled, size) for throttled in dict.fromkeys(row.throttled for row in chosen)}
    lineups = {(throttled, name): _lineup(bench, made, name) for throttled, made in tiers.items() for name in TIER_NAMES}
    try:
        for repetition in range(args.reps):
            bench.repetition = repetition + 1
            for row in chosen:
                for name in TIER_NAMES:
                    for side in lineups[row.throttled, name]:
                        bench.attempt(side, f"{name}: {row.text}", lambda s=side, r=row, n=name: _one(bench, tools, s, r, n))
    finally:
        for lineup in lineups.values():
            stop_all(lineup)
        _tabulate(bench, chosen)


def _tiers(bench: Bench, throttled: bool, size: int) -> list[Device]:
    prefix = "" if throttled else "free-"
    kinds = [bench.args.fast_fs, bench.args.slow_fs, bench.args.third_fs]
    return [devices.make(bench.host, prefix + name, kind, max(2 * GIB, 6 * size), limit if throttled else None)
            for name, kind, limit in zip(TIER_NAMES, kinds, bench.limits(3))]


def _lineup(bench: Bench, tiers: list[Device], name: str) -> list[sides.Side]:
    """Native; Braid with this tier alone, where the file is plain; and, except for home, Braid with all but the file's
    first range on it by an index. Each has a name of its own in the report's cells by its kind alone."""
    tier, tag = tiers[TIER_NAMES.index(name)], f"-{tiers[TIER_NAMES.index(name)].name}"
    lineup: list[sides.Side] = [sides.Side("native", bench.host, [tier], tag),
                                sides.Braid("braid-plain", bench.host, [tier], bench.args.braid, "home-first", tag=tag)]
    if tier is not tiers[0]:
        lineup.append(sides.Braid("braid-indexed", bench.host, [tiers[0], tier], bench.args.braid,
                                  f"size:small=64KiB,large={tier.name}", tag=tag))
    return bench.wanted(lineup)


def _one(bench: Bench, tools: overhead.Bench, side: sides.Side, row: Row, tier: str) -> None:
    cell = bench.report.cell(side.name, f"{tier}: {row.text}", row.unit)
    if row.cell == "reads":
        path, size = tools.fill(side, "bytes", tools.work.spread_file), tools.work.spread_file
        before = sum(read for read, _ in side.transferred())
        if row.flag:
            result = tools.random_reads(side, "bytes", "1", size)
        else:
            side.evict()
            # Few enough that nearly all miss the cache.
            result = bench.fio.run(f"bytes-{side.place}", filename=path, rw="randread", bs=1, size=size, ioengine="psync",
                                   norandommap=1, randrepeat=0, number_ios=size // 4096 // 50)
        if result.latency_ns_mean is None:
            raise BenchError("fio gave no latencies")
        cell.samples.append(result.latency_ns_mean / 1000)
        read = sum(read for read, _ in side.transferred()) - before
        if not row.flag and read < result.operations * 4096 * 0.9:
            cell.note(f"SUSPECT: {side.name}, {tier}: {row.text}: the device read only {read // 1024} KiB")
    else:
        path = side.root / "stream"
        cell.samples.append(tools.sequential(side, "write", ioengine="psync", iodepth=1, bs="4M", direct=int(row.flag),
                                             fallocate="none"))
    wanted = {"native": None, "braid-plain": "plain", "braid-indexed": "spread"}[side.name]
    if (found := side.layout(path)) != wanted:
        cell.note(f"SUSPECT: {side.name}, {tier}: {row.text}: the file was {found}, not {wanted}")
    if row.cell == "writes":
        run("rm", "-f", path)


def _tabulate(bench: Bench, chosen: list[Row]) -> None:
    report, rows = bench.report, []
    for row in chosen:
        for tier in TIER_NAMES:
            what = f"{tier}: {row.text}"
            native = report.cells.get(("native", what))
            line = [row.text, tier, native.text() if native else ""]
            for name in ("braid-plain", "braid-indexed"):
                line += _columns(report, row, what, name, native)
            rows.append(line)
    report.remarks += [note for cell in report.cells.values() for note in cell.notes]
    report.table("against native on the same tier; change of the mean latency or of the rate",
                 ["measurement", "tier", "native", "Braid, plain", "change", "Braid, indexed", "change"], rows)


def _columns(report: Report, row: Row, what: str, name: str, native) -> list[str]:
    cell = report.cells.get((name, what))
    if cell is None:
        return ["", ""]
    if native is None or not native.median or not cell.median:
        return [cell.text(), ""]
    ratio = cell.median / native.median
    report.ratios[f"{what}: {name} / native"] = round(ratio, 4)
    text = f"{100 * (ratio - 1):+.1f} %" if ratio < 10 else f"{number(ratio)} times"
    return [cell.text(), text]
