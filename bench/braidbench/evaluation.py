"""The frame of the evaluation's scenarios (`bandwidth` … `applications`): their options, tiers and
sides, and their common steps: try a side without losing the others, and set a rate beside the
tiers' combined bandwidth."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from braidbench import checks, devices, devicesets, sides
from braidbench.devices import GIB, MB, Device, Limit
from braidbench.fio import Fio
from braidbench.host import BenchError, Host, first_line, run
from braidbench.report import Cell, Report, number

KIB, MIB = 2**10, 2**20
# Of the devices' sizes.
GRAIN = 256 * MIB
BTRFS = ("btrfs-raid0", "btrfs-unequal")
TIER_NAMES = ("fast", "slow", "third")
POLICIES = ("home-first", "weighted", "static", "dynamic", "adaptive")
# The first mergerfs that lets the kernel do the I/O by itself.
MERGERFS_PASSTHROUGH = (2, 41)
# Its modes that suit programs best, as its documentation has it.
MERGERFS_MODES = {"passthrough": ("cache.files=auto-full", "passthrough.io=rw"),
                  "writeback": ("cache.files=full", "cache.writeback=true")}


def add_arguments(parser: argparse.ArgumentParser, limit: Callable, names: Callable) -> None:
    """Options of the evaluation's scenarios."""
    group = parser.add_argument_group("evaluation (bandwidth, shared, change, hot, capacity, native, monitor, metadata, "
                                      "applications)")
    group.add_argument("--policies", type=_policies, default=list(POLICIES), help="Braid's sides: policies as `braid "
                       f"mount --policy` takes them; separate those with settings by `;` (default {','.join(POLICIES)})")
    group.add_argument("--volume-key", action="append", default=[], metavar="YAML",
                       help="a further key of Braid's volumes, like 'movers: { promote: true }'; repeat for each")
    group.add_argument("--untold", action="store_true", help="Braid's volumes have no weights, and `bandwidth` makes a new "
                       "one for each cell and no timed runs")
    group.add_argument("--mergerfs", default="mergerfs", metavar="PATH", help="the mergerfs to measure")
    group.add_argument("--third", type=limit, default="25/50", help="third tier, MB/s written/read (default 25/50)")
    group.add_argument("--third-fs", default="ext4", choices=["ext4", "xfs", "btrfs"])
    _add_bandwidth_arguments(group, names)
    group.add_argument("--seconds", type=float, help="length of a phase, or of bandwidth's timed runs; 0: none")


def _add_bandwidth_arguments(group, names: Callable) -> None:
    group.add_argument("--devices", type=names, help=f"bandwidth: sets of devices (default {','.join(devicesets.DEFAULT)}). "
                       + devicesets.described())
    group.add_argument("--block-sizes", type=names, help="bandwidth: of 4K,64K,1M")
    group.add_argument("--threads", type=names, help="bandwidth: counts, and `stream` for one stream at depth 16")
    group.add_argument("--access", choices=["direct", "buffered", "both"], default="direct",
                       help="bandwidth: O_DIRECT, or through the page cache with each file synced once (default direct)")
    group.add_argument("--preallocate", nargs="?", const="yes", choices=["no", "yes", "both"], default="no",
                       help="bandwidth: reserve files before they are written, as fio does by default (default no)")
    group.add_argument("--mounts", type=names, help="bandwidth --untold: measure on the first mount of a volume (new), on its "
                       "second (known), or on both (default new)")
    group.add_argument("--estimate", action="store_true", help="bandwidth: say how long it would take, and end")


def _policies(text: str) -> list[str]:
    return [word.strip() for word in text.split(";" if ";" in text else ",") if word.strip()]


class Bench:
    """One run of a scenario: its machine, report and options, and fio."""

    def __init__(self, host: Host, report: Report, args, keep: Path, *, throttled: bool = True):
        if throttled and not host.throttled:
            raise BenchError(f"{report.scenario} needs throttled devices: {host.group.reason}")
        self.host, self.report, self.args, self.keep = host, report, args, keep
        self.fio, self.repetition = Fio(host, keep), 1
        if throttled:
            report.settings.update(fast=str(args.fast), slow=str(args.slow), third=str(args.third), policies=args.policies)
        report.settings.update(reps=args.reps, volume_keys=args.volume_key, untold=args.untold, work_dir=str(args.work_dir))
        report.machine["versions"].pop("mergerfs", None)
        if version := first_line(args.mergerfs, "--version"):
            report.machine["versions"]["mergerfs"] = version

    def limits(self, count: int) -> list[Limit]:
        """The tiers' limits, the fastest first."""
        return [self.args.fast, self.args.slow, self.args.third][:count]

    def tiers(self, count: int, sizes: list[int]) -> list[Device]:
        """Makes that many tiers."""
        return self.tiers_of(self.limits(count), sizes)

    def tiers_of(self, limits: Sequence[Limit], sizes: list[int]) -> list[Device]:
        """Makes a tier for each limit."""
        kinds = [self.args.fast_fs, self.args.slow_fs, self.args.third_fs]
        return [devices.make(self.host, name, kind, size, limit)
                for name, kind, size, limit in zip(TIER_NAMES, kinds, sizes, limits)]

    def wants(self, name: str) -> bool:
        """Whether a side was asked for."""
        return wants(self.args, name)

    def natives(self, tiers: list[Device], tag: str = "") -> list[sides.Side]:
        """Each tier's native file system alone."""
        return self.wanted([sides.Side(f"native-{tier.name}", self.host, [tier], tag) for tier in tiers])

    def braids(self, tiers: list[Device], tag: str = "") -> list[sides.Braid]:
        """Braid over the tiers, once with each policy."""
        return self.wanted([
            sides.Braid(f"braid-{policy.partition(':')[0]}", self.host, tiers, self.args.braid, policy,
                        keys=tuple(self.args.volume_key), tag=tag, weights=None if self.args.untold else True)
            for policy in self.args.policies])

    def mergerfs(self, tiers: list[Device], tag: str = "") -> list[sides.Side]:
        """mergerfs, which places each new file on a tier taken at random."""
        options: tuple[str, ...] = ()
        if mergerfs_version(self.args) >= MERGERFS_PASSTHROUGH:
            options = MERGERFS_MODES["passthrough"]
        return self.wanted([sides.Mergerfs("mergerfs", self.host, tiers, "rand", (*options, "moveonenospc=true"), self.args.mergerfs, tag)])

    def mergerfs_modes(self, tiers: list[Device], tag: str = "") -> list[sides.Side]:
        """mergerfs with the same policy, once in each of the modes that suit programs best."""
        return [sides.Mergerfs(f"mergerfs-{mode}", self.host, tiers, "rand", (*options, "moveonenospc=true"),
                               self.args.mergerfs, tag)
                for mode, options in mergerfs_modes(self.args).items() if self.wants(f"mergerfs-{mode}")]

    def btrfs(self, count: int, size: int, tag: str = "") -> list[sides.Side]:
        """btrfs over as many devices."""
        return self.btrfs_of(self.limits(count), size, tag)

    def btrfs_of(self, limits: Sequence[Limit], size: int, tag: str = "") -> list[sides.Side]:
        """btrfs striping over equal devices with the slowest tier's limits, as striping makes
        unequal ones, and btrfs's own default over the unequal ones."""
        found: list[sides.Side] = []
        # Stripes take the same on each device.
        striped = max(GIB, size * 3 // (2 * len(limits)) // GRAIN * GRAIN)
        for name, profile, room, each in ((BTRFS[0], "raid0", striped, [limits[-1]] * len(limits)),
                                          (BTRFS[1], "single", size, list(limits))):
            if self.wants(name):
                try:
                    pool = devices.pool(self.host, f"{name}{tag}", room, each, profile)
                    found.append(sides.Side(name, self.host, [pool], tag))
                except BenchError as error:
                    self.report.remarks.append(f"{name} is left out: {error}")
        return found

    def wanted(self, lineup: list) -> list:
        """The sides that were asked for."""
        return [side for side in lineup if self.wants(side.name)]

    def chosen(self, cells: list[str], quick: list[str] | None = None) -> list[str]:
        """The parts of a scenario that were asked for."""
        return chosen(self.args, cells, quick)

    def attempt(self, side: sides.Side, what: str, action: Callable[[], None], *, stop: bool = False) -> None:
        """Runs an action on a side; a failure is the side's, not the run's. `stop`: stops the side
        afterwards."""
        self.args.progress(f"repetition {self.repetition}/{self.args.reps}, {what}, {side.name}")
        try:
            side.start()
            action()
        except BenchError as error:
            self.report.cell(side.name, what).failures.append(str(error))
            side.stop()
        finally:
            if stop:
                side.stop()

    def each_cell(self, side: sides.Side, cells: list[str], action: Callable[[str], None]) -> None:
        """Runs an action on a side for each cell in each repetition; the side is stopped after
        each."""
        try:
            for repetition in range(self.args.reps):
                self.repetition = repetition + 1
                for cell in cells:
                    self.attempt(side, cell, lambda c=cell: action(c), stop=True)
        finally:
            stop_all([side])

    def row(self, side: sides.Side, cell: str, figures: Sequence[str]) -> list[str]:
        """A row of a table: the medians of a cell's figures, which are kept as `CELL: FIGURE`."""
        return [cell, *(median_text(self.report, side.name, f"{cell}: {figure}") for figure in figures)]

    def direct(self, side: sides.Side) -> int:
        """fio's `direct` for a side; says once if the side refuses that."""
        if side.takes_direct():
            return 1
        remark = f"{side.name} refuses O_DIRECT: measured with buffered I/O"
        if remark not in self.report.remarks:
            self.report.remarks.append(remark)
        return 0

    def clear(self, side: sides.Side, cell: Cell, used: int, size: int) -> None:
        """Empties a side, and waits until its space came back."""
        run("find", side.root, "-mindepth", "1", "-delete", timeout=300)
        checks.freed(cell, side, used, size)

    def record(self, side: sides.Side, what: str, rw: str, result, before, size: int | None = None,
               name: str | None = None) -> Cell:
        """Keeps the rate of a run, after the checks that its bytes met the devices; under another name than the side's, if
        one is given."""
        cell = self.report.cell(name or side.name, what, "MB/s")
        cell.samples.append(result.rate / MB)
        checks.examine(cell, side, rw, result.bytes if size is None else size, before, result.seconds)
        return cell

    def latencies(self, side: sides.Side, what: str, result, name: str | None = None) -> None:
        """Keeps the latencies of a run, in milliseconds; under another name than the side's, if one is given."""
        for figure in ("mean", "p50", "p99"):
            value = getattr(result, f"latency_ns_{figure}")
            if value is not None:
                self.report.cell(name or side.name, f"{what} {figure}", "ms").samples.append(value / 1e6)


def wants(args, name: str) -> bool:
    """Whether `--sides` asks for a side: by its name, or by the part before a `-` in it."""
    return not args.sides or any(f"{name}-".startswith(f"{asked}-") for asked in args.sides)


def chosen(args, cells: list[str], quick: list[str] | None = None) -> list[str]:
    """The parts of a scenario that `--cells` asks for; without it all, or `quick` with
    `--quick`."""
    if unknown := [name for name in args.cells or [] if name not in cells]:
        raise BenchError(f"--cells: {', '.join(unknown)}: not one of {', '.join(cells)}")
    wanted = args.cells or (quick if args.quick and quick else cells)
    return [name for name in cells if name in wanted]


def mergerfs_version(args) -> tuple[int, int]:
    """The first two numbers of its version; zeros if it prints none."""
    found = re.search(r"(\d+)\.(\d+)", first_line(args.mergerfs, "--version") or "")
    return (int(found[1]), int(found[2])) if found else (0, 0)


def mergerfs_modes(args) -> dict[str, tuple[str, ...]]:
    """The options of each mode that the mergerfs to measure has."""
    able = mergerfs_version(args) >= MERGERFS_PASSTHROUGH
    return {mode: options for mode, options in MERGERFS_MODES.items() if able or mode != "passthrough"}


def combined(tiers: Sequence[Limit], rw: str, operation: int | None = None) -> float:
    """The tiers' combined bandwidth, in MB/s: in operations of that many bytes, or as large as they
    take."""
    return sum(limit.rate(rw, operation) for limit in tiers) / MB


def processor_time() -> tuple[int, int]:
    """Ticks that the machine's processors were busy and idle since it started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, idle


def share_text(report: Report, side: str, what: str, whole: float) -> str:
    """A cell of a table: the median, and which share of the tiers' combined bandwidth that is."""
    cell = report.cells.get((side, what))
    if cell is None:
        return ""
    if cell.median is None:
        return cell.text()
    report.ratios[f"{what}: {side} / combined"] = round(cell.median / whole, 4)
    mark = "†" if any(note.startswith("SUSPECT") for note in cell.notes) else ""
    return f"{number(cell.median)} = {100 * cell.median / whole:.0f} %{mark}"


def median_text(report: Report, side: str, what: str) -> str:
    """A cell's median without its unit."""
    cell = report.cells.get((side, what))
    if cell is None:
        return ""
    return cell.text() if cell.median is None else number(cell.median)


def explain_suspects(report: Report) -> None:
    """Explains the marks of the tables below them."""
    found = [f"{cell.side}, {cell.what}: {note}" for cell in report.cells.values() for note in cell.notes
             if note.startswith("SUSPECT")]
    if found:
        report.remarks.append("† the devices' counters do not agree with the figure: " + "; ".join(found[:20])
                              + (f"; and {len(found) - 20} more" if len(found) > 20 else ""))


def stop_all(lineup: list[sides.Side]) -> None:
    """Ends every side."""
    for side in lineup:
        side.stop()


def device_size(written: int) -> int:
    """Room for that many bytes on any one tier, with space to spare."""
    room = written * 5 // 4 + GIB * 3 // 4
    return max(2 * GIB, -(-room // GIB) * GIB)
