"""Scenario `ordinary`: unmodified programs, where only software costs: ext4 in memory, not throttled.
Each load is measured in turn on ext4 itself, mergerfs in the modes that suit programs best, and Braid."""

from __future__ import annotations

import shutil
from pathlib import Path

from braidbench import devices, evaluation, sides
from braidbench.devices import GIB, Device
from braidbench.evaluation import MERGERFS_MODES, MERGERFS_PASSTHROUGH
from braidbench.host import BenchError, Host, memory_bytes, run
from braidbench.ordinary_bench import TIMEOUT_S, Bench, Load, Row
from braidbench.ordinary_files import SMALL, TOOLS, WRITES
from braidbench.ordinary_programs import DATABASES, postgres_programs
from braidbench.report import Report, number

SUMMARY = "ordinary programs on ext4 in memory, not throttled: buffered writes, databases, git, tar, many small files"
WORK_DIR = Path("/dev/shm")
LOADS: list[Load] = [*WRITES, *DATABASES, *TOOLS, *SMALL]
# Small files need more inodes than ext4 makes by itself.
MKFS_OPTIONS = ("-i", "4096")
# The memory that programs, servers and the kernel take beside the devices.
MEMORY_SPARE = 4 * GIB
# The default of disks. mergerfs sets its own for its branches too, and leaves it there.
READAHEAD_KIB = 128
POLICIES = {"plain": "home-first", "spread": "weighted"}
DEFAULT_CACHE = "default"
# Further sides of Braid, with flags of their own.
OTHERS = {"braid_without_xattr": ("--no-xattr",), "braid_without_polling": ("--poll", "0us")}
# mergerfs asks its first branch first, and with these asks it seldom.
MERGERFS_POLICY = "ff"
MERGERFS_OPTIONS = ("cache.attr=3600", "cache.entry=3600", "cache.negative_entry=3600", "cache.readdir=true",
                    "cache.symlinks=true", "cache.statfs=10", "xattr=nosys")
MERGERFS_READDIR = (2, 37)
MERGERFS_NEWER_OPTIONS = ("func.readdir=cosr", "readahead=1024")


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    names = bench.chosen([load.name for load in LOADS])
    loads = [load for load in LOADS if load.name in names and _has_programs(bench, load)]
    lineup = _lineup(bench, _tiers(bench, names))
    try:
        for repetition in range(args.reps):
            bench.repetition = repetition + 1
            for load in loads:
                # Other work of the machine meets another side first each time.
                for side in lineup if repetition % 2 == 0 else reversed(lineup):
                    _one(bench, side, load)
    finally:
        evaluation.stop_all(lineup)
        _tabulate(bench, lineup, loads)


def _tiers(bench: Bench, loads: list[str]) -> list[Device]:
    rooms = bench.work.rooms(loads)
    needed, free = sum(rooms) + MEMORY_SPARE, memory_bytes("MemAvailable")
    if needed > free:
        raise BenchError(f"{free / GIB:.1f} GiB of memory are free, {needed / GIB:.1f} needed: fewer --files, or other --cells")
    bench.report.settings.update(devices=list(rooms))
    tiers = [devices.make(bench.host, name, "ext4", room, None, mkfs_options=MKFS_OPTIONS)
             for name, room in zip(("first", "second"), rooms)]
    for tier in tiers:
        tier.set_readahead(READAHEAD_KIB)
    return tiers


def _lineup(bench: Bench, tiers: list[Device]) -> list[sides.Side]:
    native = bench.wanted([sides.Side("native", bench.host, tiers[:1])])
    return [*native, *_mergerfs(bench, tiers), *_braids(bench, tiers)]


def _mergerfs(bench: Bench, tiers: list[Device]) -> list[sides.Side]:
    """mergerfs in each mode that it has."""
    modes = {mode: own for mode, own in MERGERFS_MODES.items() if bench.wants(f"mergerfs-{mode}")}
    version = evaluation.mergerfs_version(bench.args)
    if modes and "mergerfs" not in bench.report.machine["versions"]:
        bench.report.remarks.append(f"mergerfs was left out: {bench.args.mergerfs} was not found (Debian: mergerfs)")
        return []
    if "passthrough" in modes and version < MERGERFS_PASSTHROUGH:
        del modes["passthrough"]
        bench.report.remarks.append("mergerfs is measured in one mode: passthrough.io needs version "
                                    + ".".join(map(str, MERGERFS_PASSTHROUGH)))
    common = MERGERFS_OPTIONS + (MERGERFS_NEWER_OPTIONS if version >= MERGERFS_READDIR else ())
    bench.report.settings.update(mergerfs={mode: [*options, *common] for mode, options in modes.items()})
    return [sides.Mergerfs(f"mergerfs-{mode}", bench.host, tiers, MERGERFS_POLICY, (*options, *common), bench.args.mergerfs)
            for mode, options in modes.items()]


def _braids(bench: Bench, tiers: list[Device]) -> list[sides.Side]:
    """Braid with files on home and with files spread, once with each mode of the cache that was asked for, and with
    the flags of the others: without extended attributes, as mergerfs is run, and without polling."""
    found = []
    for layout, policy in POLICIES.items():
        # By default, the flag is left out, so that a Braid without it works too.
        asked = bench.args.caches or [DEFAULT_CACHE]
        flags = {f"braid-{layout}" if cache == DEFAULT_CACHE else f"braid-{layout}-{cache}":
                 () if cache == DEFAULT_CACHE else ("--cache", cache) for cache in asked}
        others = {f"{name}-{layout}": own for name, own in OTHERS.items()}
        for name, own in {**flags, **others}.items():
            found.append(sides.Braid(name, bench.host, tiers, bench.args.braid, policy, own, tuple(bench.args.volume_key)))
    return bench.wanted(found)


def _has_programs(bench: Bench, load: Load) -> bool:
    found = {"postgresql": postgres_programs() and shutil.which("setpriv")}
    missing = [name for name in load.programs if not found.get(name, shutil.which(name))]
    if missing:
        bench.report.remarks.append(f"{load.name} was left out, missing: {', '.join(missing)} (Debian: {load.packages})")
    return not missing


def _one(bench: Bench, side: sides.Side, load: Load) -> None:
    before = bench.report.cells.get((side.name, load.name))
    if before and len(before.failures) >= 2:
        # A side that failed twice at this will not do better: do not wait for it again.
        return

    def action() -> None:
        try:
            load.action(bench, side)
        except OSError as error:
            raise BenchError(str(error)) from None

    bench.attempt(side, load.name, action, stop=True)
    # Below the side, so that leftovers go as well, and each load finds it new.
    for store in side.stores:
        run("rm", "-rf", store, timeout=TIMEOUT_S)
    for device in side.devices:
        device.set_readahead(READAHEAD_KIB)
    bench.settle(side)


def _tabulate(bench: Bench, lineup: list[sides.Side], loads: list[Load]) -> None:
    report, names = bench.report, [side.name for side in lineup]
    braids, modes = ([name for name in names if name.startswith(kind)] for kind in ("braid", "mergerfs"))
    rows = []
    for load in loads:
        for row in load.rows:
            mode = _best(report, modes, row)
            peer = [_ratio(report, row, mode, "native"), mode.rpartition("-")[2][:1]]
            line = [row.text, row.unit, _text(report, "native", load, row), _text(report, mode, load, row, peer)]
            for name in braids:
                ratios = [_ratio(report, row, name, "native"), _ratio(report, row, name, mode, "mergerfs")]
                line.append(_text(report, name, load, row, ratios))
            rows.append(line)
    report.table("medians; in brackets the speed as a part of native's, and of mergerfs's (more is faster). mergerfs: in the "
                 "faster of its modes, p (passthrough) or w (writeback)", ["", "", "native", "mergerfs", *braids], rows)


def _best(report: Report, modes: list[str], row: Row) -> str:
    """The mode of mergerfs that is the fastest."""
    medians = [(median, name) for name in modes if (median := _median(report, name, row))]
    return (min if row.lower_is_better else max)(medians)[1] if medians else next(iter(modes), "mergerfs")


def _median(report: Report, side: str, row: Row) -> float | None:
    cell = report.cells.get((side, row.text))
    return cell.median if cell else None


def _text(report: Report, side: str, load: Load, row: Row, more: list[str] | None = None) -> str:
    median, whole = _median(report, side, row), report.cells.get((side, load.name))
    if median is None:
        return "failed" if whole and whole.failures else ""
    return f"{number(median)} ({', '.join(more)})" if more else number(median)


def _ratio(report: Report, row: Row, side: str, base: str, name: str = "native") -> str:
    """The speed of a side as a part of another's; a dash where one of them has none."""
    own, other = _median(report, side, row), _median(report, base, row)
    if not (own and other):
        return "–"
    ratio = other / own if row.lower_is_better else own / other
    report.ratios[f"{row.text}: {side} / {name}"] = round(ratio, 4)
    return number(ratio)
