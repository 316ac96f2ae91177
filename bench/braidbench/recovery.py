"""Scenario `recovery`: how long a mount takes, after a clean unmount and after a crash, in volumes of different size.

Only files in use may matter, not all that exist: the same number of files is open for writing at
each crash. """

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from braidbench import devices, sides
from braidbench.devices import GIB
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "time to mount after a clean unmount, kill -9 and power loss, in volumes of up to a million files"
HERE = Path(__file__).parent
KIB = 2**10
VOLUMES = [1000, 100_000, 1_000_000]
# One file in so many is spread.
SPREAD_EVERY = 100
RANGE = "64KiB"
SPREAD_SIZE = 128 * KIB
PLAIN_SIZE = 100
OPEN_FILES = 50
APPENDED = 64 * KIB
MAKE_TIMEOUT_S = 1800
MAKERS = 4
COUNTED_WITHIN_S = 120


@dataclass(frozen=True)
class Ending:
    """How the volume goes down before the mount that is timed."""

    name: str
    text: str
    crash: bool
    remount: bool


ENDINGS = [
    Ending("clean", "clean unmount", False, False),
    Ending("killed", "kill -9", True, False),
    Ending("clean-cold", "clean unmount, tiers unmounted", False, True),
    Ending("power", "kill -9, tiers unmounted", True, True),
]


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    volumes = args.volumes or ([200, 2000] if args.quick else VOLUMES)
    report.settings.update(volumes=volumes, spread_every=SPREAD_EVERY, range=RANGE, spread_size=SPREAD_SIZE,
                           plain_size=PLAIN_SIZE, open_files=OPEN_FILES, reps=args.reps, fast_fs=args.fast_fs,
                           slow_fs=args.slow_fs, work_dir=str(args.work_dir))
    rows: list[list[str]] = []
    try:
        for files in volumes:
            name = f"{files:,} files"
            volume = _Volume(host, args, files)
            try:
                volume.make()
                for repetition in range(args.reps):
                    for ending in ENDINGS:
                        args.progress(f"{name}, repetition {repetition + 1}/{args.reps}, {ending.text}")
                        volume.one(report, name, ending)
            except BenchError as error:
                report.cell(name, "run").failures.append(str(error))
            finally:
                volume.stop()
                rows += [_row(report, name, volume.spread, ending) for ending in ENDINGS]
    finally:
        heads = ["volume", "spread", "ended by", "mount", "against 1st volume", "ranges shown at once",
                 "of", "counted after"]
        _compare(report, rows)
        report.table(f"time of `braid mount`, {OPEN_FILES} spread files in use before", heads, rows)


class _Volume:
    """A volume with its files, on devices of its own."""

    def __init__(self, host: Host, args, files: int):
        self.host, self.args, self.files = host, args, files
        self.spread = max(OPEN_FILES, files // SPREAD_EVERY)
        inodes = ("-N", str(files + 2 * self.spread + 50_000)) if args.fast_fs == "ext4" else ()
        self.tiers = [
            devices.make(host, f"home-{files}", args.fast_fs, 32 * GIB, None, mkfs_options=inodes),
            devices.make(host, f"other-{files}", args.slow_fs, 32 * GIB, None),
        ]
        self.side = sides.Braid(f"volume-{files}", host, self.tiers, args.braid,
                                f"size:small={RANGE},large={self.tiers[1].name}", ("--range", RANGE))
        self.ranges = 0

    def make(self) -> None:
        """Makes the files: plain ones in the home directory while nothing is mounted, spread ones through it."""
        self.side.start()
        self.side.stop()
        self.args.progress(f"{self.files:,} files: plain ones")
        plain = self.files - self.spread
        run(sys.executable, HERE / "tree.py", self.side.stores[0] / "plain", -(-plain // 1000), min(plain, 1000),
            PLAIN_SIZE, timeout=MAKE_TIMEOUT_S)
        self.args.progress(f"{self.files:,} files: {self.spread:,} spread ones")
        self.side.start()
        self._make_spread()
        layout = self.side.layout(self.side.root / "spread/0/s.0")
        if layout != "spread":
            raise BenchError(f"a file that should be spread is {layout}")
        self.side.stop()

    def _make_spread(self) -> None:
        each = -(-self.spread // MAKERS)
        makers = [subprocess.Popen([sys.executable, HERE / "inuse.py", "make", self.side.root / "spread", str(first),
                                    str(min(each, self.spread - first)), str(SPREAD_SIZE)])
                  for first in range(0, self.spread, each)]
        try:
            for maker in makers:
                if maker.wait(MAKE_TIMEOUT_S) != 0:
                    raise BenchError("the spread files could not be made")
        finally:
            for maker in makers:
                maker.kill()

    def one(self, report: Report, name: str, ending: Ending) -> None:
        """Uses files, goes down in the given way, and times the mount after it."""
        self.side.start()
        self._counted()
        holder = self._hold()
        try:
            if ending.crash:
                self._kill(holder)
            else:
                holder.communicate(timeout=60)
                self.side.stop()
        finally:
            holder.kill()
            holder.wait()
        if ending.remount:
            self._remount_tiers()
        seconds = self._mount()
        began = time.monotonic()
        shown = self._ranges()
        total = self._counted()
        report.cell(name, f"{ending.name}: mount", "ms").samples.append(round(1000 * seconds, 2))
        report.cell(name, f"{ending.name}: ranges shown at once").samples.append(shown)
        report.cell(name, f"{ending.name}: ranges").samples.append(total)
        report.cell(name, f"{ending.name}: counted after", "ms").samples.append(
            round(1000 * (time.monotonic() - began), 1))

    def _hold(self) -> subprocess.Popen:
        holder = subprocess.Popen(
            [sys.executable, HERE / "inuse.py", "hold", self.side.root / "spread", str(OPEN_FILES), str(APPENDED)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if holder.stdout.readline().strip() != "ready":
                raise BenchError((holder.stderr.read().strip().splitlines() or ["the files could not be opened"])[-1])
        except BaseException:
            holder.kill()
            holder.wait()
            raise
        return holder

    def _kill(self, holder: subprocess.Popen) -> None:
        """Kills the daemon while the files are open, then the program that used them; the marks of
        the files must be there."""
        for pid in self.side.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self.side.pids() and time.monotonic() < deadline:
            time.sleep(0.01)
        holder.kill()
        holder.wait()
        run("umount", self.side.root)
        self.side.running = False
        marks = len(list((self.side.stores[0] / ".braid/open").iterdir()))
        if marks != OPEN_FILES:
            raise BenchError(f"{marks} files are marked as in use, not {OPEN_FILES}")

    def _remount_tiers(self) -> None:
        for tier in self.tiers:
            run("umount", tier.mount, timeout=300)
            run("mount", "-t", tier.kind, tier.nodes[0], tier.mount)

    def _mount(self) -> float:
        """Seconds from the start of `braid mount` until it has returned."""
        log = self.host.work / f"{self.side.name}.log"
        with open(log, "ab") as out:
            began = time.monotonic()
            done = self.host.spawn(self.side.command(), stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            status = done.wait(300)
            seconds = time.monotonic() - began
        if status != 0:
            raise BenchError(f"braid mount: exit status {status}: {log.read_text(errors='replace')[-300:]}")
        self.side.running = True
        return seconds

    def _ranges(self) -> int:
        status = json.loads(self.side.ask("status", str(self.side.root)))
        return sum(tier["ranges"] for tier in status["tiers"])

    def _counted(self) -> int:
        """Waits until the daemon knows how many ranges there are: at least two for each spread file."""
        deadline = time.monotonic() + COUNTED_WITHIN_S
        while (ranges := self._ranges()) < 2 * self.spread:
            if time.monotonic() > deadline:
                raise BenchError(f"after {COUNTED_WITHIN_S} s, {ranges} ranges of {2 * self.spread} were counted")
            time.sleep(0.01)
        return ranges

    def stop(self) -> None:
        self.side.stop()


def _row(report: Report, name: str, spread: int, ending: Ending) -> list[str]:
    def text(what: str) -> str:
        cell = report.cells.get((name, f"{ending.name}: {what}"))
        return cell.text().strip() if cell else ""

    def count(what: str) -> str:
        cell = report.cells.get((name, f"{ending.name}: {what}"))
        return f"{cell.median:,.0f}" if cell and cell.median is not None else ""

    return [name, f"{spread:,}", ending.text, text("mount"), "", count("ranges shown at once"), count("ranges"),
            text("counted after")]


def _compare(report: Report, rows: list[list[str]]) -> None:
    """Each volume's time against that of the smallest."""
    texts = {ending.text: ending for ending in ENDINGS}
    for row in rows:
        what = f"{texts[row[2]].name}: mount"
        first, this = report.cells.get((rows[0][0], what)), report.cells.get((row[0], what))
        if first and this and first.median and this.median:
            ratio = this.median / first.median
            report.ratios[f"{what}: {row[0]} / {rows[0][0]}"] = round(ratio, 4)
            row[4] = number(ratio)
