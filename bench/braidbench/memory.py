"""Scenario `memory`: the daemon's memory, depending on the number of open and of existing files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from braidbench import devices, sides
from braidbench.devices import GIB
from braidbench.host import BenchError, Host, run
from braidbench.report import Report

SUMMARY = "memory of the daemon: idle, with a 1 TiB sparse spread file, with a million files known to the kernel"
HERE = Path(__file__).parent
TIB = 2**40
SPARSE_WRITES = 1000
SETTLE_S = 30
TREE_TIMEOUT_S = 1800


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    files = args.files or (20_000 if args.quick else 1_000_000)
    report.settings.update(files=files, sparse_size=TIB, sparse_writes=SPARSE_WRITES)
    wanted = args.sides or ["braid"]
    for name in wanted:
        # Each side has file systems of its own, so that nothing is warm from the one before.
        inodes = ("-N", str(files + files // 1000 + 50_000))
        tiers = [devices.make(host, f"{name}-fast", "ext4", 32 * GIB, None, mkfs_options=inodes),
                 devices.make(host, f"{name}-slow", "xfs", 32 * GIB, None)]
        if name == "braid":
            side = sides.Braid(name, host, tiers, args.braid, "weighted")
        elif name == "mergerfs":
            side = sides.Mergerfs(name, host, tiers, "ff")
        else:
            raise BenchError(f"{name!r}: memory knows the sides braid and mergerfs")
        rows: list[list[str]] = []
        try:
            _life(report, args, side, files, rows)
        except BenchError as error:
            report.cell(name, "run").failures.append(str(error))
        finally:
            side.stop()
            heads = ["after", "RSS", "anonymous", "file-backed", "highest RSS", "open files", "known inodes"]
            if rows:
                report.table(f"memory of {name}'s daemon (MiB)", heads, rows)


def _life(report: Report, args, side: sides.Mounted, files: int, rows: list[list[str]]) -> None:
    def step(text: str, action=None) -> None:
        args.progress(f"{side.name}: {text}")
        began = time.monotonic()
        if action:
            action()
        rows.append(_row(report, side, text, time.monotonic() - began))

    def sparse_open() -> None:
        nonlocal holder
        holder = side.host.spawn(
            [sys.executable, HERE / "sparse.py", side.root / "sparse", TIB, SPARSE_WRITES],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if holder.stdout.readline().strip() != "ready":
            raise BenchError((holder.stderr.read().strip().splitlines() or ["the sparse file could not be made"])[-1])
        layout = side.layout(side.root / "sparse")
        if layout:
            report.remarks.append(f"the sparse file is {layout}")

    def sparse_close() -> None:
        holder.communicate(timeout=60)

    holder: subprocess.Popen | None = None
    tree = side.root / "tree"
    step("mount, idle", side.start)
    try:
        step(f"1 TiB sparse file with {SPARSE_WRITES} scattered writes, open", sparse_open)
        step("the sparse file closed", sparse_close)
    finally:
        if holder and holder.poll() is None:
            holder.kill()
    step(f"tree of {files:,} files made", lambda: run(
        sys.executable, HERE / "tree.py", tree, max(1, files // 1000), min(files, 1000), timeout=TREE_TIMEOUT_S))
    step("find -ls of the tree", lambda: run(
        "find", tree, "-ls", timeout=TREE_TIMEOUT_S, discard_output=True))
    step("the kernel dropped its inodes", lambda: Path("/proc/sys/vm/drop_caches").write_text("2"))


def _row(report: Report, side: sides.Mounted, text: str, seconds: float) -> list[str]:
    usage = _settled(side)
    for key, mib in usage.items():
        report.cell(side.name, f"{text}: {key}", "MiB").samples.append(round(mib, 2))
    report.cell(side.name, f"{text}: time", "s").samples.append(round(seconds, 2))
    counts = _counts(side)
    for key, count in counts.items():
        report.cell(side.name, f"{text}: {key}").samples.append(count)
    figures = [f"{usage[key]:.1f}" for key in ("VmRSS", "RssAnon", "RssFile", "VmHWM")]
    return [text, *figures, *(f"{counts[k]:,}" if k in counts else "" for k in ("open_files", "known_inodes"))]


def _settled(side: sides.Mounted) -> dict[str, float]:
    """The daemon's memory in MiB, once it has stopped changing (forgotten inodes arrive over some time)."""
    deadline = time.monotonic() + SETTLE_S
    last = _usage(side)
    while time.monotonic() < deadline:
        time.sleep(1)
        now = _usage(side)
        if abs(now["VmRSS"] - last["VmRSS"]) < 0.1:
            return now
        last = now
    return last


def _usage(side: sides.Mounted) -> dict[str, float]:
    pids = side.pids()
    if not pids:
        raise BenchError(f"{side.name}: its daemon is not running")
    total = {"VmRSS": 0.0, "RssAnon": 0.0, "RssFile": 0.0, "VmHWM": 0.0}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition(":")
            # Mappings shared between processes are file-backed for this purpose: the kernel can have them back.
            key = "RssFile" if key == "RssShmem" else key
            if key in total:
                total[key] += int(value.split()[0]) / 1024
    return total


def _counts(side: sides.Mounted) -> dict[str, int]:
    """The daemon's own counts of open files and known inodes, where it has them."""
    if not isinstance(side, sides.Braid):
        return {}
    try:
        status = json.loads(side.ask("status", str(side.root)))
    except (BenchError, ValueError):
        return {}
    return {key: status[key] for key in ("open_files", "known_inodes") if isinstance(status.get(key), int)}
