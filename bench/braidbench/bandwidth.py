"""Scenario `bandwidth`: how much of the tiers' combined bandwidth private files get (PolyStore figures 3 and 6,
table 4). Each cell is measured as fixed work, until the last byte of the last thread, and as a timed run beside it,
which hides threads that are stuck on a slow tier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from braidbench import sides
from braidbench.evaluation import (KIB, MIB, Bench, combined, device_size, explain_suspects, median_text,
                                   processor_time, share_text, stop_all)
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "private files of 1 … 32 threads against the tiers' combined bandwidth; fixed work and timed; latencies"
PATTERNS = ["write", "read", "randread", "randwrite"]
NAMES = {"write": "sequential write", "read": "sequential read", "randread": "random read", "randwrite": "random write"}
SIZES = {"4K": 4 * KIB, "64K": 64 * KIB, "1M": MIB}
THREADS = ["1", "2", "4", "8", "16", "32", "stream"]
# With three tiers, unless others are asked for.
THREADS_OF_THREE = ["1", "4", "16", "32", "stream"]
STREAM_DEPTH = 16


@dataclass(frozen=True)
class Load:
    """One column of a table: a block size, and threads or one deep stream."""

    size: str
    threads: str
    # Bytes of all files.
    total: int
    seconds: float
    # Files get their space before they are written, as by fio's default.
    preallocated: bool = False

    @property
    def count(self) -> int:
        return 1 if self.threads == "stream" else int(self.threads)

    @property
    def each(self) -> int:
        """Bytes of one file."""
        share = self.total // self.count
        unit = MIB if share >= MIB else SIZES["64K"]
        return max(SIZES[self.size], share // unit * unit)

    @property
    def text(self) -> str:
        return f"{self.size} x {self.threads}" if self.threads != "stream" else f"{self.size}, one stream, depth {STREAM_DEPTH}"

    def options(self, side: sides.Side, pattern: str, folder: str, direct: int) -> dict:
        """fio's options for fixed work."""
        deep = self.threads == "stream"
        return {"directory": side.root / folder, "rw": pattern, "bs": SIZES[self.size], "size": self.each,
                "numjobs": self.count, "thread": 1, "direct": direct, "end_fsync": 1,
                "ioengine": "libaio" if deep else "psync", "iodepth": STREAM_DEPTH if deep else 1,
                # The kernel's FUSE client sends writes that make a file longer one at a time.
                "fallocate": "native" if deep or self.preallocated else "none"}

    def timed(self, side: sides.Side, pattern: str, folder: str, direct: int, bandwidth: float) -> dict:
        """fio's options for a fixed time: new files that no thread can fill, or the existing ones again and again."""
        options = self.options(side, pattern, folder, direct) | {"runtime": f"{round(self.seconds * 1000)}ms"}
        if pattern == "write":
            # There would be no room for all that a thread might write.
            return options | {"fallocate": "none", "size": int(self.seconds * bandwidth * 1.3e6) // MIB * MIB + 32 * MIB}
        return options | {"time_based": 1} | ({"norandommap": 1} if pattern.startswith("rand") else {})


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    patterns, loads = bench.chosen(PATTERNS, quick=["write", "read"]), _loads(args)
    if not set(args.tiers or []) <= {"1", "2", "3"}:
        raise BenchError("--tiers: of 1,2,3")
    counts = [int(count) for count in args.tiers or ["2", "3"]]
    deepest = max((load.count for load in loads), default=1)
    report.settings.update(buffered=args.buffered, latency_threads=str(deepest), loads=[vars(load) for load in loads],
                           patterns=patterns, tiers=counts)
    room = device_size(max(load.total for load in loads))
    tiers = bench.tiers(max(counts), [room] * max(counts))
    lineups = {count: _lineup(bench, tiers[:count], count, room) for count in counts}
    cells = [(count, load) for count in counts for load in loads if count < 3 or _with_three(args, load)]
    try:
        for repetition in range(args.reps):
            for count, load in cells:
                for side in lineups[count]:
                    what = f"{count} tiers: {load.text}"
                    bench.repetition = repetition + 1
                    bench.attempt(side, what, lambda s=side, c=count, l=load: _one(bench, s, c, l, patterns))
    finally:
        for count, lineup in lineups.items():
            stop_all(lineup)
            _tabulate(bench, lineup, count, patterns, [load for c, load in cells if c == count])
        explain_suspects(report)


def _with_three(args, load: Load) -> bool:
    """Three tiers are measured with fewer loads, unless they were asked for."""
    return bool(args.threads) or load.threads in THREADS_OF_THREE and not (args.quick and load.size != "1M")


def _loads(args) -> list[Load]:
    sizes = args.sizes or list(SIZES)
    threads = args.threads or (["16"] if args.quick else THREADS)
    if unknown := [size for size in sizes if size not in SIZES] + [t for t in threads if t != "stream" and not t.isdigit()]:
        raise BenchError(f"--sizes, --threads: {', '.join(unknown)}: not understood")
    # Less than 1 GiB, and the burst that a throttle lets through shows as several per cent.
    total = args.size or (128 * MIB if args.quick else 1024 * MIB)
    seconds = args.seconds or (0.5 if args.quick else 2)
    # 4 KiB are bounded by the processors, not by the devices: less work shows as much.
    return [Load(size, count, total // 4 if size == "4K" else total, seconds, args.preallocate)
            for size in sizes for count in threads if count != "stream" or size == "1M"]


def _lineup(bench: Bench, tiers, count: int, room: int) -> list[sides.Side]:
    tag = f"-{count}"
    return [*bench.natives(tiers, tag), *bench.mergerfs(tiers, tag), *bench.btrfs(count, room, tag),
            *bench.braids(tiers, tag)]


def _one(bench: Bench, side: sides.Side, count: int, load: Load, patterns: list[str]) -> None:
    """All patterns of one load on one side: the files are written first, then used by the others."""
    if side.name.startswith("native-"):
        # One device has one rate; as much time as the others take is enough.
        share = side.devices[0].ceiling("write") / 1e6 / combined(bench.limits(count), "write")
        load = replace(load, total=max(16 * MIB, int(load.total * share)))
    if bench.args.untold and isinstance(side, sides.Braid):
        side.renew()
    used = side.used()
    run("mkdir", "-p", side.root / "files", side.root / "timed")
    for pattern in PATTERNS:
        if pattern in patterns or pattern == "write":
            _pattern(bench, side, count, load, pattern)
    cell = bench.report.cell(side.name, f"{count} tiers: write {load.text}", "MB/s")
    bench.clear(side, cell, used, load.each * load.count)


def _pattern(bench: Bench, side: sides.Side, count: int, load: Load, pattern: str) -> None:
    rw = "write" if pattern.endswith("write") else "read"
    what, label = f"{count} tiers: {pattern} {load.text}", f"{count}-{pattern}-{load.size}-{load.threads}-{side.name}"
    # Through the page cache, a timed run would end with the copying into it.
    for timed in (False,) if bench.args.buffered else (False, True):
        if rw == "read":
            side.evict()
        before = side.transferred()
        if timed:
            folder = "timed" if pattern == "write" else "files"
            options = load.timed(side, pattern, folder, bench.direct(side), combined(bench.limits(count), "write"))
        else:
            options = load.options(side, pattern, "files", bench.direct(side))
        busy = processor_time()
        result = bench.fio.run(label + ("-timed" if timed else ""), **options)
        busy, idle = (now - then for now, then in zip(processor_time(), busy))
        bench.record(side, what + (" timed" if timed else ""), rw, result, before)
        if not timed and load.size == "4K":
            bench.report.cell(side.name, f"{what} processors busy", "%").samples.append(100 * busy / max(1, busy + idle))
        if not timed and load.threads == bench.report.settings["latency_threads"]:
            bench.latencies(side, what, result)
    if pattern == "write":
        run("find", side.root / "timed", "-type", "f", "-delete")


def _tabulate(bench: Bench, lineup: list[sides.Side], count: int, patterns: list[str], loads: list[Load]) -> None:
    for pattern in patterns:
        rw = "write" if pattern.endswith("write") else "read"
        whole = combined(bench.limits(count), rw)
        for size in dict.fromkeys(load.size for load in loads):
            columns = [load for load in loads if load.size == size]
            rows = [[side.name, *(_cell(bench.report, side.name, count, pattern, load, whole) for load in columns)]
                    for side in lineup]
            title = (f"{NAMES[pattern]}, {size}, {count} tiers ({_limits_text(bench, count)}): MB/s as fixed work, share of "
                     f"the {number(whole)} MB/s of all tiers, and timed")
            bench.report.table(title, ["side", *(_head(load) for load in columns)], rows)
        _against_best(bench, lineup, count, pattern, loads)
    _tabulate_busy(bench, lineup, count, patterns, [load for load in loads if load.size == "4K"])
    _tabulate_latencies(bench, lineup, count, patterns, loads)


def _head(load: Load) -> str:
    return "depth 16" if load.threads == "stream" else f"{load.threads} thread" + ("s" if load.count > 1 else "")


def _limits_text(bench: Bench, count: int) -> str:
    return ", ".join(str(limit) for limit in bench.limits(count))


def _cell(report: Report, side: str, count: int, pattern: str, load: Load, whole: float) -> str:
    what = f"{count} tiers: {pattern} {load.text}"
    text = share_text(report, side, what, whole)
    timed = share_text(report, side, f"{what} timed", whole)
    return f"{text} ({timed.split(' = ')[-1]} timed)" if text and timed else text


def _against_best(bench: Bench, lineup: list[sides.Side], count: int, pattern: str, loads: list[Load]) -> None:
    """Braid's sides over the best of the others, by fixed work."""
    peers = [side.name for side in lineup if not isinstance(side, sides.Braid)]
    rows = []
    for side in lineup:
        if not isinstance(side, sides.Braid):
            continue
        row = [side.name]
        for load in loads:
            what = f"{count} tiers: {pattern} {load.text}"
            best = max((_median(bench.report, peer, what) or 0 for peer in peers), default=0)
            own = _median(bench.report, side.name, what)
            row.append(number(own / best) if own and best else "")
            if own and best:
                bench.report.ratios[f"{what}: {side.name} / best peer"] = round(own / best, 4)
        rows.append(row)
    if rows and peers:
        bench.report.table(f"{NAMES[pattern]}, {count} tiers: Braid over the best other side (fixed work)",
                           ["side", *(load.text for load in loads)], rows)


def _median(report: Report, side: str, what: str) -> float | None:
    cell = report.cells.get((side, what))
    return cell.median if cell else None


def _tabulate_busy(bench: Bench, lineup: list[sides.Side], count: int, patterns: list[str], loads: list[Load]) -> None:
    """What bounds 4 KiB: near 100 %, it is the processors."""
    for pattern in patterns if loads else []:
        rows = [[side.name, *(median_text(bench.report, side.name, f"{count} tiers: {pattern} {load.text} processors busy")
                              for load in loads)] for side in lineup]
        bench.report.table(f"{NAMES[pattern]}, 4K, {count} tiers: % of the machine's processors that were busy",
                           ["side", *(_head(load) for load in loads)], rows)


def _tabulate_latencies(bench: Bench, lineup: list[sides.Side], count: int, patterns: list[str], loads: list[Load]) -> None:
    for load in loads:
        if load.threads != bench.report.settings["latency_threads"]:
            continue
        heads = ["side", *(f"{NAMES[pattern]} {name}" for pattern in patterns for name in ("mean", "p50", "p99"))]
        rows = [[side.name, *(median_text(bench.report, side.name, f"{count} tiers: {pattern} {load.text} {name}")
                              for pattern in patterns for name in ("mean", "p50", "p99"))] for side in lineup]
        bench.report.table(f"latency in ms, {load.size}, {load.count} threads, {count} tiers, during the fixed work",
                           heads, rows)
