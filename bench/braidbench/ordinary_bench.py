"""The frame of the loads of `ordinary`: how much they do, the sources that they share, and how a load is timed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from braidbench import evaluation, sides
from braidbench.devices import GIB
from braidbench.evaluation import MIB
from braidbench.host import BenchError, Host, run
from braidbench.report import Report

TIMEOUT_S = 1800
# The source of the trees of `tar` and `git`.
SOURCE = Path("/usr/share")
SOURCE_FILE_BYTES_MAX = MIB
# On ext4, a small file takes a block and an inode, and a share of its directory.
SMALL_FILE_BYTES = 4700
# A fuller home would give data away.
FULL = 0.76
STEP = 256 * MIB


@dataclass(frozen=True)
class Work:
    """How much the loads do."""

    write: int
    appends: int
    keys: int
    synced_keys: int
    redis_keys: int
    source_files: int
    source_bytes: int
    pgbench_scale: int
    pgbench_seconds: int
    mail_files: int
    mail_loops: int
    modules: int
    flat: int
    tree: int

    @staticmethod
    def of(args) -> "Work":
        if args.quick:
            work = Work(64 * MIB, 50_000, 20_000, 200, 10_000, 1000, 16 * MIB, 1, 2, 160, 5, 4, 5_000, 10_000)
        else:
            work = Work(GIB, 1_000_000, 1_000_000, 2_000, 200_000, 20_000, 320 * MIB, 10, 10, 2000, 200, 40, 200_000,
                        1_000_000)
        asked = {"write": args.size, "flat": args.flat, "tree": args.files}
        return Work(**{**vars(work), **{name: value for name, value in asked.items() if value}})

    @property
    def tree_directories(self) -> int:
        return max(1, self.tree // 100)

    def rooms(self, loads: list[str]) -> tuple[int, int]:
        """The sizes of the two devices, with space to spare for these loads."""
        files = max([self.flat] * ("directory" in loads) + [self.tree] * ("tree" in loads), default=0)
        least = max(GIB + 2 * self.write, int(files * SMALL_FILE_BYTES / FULL))
        return -(-least // STEP) * STEP, max(GIB, least // 3 // STEP * STEP)


@dataclass(frozen=True)
class Row:
    """One line of the table: a rate, or a time."""

    text: str
    unit: str

    @property
    def lower_is_better(self) -> bool:
        return self.unit == "s"


@dataclass(frozen=True)
class Load:
    """One part of the scenario."""

    name: str
    rows: tuple[Row, ...]
    action: Callable[["Bench", sides.Side], None]
    # The programs that it runs, and Debian's packages that have them.
    programs: tuple[str, ...] = ()
    packages: str = ""


class Bench(evaluation.Bench):
    """One run: the machine and the report, the amounts of work, and the sources that several loads
    start from."""

    def __init__(self, host: Host, report: Report, args, keep: Path):
        super().__init__(host, report, args, keep, throttled=False)
        self.work = Work.of(args)
        report.settings.update(work=vars(self.work))

    def put(self, side: sides.Side, row: Row, value: float) -> None:
        """Keeps a figure."""
        self.report.cell(side.name, row.text, row.unit).samples.append(value)

    @contextlib.contextmanager
    def counted(self, side: sides.Side, row: Row):
        """Keeps, beside a row's figure, the processor time that the side's server takes meanwhile."""
        before = side.processor_seconds()
        yield
        if (after := side.processor_seconds()) is not None:
            self.report.cell(side.name, f"{row.text}: server", "CPU s").samples.append(after - before)

    def seconds(self, side: sides.Side, row: Row, *argv: str | Path) -> float:
        """Seconds that a program takes from its start to its end, so with the closing of its files."""
        with self.counted(side, row):
            began = time.perf_counter()
            run(*argv, timeout=TIMEOUT_S, discard_output=True)
            return time.perf_counter() - began

    def settle(self, side: sides.Side) -> None:
        """Writes back dirty pages, so that the next load does not."""
        for device in side.devices:
            run("sync", "-f", device.mount, timeout=TIMEOUT_S)

    def forget(self, side: sides.Side) -> None:
        """Makes the kernel forget names, attributes and data; a server's own memory stays."""
        self.settle(side)
        Path("/proc/sys/vm/drop_caches").write_text("3")

    def archive(self) -> Path:
        """A tar archive of a part of this machine's files, made once, in memory."""
        path = self.host.work / "source.tar"
        if not path.exists():
            names, size = _sources(self.work)
            self.report.settings.update(source_files=len(names), source_bytes=size)
            listed = self.host.work / "source.list"
            listed.write_bytes(b"\0".join(map(os.fsencode, names)))
            run("tar", "-cf", path, "--hard-dereference", "-C", SOURCE, "--null", "--no-recursion", "-T", listed,
                timeout=TIMEOUT_S)
        return path

    def repository(self) -> Path:
        """A git repository with one commit of the same files, packed, made once, in memory."""
        path = self.host.work / "source.git"
        if not path.exists():
            archive, tree = self.archive(), self.host.directory("source")
            git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", f"--git-dir={path}",
                   f"--work-tree={tree}"]
            run("tar", "-xf", archive, "-C", tree, timeout=TIMEOUT_S)
            run("git", "init", "--quiet", "--bare", path)
            run(*git, "add", "--all", "--force", ".", timeout=TIMEOUT_S)
            run(*git, "commit", "--quiet", "-m", "files", timeout=TIMEOUT_S)
            run(*git, "repack", "-a", "-d", "--quiet", "--window=0", timeout=TIMEOUT_S)
            run("rm", "-rf", tree, timeout=TIMEOUT_S)
        return path


def _sources(work: Work) -> tuple[list[str], int]:
    """Files and symbolic links below `SOURCE`, in the order of their names, up to a number and a size."""
    names, size = [], 0
    for folder, directories, files in os.walk(SOURCE):
        directories[:] = sorted(name for name in directories if name != ".git")
        for name in sorted(files):
            path = os.path.join(folder, name)
            length = os.lstat(path).st_size
            if len(names) == work.source_files:
                return names, size
            if length <= min(SOURCE_FILE_BYTES_MAX, work.source_bytes - size):
                names.append(os.path.relpath(path, SOURCE))
                size += length
    if not names:
        raise BenchError(f"no files below {SOURCE}")
    return names, size
