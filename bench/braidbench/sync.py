"""Scenario `sync`: the cost of making 4 KiB durable.

Each write is followed by `fsync` or `fdatasync`. Random writes go over an existing file of 256 MiB; appends
make a file longer that is spread already. The sides take turns within every repetition.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from braidbench import devices, sides
from braidbench.devices import GIB
from braidbench.fio import Fio
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "4 KiB writes, each synced: random overwrites and appends, Braid against native on each of its tiers"
MIB = 2**20
BLOCK = 4096
AIM = 0.8
SYNCS = ("fsync", "fdatasync")
# Operations in a second that the devices of `iops` take, written or read.
FAST_IOPS, SLOW_IOPS = 2000, 200
COUNTED_SYNCS = 1000
BASELINE = "native-slow"


@dataclass(frozen=True)
class Variant:
    """How the devices are limited."""

    name: str
    text: str
    operations: bool


VARIANTS = [
    Variant("bytes", "limited in bytes per second only", False),
    Variant("iops", f"limited to {FAST_IOPS} and {SLOW_IOPS} operations per second too", True),
]


@dataclass(frozen=True)
class Work:
    """How much is done in each measurement."""

    size: int
    seconds: int

    @staticmethod
    def of(quick: bool) -> "Work":
        return Work(64 * MIB, 1) if quick else Work(256 * MIB, 3)


@dataclass(frozen=True)
class Row:
    """One kind of work: `overwrite` or `append`, and the call that follows each write."""

    pattern: str
    sync: str

    @property
    def text(self) -> str:
        return f"{self.pattern}, {self.sync}"


ROWS = [Row(pattern, sync) for pattern in ("overwrite", "append") for sync in SYNCS]


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    if not host.throttled:
        raise BenchError(f"sync needs throttled devices: {host.group.reason}")
    work, fio = Work.of(args.quick), Fio(host, keep)
    chosen = [variant for variant in VARIANTS if not args.variants or variant.name in args.variants]
    report.settings.update(fast=str(args.fast), slow=str(args.slow), fast_iops=FAST_IOPS, slow_iops=SLOW_IOPS,
                           reps=args.reps, work=vars(work), work_dir=str(args.work_dir))
    fast = devices.make(host, "fast", args.fast_fs, 3 * GIB, args.fast)
    slow = devices.make(host, "slow", args.slow_fs, 3 * GIB, args.slow)
    lineup = [side for side in _lineup(host, args, fast, slow) if not args.sides or side.name in args.sides]
    try:
        for side in lineup:
            args.progress(f"files of {side.name}")
            _attempt(report, side, "files", lambda s=side: _prepare(fio, report, s, work))
        for variant in chosen:
            _limit(host, report, variant, fast, slow)
            for repetition in range(args.reps):
                for row in ROWS:
                    args.progress(f"{variant.name}, repetition {repetition + 1}/{args.reps}, {row.text}")
                    for side in lineup:
                        _attempt(report, side, f"{variant.name}: {row.text}",
                                 lambda s=side, r=row, v=variant: _one(fio, report, s, v, r, work))
        _count_calls(fio, report, [side for side in lineup if isinstance(side, sides.Braid)], work, keep)
    finally:
        for side in lineup:
            side.stop()
        for variant in chosen:
            _tabulate(report, lineup, variant)


def _lineup(host: Host, args, fast, slow) -> list[sides.Side]:
    tiers = [fast, slow]
    return [
        sides.Side(BASELINE, host, [slow]),
        sides.Side("native-fast", host, [fast]),
        sides.Braid("braid-spread", host, tiers, args.braid, "weighted"),
        sides.Braid("braid-slow", host, tiers, args.braid, "size:small=64KiB,large=slow"),
    ]


def _attempt(report: Report, side: sides.Side, what: str, action) -> None:
    """Runs an action on a side; a failure is the side's, not the run's."""
    try:
        side.start()
        action()
    except BenchError as error:
        report.cell(side.name, what).failures.append(str(error))
        side.stop()


def _prepare(fio: Fio, report: Report, side: sides.Side, work: Work) -> None:
    """Makes the files of a side, and notes where Braid put them."""
    for name, size in (("overwrite", work.size), ("append", _base(work))):
        path = side.root / name
        fio.run(f"make-{name}-{side.name}", filename=path, rw="write", bs="4M", size=size, ioengine="psync",
                fallocate="none", end_fsync=1)
        if isinstance(side, sides.Braid):
            report.remarks.append(f"{side.name}, {name}: {_placement(side, path)}")


def _base(work: Work) -> int:
    """Bytes that the appended file has before each measurement: it is spread long since."""
    return work.size // 8


def _placement(side: sides.Braid, path: Path) -> str:
    told = json.loads(side.ask("explain", str(path)))
    if told.get("layout") != "spread":
        raise BenchError(f"{side.name}: {path.name} is {told.get('layout')}, not spread")
    counts: dict[str, int] = {}
    for part in told["runs"]:
        tier = part["tier"]["name"] if part.get("tier") else "none"
        counts[tier] = counts.get(tier, 0) + part["ranges"]
    return "ranges " + ", ".join(f"{tier} {count}" for tier, count in sorted(counts.items()))


def _limit(host: Host, report: Report, variant: Variant, fast, slow) -> None:
    """Sets the operations that a device takes: of the benchmark's processes, and as many of the kernel's own
    threads, which write the journals."""
    for device, count in ((fast, FAST_IOPS), (slow, SLOW_IOPS)):
        everybody = host.group.limit_operations(device.nodes[0], count if variant.operations else 0)
        if variant.operations and not everybody:
            report.remarks.append("the kernel's own threads, which write the journals, were not limited")


def _one(fio: Fio, report: Report, side: sides.Side, variant: Variant, row: Row, work: Work) -> None:
    """One measurement: synced writes for a fixed time."""
    before = side.transferred()
    result = _write(fio, f"{variant.name}-{row.pattern}-{row.sync}-{side.name}", side, row, work,
                    runtime=work.seconds, time_based=1)
    what = f"{variant.name}: {row.text}"
    cell = report.cell(side.name, what, "/s")
    cell.samples.append(result.iops)
    moved = [now[1] - then[1] for now, then in zip(side.transferred(), before)]
    for device, part in zip(side.devices, moved):
        report.cell(side.name, f"{what}: written on {device.name}", "KiB/write").samples.append(
            part / 1024 / result.operations)


def _write(fio: Fio, label: str, side: sides.Side, row: Row, work: Work, **options):
    path = side.root / row.pattern
    options |= {"filename": path, "bs": BLOCK, "ioengine": "psync", "fallocate": "none", row.sync: 1}
    if row.pattern == "overwrite":
        return fio.run(label, rw="randwrite", size=work.size, norandommap=1, randrepeat=0, **options)
    base = _base(work)
    run("truncate", "-s", base, path)
    run("sync", path)
    inode = path.stat().st_ino
    # More than can be appended in the time.
    result = fio.run(label, rw="write", file_append=1, size=GIB, **options)
    # Without `file_append`, fio would make the file anew.
    if path.stat().st_ino != inode or path.stat().st_size < base + result.bytes:
        raise BenchError(f"{side.name}: fio did not append to the file")
    return result


def _count_calls(fio: Fio, report: Report, lineup: list[sides.Braid], work: Work, keep: Path) -> None:
    """The system calls of Braid's daemons for each synced write. The tracer slows everything down:
    no times."""
    if shutil.which("strace") is None:
        report.remarks.append("system calls were not counted: no strace")
        return
    rows = []
    for side in lineup:
        for row in ROWS:
            def count(side=side, row=row) -> None:
                calls = _traced(fio, side, row, work, keep)
                rows.append([side.name, row.text, *_counts_text(report, side, row, calls)])
            _attempt(report, side, f"calls: {row.text}", count)
    report.table(f"system calls of the daemon for each synced write (of {COUNTED_SYNCS})",
                 ["side", "work", "fsync", "fdatasync", "all others"], rows)


def _traced(fio: Fio, side: sides.Braid, row: Row, work: Work, keep: Path) -> dict[str, int]:
    output = keep / f"calls-{row.pattern}-{row.sync}-{side.name}.txt"
    pids = side.pids()
    if not pids:
        raise BenchError(f"{side.name}: its daemon is not running")
    argv = ["strace", "-f", "-c", "-U", "calls,name", "-o", str(output)]
    tracer = subprocess.Popen(argv + [word for pid in pids for word in ("-p", str(pid))], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until_traced(pids[0])
        _write(fio, f"calls-{row.pattern}-{row.sync}-{side.name}", side, row, work,
               number_ios=COUNTED_SYNCS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(tracer.pid, signal.SIGINT)
        tracer.wait(30)
    calls = {}
    for line in output.read_text().splitlines():
        count, _, name = line.strip().partition(" ")
        if count.isdigit() and name.strip() != "total":
            calls[name.strip()] = int(count)
    return calls


def _until_traced(pid: int) -> None:
    """Waits until a tracer is attached to every thread."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
        if all("TracerPid:\t0\n" not in state for state in states):
            return
        time.sleep(0.05)
    raise BenchError("strace did not attach")


def _counts_text(report: Report, side: sides.Braid, row: Row, calls: dict[str, int]) -> list[str]:
    each = {name: count / COUNTED_SYNCS for name, count in calls.items()}
    for name, count in sorted(each.items()):
        report.cell(side.name, f"calls: {row.text}: {name}", "/write").samples.append(round(count, 3))
    others = sorted(((n, c) for n, c in each.items() if n not in SYNCS and c >= 0.02), key=lambda pair: -pair[1])
    return [*(f"{each.get(name, 0):.2f}" for name in SYNCS),
            ", ".join(f"{name} {count:.2f}" for name, count in others)]


def _tabulate(report: Report, lineup: list[sides.Side], variant: Variant) -> None:
    rows = []
    for row in ROWS:
        what = f"{variant.name}: {row.text}"
        base = report.cells.get((BASELINE, what))
        line = [row.text]
        for side in lineup:
            cell = report.cells.get((side.name, what))
            line.append(cell.text() if cell else "")
            if not isinstance(side, sides.Braid):
                continue
            if cell and base and cell.median and base.median:
                ratio = cell.median / base.median
                report.ratios[f"{what}: {side.name} / {BASELINE}"] = round(ratio, 4)
                line.append(number(ratio))
            else:
                line.append("")
        rows.append([*line, f"≥ {AIM}"])
    heads = ["work"]
    for side in lineup:
        heads += [side.name, "ratio"] if isinstance(side, sides.Braid) else [side.name]
    report.table(f"4 KiB writes, each synced, in a second; devices {variant.text}", [*heads, "aim"], rows)
