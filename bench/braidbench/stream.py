"""Scenario `stream`: one sequential stream over two unequal throttled tiers.

Fixed work: a whole new file is written and synced, then read; the rate is its size over the time until the
last byte. The sides take turns in every repetition, so that a slow minute of the machine meets all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidbench import checks, devices, sides
from braidbench.devices import GIB, MB
from braidbench.fio import Fio
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "one sequential stream, 1 MiB blocks, over two throttled tiers: native, mergerfs, btrfs raid0, Braid"


@dataclass(frozen=True)
class Variant:
    """How the stream does its I/O."""

    name: str
    text: str
    direct: bool
    options: dict


VARIANTS = [
    Variant("direct", "direct I/O, depth 16, preallocated file", True,
            {"ioengine": "libaio", "iodepth": 16, "direct": 1, "fallocate": "native"}),
    Variant("extending", "direct I/O, depth 16, no preallocation", True,
            {"ioengine": "libaio", "iodepth": 16, "direct": 1, "fallocate": "none"}),
    Variant("buffered", "buffered, fsync at the end", False,
            {"ioengine": "psync", "direct": 0, "fallocate": "none"}),
]


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    if not host.throttled:
        raise BenchError(f"stream needs throttled devices: {host.group.reason}")
    fio = Fio(host, keep)
    size = args.size or (GIB // 4 if args.quick else GIB)
    chosen = [v for v in VARIANTS if not args.variants or v.name in args.variants]
    report.settings.update(size=size, fast=str(args.fast), slow=str(args.slow), reps=args.reps)
    lineup = [side for side in _lineup(host, args, size) if not args.sides or side.name in args.sides]
    try:
        for repetition in range(args.reps):
            for variant in chosen:
                for side in lineup:
                    if side.direct or not variant.direct:
                        args.progress(f"repetition {repetition + 1}/{args.reps}, {variant.name}, {side.name}")
                        _one(fio, report, side, variant, size)
    finally:
        for side in lineup:
            side.stop()
        _tabulate(report, lineup, chosen, args)


def _lineup(host: Host, args, size: int) -> list[sides.Side]:
    room = max(4 * GIB, 3 * size)
    fast = devices.make(host, "fast", args.fast_fs, room, args.fast)
    slow = devices.make(host, "slow", args.slow_fs, room, args.slow)
    lineup = [sides.Side("fast", host, [fast]), sides.Side("slow", host, [slow])]
    # The policies differ in which tier gets the file: that decides the rate, and mergerfs stripes nothing.
    lineup += [sides.Mergerfs(f"mergerfs-{policy}", host, [fast, slow], policy) for policy in ("ff", "mfs")]
    try:
        pair = devices.make(host, "raid0", "btrfs", room, args.slow, pair=True)
        lineup.append(sides.Side("btrfs-raid0", host, [pair]))
    except BenchError as error:
        args.progress(f"btrfs raid0 is left out: {error}")
    lineup.append(sides.Braid("braid", host, [fast, slow], args.braid, "weighted"))
    return lineup


def _one(fio: Fio, report: Report, side: sides.Side, variant: Variant, size: int) -> None:
    """Write and read of one file on one side."""
    cells = {rw: report.cell(side.name, f"{variant.name} {rw}", "MB/s") for rw in ("write", "read")}
    path = side.root / "stream"
    used = None
    for rw, cell in cells.items():
        try:
            side.start()
            used = side.used() if used is None else used
            run("rm", "-f", path) if rw == "write" else side.evict()
            before = side.transferred()
            result = fio.run(f"{variant.name}-{side.name}-{rw}", filename=path, rw=rw, bs="1M", size=size,
                             end_fsync=1, **variant.options)
            cell.samples.append(result.rate / MB)
            checks.examine(cell, side, rw, size, before, result.seconds)
        except BenchError as error:
            cell.failures.append(str(error))
            side.stop()
            if rw == "write":
                cells["read"].failures.append("nothing to read: the write failed")
                return
    try:
        run("rm", "-f", path)
        checks.freed(cells["write"], side, used, size)
    except BenchError:
        side.stop()


def _tabulate(report: Report, lineup: list[sides.Side], chosen: list[Variant], args) -> None:
    for variant in chosen:
        if not any(what.startswith(f"{variant.name} ") for _, what in report.cells):
            continue
        rows = []
        for side in lineup:
            row = [side.name]
            for rw in ("write", "read"):
                row += _columns(report, side.name, variant.name, rw)
            if (side.name, f"{variant.name} write") in report.cells:
                rows.append(row + [_notes(report, side.name, variant.name)])
            elif not side.direct:
                rows.append([side.name, "refuses O_DIRECT", "", "", "", ""])
        heads = ["side", "write", "of the sum", "read", "of the sum", "remarks"]
        report.table(f"{variant.text}; tiers {args.fast} and {args.slow} (write/read)", heads, rows)
    _check_throttles(report, args)


def _sum(report: Report, variant: str, rw: str) -> float | None:
    """The two native tiers together, as measured; None unless both were."""
    medians = [report.cell(name, f"{variant} {rw}", "MB/s").median
               if (name, f"{variant} {rw}") in report.cells else None for name in ("fast", "slow")]
    return None if None in medians else sum(medians)


def _columns(report: Report, side: str, variant: str, rw: str) -> list[str]:
    cell = report.cells.get((side, f"{variant} {rw}"))
    total = _sum(report, variant, rw)
    if cell is None:
        return ["", ""]
    if cell.median is None or total is None:
        return [cell.text(), ""]
    ratio = cell.median / total
    report.ratios[f"{variant} {rw}: {side} / (fast + slow)"] = round(ratio, 4)
    return [cell.text(), f"{100 * ratio:.1f} %"]


def _notes(report: Report, side: str, variant: str) -> str:
    notes = []
    for rw in ("write", "read"):
        cell = report.cells.get((side, f"{variant} {rw}"))
        if cell and cell.notes:
            notes.append(f"{rw}: {' | '.join(cell.notes)}")
    return "; ".join(notes)


def _check_throttles(report: Report, args) -> None:
    """States how well the throttles held: native direct streams against their limits."""
    for name, limit in (("fast", args.fast), ("slow", args.slow)):
        for rw, bps in (("write", limit.write_bps), ("read", limit.read_bps)):
            cell = report.cells.get((name, f"direct {rw}"))
            if cell and cell.median:
                off = 100 * (cell.median * MB / bps - 1)
                mark = "" if abs(off) <= 3 else " — more than 3 %: too little work, or a slow or busy machine"
                report.remarks.append(f"throttle {name} {rw}: set {number(bps / MB)}, measured "
                                      f"{number(cell.median)} MB/s ({off:+.1f} %){mark}")
