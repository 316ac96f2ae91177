"""The measurements of a run of `bandwidth`, cell by cell, and their time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from braidbench import devicesets, sides
from braidbench.devices import MB, Limit
from braidbench.evaluation import BTRFS, KIB, MIB, TIER_NAMES, combined, mergerfs_modes, wants
from braidbench.host import BenchError

PATTERNS = ["write", "read", "randread", "randwrite"]
SIZES = {"4K": 4 * KIB, "64K": 64 * KIB, "1M": MIB}
STREAM = "stream"
STREAM_DEPTH = 16
THREADS = ["1", "2", "4", "8", "16", "32", STREAM]
# With three tiers, unless others are asked for.
THREADS_OF_THREE = ["1", "4", "16", "32", STREAM]
MOUNTS = ["new", "known"]
# For the estimate: the time for fio and the caches' eviction in each run, to empty a side, to make
# and mount a volume, and to make a set of devices.
RUN_S, CLEAR_S, MOUNT_S, DEVICES_S = 0.5, 0.6, 1.5, 15
# MB/s of 4 KiB blocks that the processors make possible, of one thread.
SMALL_RATE = 80


def direction(pattern: str) -> str:
    """Whether a pattern writes or reads."""
    return "write" if pattern.endswith("write") else "read"


@dataclass(frozen=True)
class Load:
    """One column of a table: a block size, and threads or one deep stream."""

    size: str
    threads: str
    # Bytes of all files.
    total: int
    # Of a timed run; 0: none.
    seconds: float

    @property
    def count(self) -> int:
        return 1 if self.threads == STREAM else int(self.threads)

    @property
    def each(self) -> int:
        """Bytes of one file."""
        share = self.total // self.count
        unit = MIB if share >= MIB else SIZES["64K"]
        return max(SIZES[self.size], share // unit * unit)

    @property
    def text(self) -> str:
        return f"{self.size} x {self.threads}" if self.threads != STREAM else f"{self.size}, one stream, depth {STREAM_DEPTH}"


@dataclass(frozen=True)
class Group:
    """The common part of the cells of one table: the devices, and how programs use files."""

    devices: str
    limits: tuple[Limit, ...]
    buffered: bool
    # Files get their space before they are written, as by fio's default.
    preallocated: bool

    @property
    def access(self) -> str:
        return "buffered" if self.buffered else "direct"

    @property
    def files(self) -> str:
        return "preallocated" if self.preallocated else "growing"

    @property
    def title(self) -> str:
        return f"{self.devices}, {self.access}, {self.files}"

    def rate(self, limit: Limit, pattern: str, size: str) -> float:
        """MB/s that one device gives to a pattern."""
        return self.whole(pattern, size, (limit,))

    def whole(self, pattern: str, size: str, limits: tuple[Limit, ...] | None = None) -> float:
        """MB/s that the devices give together, which is 100 %."""
        # The page cache gathers small blocks, but for reads at random.
        gathered = self.buffered and pattern != "randread"
        return combined(limits or self.limits, direction(pattern), None if gathered else SIZES[size])

    def load_of(self, side: str, load: Load) -> Load:
        """A side's part of a load. A native file system has a device with one rate: as much time as
        the others take is enough."""
        if not side.startswith("native-"):
            return load
        limit = self.limits[TIER_NAMES.index(side.removeprefix("native-"))]
        share = self.rate(limit, "write", load.size) / self.whole("write", load.size)
        return replace(load, total=max(16 * MIB, int(load.total * share)))

    def options(self, side: sides.Side, load: Load, pattern: str, folder: str, direct: int) -> dict:
        """fio's options for fixed work."""
        deep = load.threads == STREAM
        return {"directory": side.root / folder, "rw": pattern, "bs": SIZES[load.size], "size": load.each,
                "numjobs": load.count, "thread": 1, "direct": direct, "end_fsync": 1,
                "ioengine": "libaio" if deep else "psync", "iodepth": STREAM_DEPTH if deep else 1,
                # The kernel's FUSE client sends writes that make a file longer one at a time.
                "fallocate": "native" if deep or self.preallocated else "none"}

    def timed(self, side: sides.Side, load: Load, pattern: str, folder: str, direct: int) -> dict:
        """fio's options for a fixed time: new files that no thread can fill, or the existing ones again and again."""
        options = self.options(side, load, pattern, folder, direct) | {"runtime": f"{round(load.seconds * 1000)}ms"}
        if pattern == "write":
            # There would be no room for all that a thread might write.
            room = int(load.seconds * combined(self.limits, "write") * 1.3e6)
            return options | {"fallocate": "none", "size": room // MIB * MIB + 32 * MIB}
        return options | {"time_based": 1} | ({"norandommap": 1} if pattern.startswith("rand") else {})


class Plan:
    """The groups and loads that the options ask for."""

    def __init__(self, args, patterns: list[str]):
        self.args, self.patterns = args, patterns
        self.sets, self.loads, self.mounts = devicesets.chosen(args), _loads(args), _mounts(args)
        self.groups = [Group(name, limits, buffered, preallocated) for name, limits in self.sets.items()
                       for buffered in {"direct": [False], "buffered": [True], "both": [False, True]}[args.access]
                       for preallocated in {"no": [False], "yes": [True], "both": [False, True]}[args.preallocate]]
        # The names under which sides have figures, for each set of devices.
        self.names = {name: self._names(len(limits)) for name, limits in self.sets.items()}

    def cells(self, devices: str) -> list[tuple[Group, Load]]:
        """The measurements over a set of devices, in order."""
        return [(group, load) for group in self.groups if group.devices == devices for load in self.loads_of(group)]

    def loads_of(self, group: Group) -> list[Load]:
        """The loads of a group: fewer with three tiers, unless they were asked for."""
        fewer = len(group.limits) > 2 and not self.args.threads and not self.args.untold
        return [load for load in self.loads
                if not fewer or load.threads in THREADS_OF_THREE and not (self.args.quick and load.size != "1M")]

    def _names(self, tiers: int) -> list[str]:
        others = [*(f"native-{tier}" for tier in TIER_NAMES[:tiers]),
                  *(f"mergerfs-{mode}" for mode in mergerfs_modes(self.args)), *BTRFS]
        braids = [f"braid-{policy.partition(':')[0]}" for policy in self.args.policies]
        suffixes = [f"-{mount}" for mount in self.mounts] or [""]
        return [name for name in others if wants(self.args, name)] + [
            f"{name}{suffix}" for name in braids if wants(self.args, name) for suffix in suffixes]

    def seconds(self) -> float:
        """About how long all repetitions take."""
        once = sum(self._seconds(group, load, name) for devices in self.sets
                   for group, load in self.cells(devices) for name in self.names[devices])
        return self.args.reps * once + DEVICES_S * len(self.sets)

    def count(self) -> int:
        """How many times one load is done on one side in each repetition."""
        return sum(len(self.cells(devices)) * len(self.names[devices]) for devices in self.sets)

    def _seconds(self, group: Group, load: Load, name: str) -> float:
        done = group.load_of(name, load)
        # The files are always written first.
        patterns = self.patterns if "write" in self.patterns else ["write", *self.patterns]
        timed = 0 if group.buffered else done.seconds
        work = sum(done.total / MB / _rate(group, done, name, pattern) + RUN_S + timed for pattern in patterns)
        if not (self.mounts and name.startswith("braid-")):
            return work + CLEAR_S
        # The work is done on the first mount even if that is not measured.
        return (work + CLEAR_S + MOUNT_S) * (2 if self.mounts == ["known"] else 1)


def _rate(group: Group, load: Load, name: str, pattern: str) -> float:
    """MB/s that a side may have: the possible rate, or the rate that a peer's placement allows."""
    rates = [group.rate(limit, pattern, load.size) for limit in group.limits]
    mean_of_one = len(rates) / sum(1 / rate for rate in rates)
    if name.startswith("native-"):
        rate = rates[TIER_NAMES.index(name.removeprefix("native-"))]
    elif name.startswith("mergerfs-"):
        # Files lie on a tier each, the same number on all of them; one lies on any.
        rate = mean_of_one if load.count == 1 else len(rates) * rates[-1]
    elif name in BTRFS:
        rate = len(rates) * rates[-1] if name == "btrfs-raid0" else mean_of_one
    else:
        rate = sum(rates)
    return rate if load.size != "4K" else min(rate, SMALL_RATE * min(load.count, 2))


def _mounts(args) -> list[str]:
    """Which mounts of Braid's volumes are measured; none where a volume is used throughout."""
    if args.mounts and not args.untold:
        raise BenchError("--mounts needs --untold: without, a volume is used for all cells")
    if unknown := [mount for mount in args.mounts or [] if mount not in MOUNTS]:
        raise BenchError(f"--mounts: {', '.join(unknown)}: not one of {', '.join(MOUNTS)}")
    return [mount for mount in MOUNTS if mount in (args.mounts or MOUNTS[:1])] if args.untold else []


def _loads(args) -> list[Load]:
    sizes = args.block_sizes or list(SIZES)
    threads = args.threads or _usual_threads(args)
    if unknown := [size for size in sizes if size not in SIZES] + [t for t in threads if t != STREAM and not t.isdigit()]:
        raise BenchError(f"--block-sizes, --threads: {', '.join(unknown)}: not understood")
    # Less than 1 GiB, and the burst that a throttle lets through shows as several per cent.
    total = args.size or (128 * MIB if args.quick else 1024 * MIB)
    seconds = (0 if args.untold else 0.5 if args.quick else 2) if args.seconds is None else args.seconds
    # 4 KiB are bounded by the processors, not by the devices: less work shows as much.
    return [Load(size, count, total // 4 if size == "4K" else total, seconds)
            for size in sizes for count in threads if count != STREAM or size == "1M"]


def _usual_threads(args) -> list[str]:
    if args.quick:
        return ["16"]
    # The stream's file is always preallocated.
    return [count for count in THREADS if count != STREAM or not args.untold]
