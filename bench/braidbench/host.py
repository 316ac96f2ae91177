"""The machine that the benchmarks run on: commands, the description kept with every result, and `Host`,
which owns everything that must be gone when a run ends (mounts, loop devices, control group, files)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PREFIX = "braid-bench-"
COMMAND_TIMEOUT_S = 60
# Bytes of a loop device in memory that are touched at once, and the share of the machine's memory that may be.
FILL_BLOCK = 8 * 2**20
FILL_SHARE_MAX = 0.7


class BenchError(Exception):
    """A step that failed for a reason worth printing. Ends a cell or a side, never the whole run."""


def run(*argv: str | Path, timeout: float = COMMAND_TIMEOUT_S, discard_output: bool = False) -> str:
    """Runs a command to its end and returns its standard output; BenchError with its last words otherwise."""
    words = [str(word) for word in argv]
    out = subprocess.DEVNULL if discard_output else subprocess.PIPE
    try:
        done = subprocess.run(
            words, stdout=out, stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout, check=False
        )
    except FileNotFoundError:
        raise BenchError(f"{words[0]}: not found") from None
    except subprocess.TimeoutExpired:
        raise BenchError(f"{words[0]}: no end after {timeout:.0f} s") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or (done.stdout or "").strip() or "no message").splitlines()
        raise BenchError(f"{words[0]}: exit status {done.returncode}: {' / '.join(lines[-3:])}")
    return done.stdout or ""


def first_line(*argv: str) -> str | None:
    """First line that a command prints, or None where it cannot be run. For versions."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[0].strip() if lines else None


def describe(braid: Path | None) -> dict:
    """The facts about the machine that a reader needs to judge the figures."""
    cpu = next((line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    system = dict(line.split("=", 1) for line in _lines("/etc/os-release") if "=" in line)
    versions = {
        "fio": first_line("fio", "--version"),
        "mergerfs": first_line("mergerfs", "--version"),
        "mkfs.ext4": first_line("mkfs.ext4", "-V"),
        "mkfs.xfs": first_line("mkfs.xfs", "-V"),
        "btrfs": first_line("btrfs", "--version"),
        "braid": first_line(str(braid), "--version") if braid else None,
    }
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "memory_gib": round(memory_bytes("MemTotal") / 2**30, 1),
        "hypervisor": "hypervisor" in next((l for l in _lines("/proc/cpuinfo") if l.startswith("flags")), ""),
        "kernel": platform.release(),
        "system": system.get("PRETTY_NAME", "?").strip('"'),
        "python": platform.python_version(),
        "source": source_version(),
        "versions": {name: version for name, version in versions.items() if version},
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def source_version() -> str | None:
    """The commit of the tree that the runner belongs to, marked when files differ from it."""
    root = Path(__file__).resolve().parents[2]
    commit = first_line("git", "-C", str(root), "rev-parse", "--short=12", "HEAD")
    if commit is None or " " in commit:
        return None
    changed = first_line("git", "-C", str(root), "--no-optional-locks", "status", "--porcelain")
    return commit + ("+changes" if changed else "")


def memory_bytes(name: str) -> int:
    """Bytes, by a field of /proc/meminfo; 0 where there is none."""
    fields = (line.split() for line in _lines("/proc/meminfo"))
    return next((int(field[1]) * 1024 for field in fields if field[0] == f"{name}:"), 0)


def written_back_from() -> int:
    """Bytes of changed pages from which on the kernel writes back in the background."""
    fields = dict(line.split() for line in _lines("/proc/vmstat"))
    return int(fields["nr_dirty_background_threshold"]) * os.sysconf("SC_PAGE_SIZE")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


class Host:
    """A work directory, a control group with throttles, and the loop devices and mounts made for a run.

    Everything made is found again by its place (mounts and backing files below the work directory, processes
    in the control group), not from a list in memory, so that leaving also works after a failure half-way and
    `sweep_stale` can do it for a run that was killed.
    """

    def __init__(self, parent: Path):
        self.work = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Held until the process ends: tells a later run that this directory is in use.
        self._lock = open(self.work / "lock", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.group = ControlGroup(self.work.name)
        self.throttled = self.group.path is not None
        self.warnings: list[str] = []
        # Bytes in memory that were touched, of each device.
        self._filled: dict[str, int] = {}
        self._in_memory = run("stat", "--file-system", "--format=%T", self.work).strip() == "tmpfs"

    def __enter__(self) -> "Host":
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupted)
        return self

    def __exit__(self, *_) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        sweep(self.work)

    def warn(self, text: str) -> None:
        """Notes a problem beside the measurements; shown with the results."""
        print(text, file=sys.stderr)
        if text not in self.warnings:
            self.warnings.append(text)

    def loop_device(self, name: str, size: int) -> str:
        """A loop device with direct I/O over a new file: a sparse one, or one in memory that was
        touched before."""
        backing = self.work / f"{name}.img"
        with open(backing, "wb") as file:
            file.truncate(size)
            if self._in_memory:
                self._fill(file, size)
        return run("losetup", "--direct-io=on", "--show", "-f", backing).strip()

    def _fill(self, file, size: int) -> None:
        """A virtual machine may have to ask its host for each page that it touches first, which takes longer than to
        write it, and hits some operations and not others."""
        memory = min(memory_bytes("MemTotal"), shutil.disk_usage(self.work).total)
        if sum(self._filled.values()) + size > FILL_SHARE_MAX * memory:
            self.warn("too little memory to touch all of the devices' before the measurements: "
                      "first writes to some are slower than others")
            return
        block = bytes(FILL_BLOCK)
        for _ in range(size // FILL_BLOCK):
            file.write(block)
        self._filled[str(file.name)] = size

    def remove_loop_device(self, node: str) -> None:
        """Undoes `loop_device`, and lifts the limits, which the next user of the device's number
        would meet."""
        backing = dict(loop_devices())[node]
        self.group.limit_operations(node, 0)
        run("losetup", "-d", node)
        os.unlink(backing)
        self._filled.pop(backing, None)

    def directory(self, name: str) -> Path:
        """A new directory below the work directory."""
        path = self.work / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def spawn(self, argv: list[str], **options) -> subprocess.Popen:
        """Starts a command inside the control group, so that its I/O is throttled."""
        try:
            return subprocess.Popen([str(word) for word in argv], preexec_fn=self.group.enter, **options)
        except FileNotFoundError:
            raise BenchError(f"{argv[0]}: not found") from None
        except (OSError, subprocess.SubprocessError) as error:
            raise BenchError(f"{argv[0]}: {error}") from None


def _interrupted(_number: int, _frame) -> None:
    raise KeyboardInterrupt


class ControlGroup:
    """A control group that limits bytes per second on given devices: version 1 `blkio`, else version 2 `io`."""

    V1 = Path("/sys/fs/cgroup/blkio")

    def __init__(self, name: str):
        self.path, self.version, self.reason = None, None, ""
        try:
            if (self.V1 / "blkio.throttle.read_bps_device").exists():
                self._make(self.V1 / name, 1)
            else:
                self._make_v2(name)
        except OSError as error:
            self.reason = str(error)

    def _make_v2(self, name: str) -> None:
        roots = [Path(l.split()[1]) for l in _lines("/proc/mounts") if l.split()[2] == "cgroup2"]
        for root in roots:
            if "io" in (root / "cgroup.controllers").read_text().split():
                (root / "cgroup.subtree_control").write_text("+io")
                self._make(root / name, 2)
                return
        self.reason = "neither the blkio (version 1) nor the io controller (version 2) of cgroups is available"

    def _make(self, path: Path, version: int) -> None:
        path.mkdir()
        self.path, self.version = path, version

    def limit(self, device: str, read_bps: int, write_bps: int) -> None:
        """Limits what the group's processes together read from and write to a device."""
        number = os.stat(device).st_rdev
        pair = f"{os.major(number)}:{os.minor(number)}"
        if self.path is None:
            raise BenchError(f"cannot throttle: {self.reason}")
        if self.version == 1:
            (self.path / "blkio.throttle.read_bps_device").write_text(f"{pair} {read_bps}")
            (self.path / "blkio.throttle.write_bps_device").write_text(f"{pair} {write_bps}")
        else:
            (self.path / "io.max").write_text(f"{pair} rbps={read_bps} wbps={write_bps}")

    def limit_operations(self, device: str, count: int) -> bool:
        """Limits how many reads, and how many writes and flushes, a device takes in a second: of
        the group's processes, and as many of all others, if those can be limited; 0 lifts the
        limits. Returns whether the others are limited."""
        number = os.stat(device).st_rdev
        pair = f"{os.major(number)}:{os.minor(number)}"
        if self.path is None:
            raise BenchError(f"cannot throttle: {self.reason}")
        if self.version == 1:
            for path in (self.path, self.V1):
                _limit_operations_v1(path, pair, count)
            return True
        (self.path / "io.max").write_text(f"{pair} riops={count or 'max'} wiops={count or 'max'}")
        return False

    def enter(self) -> None:
        """Puts the calling process into the group. Runs in a child between fork and exec."""
        if self.path is not None:
            with open(self.path / "cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def processes(self) -> list[int]:
        """The processes in the group now."""
        return [int(line) for line in _lines(f"{self.path}/cgroup.procs")] if self.path else []


def _limit_operations_v1(group: Path, pair: str, count: int) -> None:
    for kind in ("read", "write"):
        (group / f"blkio.throttle.{kind}_iops_device").write_text(f"{pair} {count}")


def _lift_everybodys_limit(device: str) -> None:
    """Limits set outside the group stay with the device's number, whose next user would meet
    them."""
    if (ControlGroup.V1 / "blkio.throttle.read_iops_device").exists():
        number = os.stat(device).st_rdev
        _limit_operations_v1(ControlGroup.V1, f"{os.major(number)}:{os.minor(number)}", 0)


def _groups_named(name: str) -> list[Path]:
    candidates = [ControlGroup.V1 / name]
    candidates += [Path(l.split()[1]) / name for l in _lines("/proc/mounts") if l.split()[2] == "cgroup2"]
    return [path for path in candidates if path.is_dir()]


def mounts_below(work: Path) -> list[str]:
    """Mount points below a directory, innermost first."""
    points = [line.split()[4].replace("\\040", " ") for line in _lines("/proc/self/mountinfo")]
    return [point for point in reversed(points) if point.startswith(f"{work}/")]


def sweep(work: Path) -> None:
    """Removes everything that a run made: its processes, mounts, loop devices, control group and files."""
    groups = _groups_named(work.name)
    for device, backing in loop_devices():
        if backing.startswith(f"{work}/"):
            _complain(lambda d=device: _lift_everybodys_limit(d))
    for point in mounts_below(work):
        # Programs that serve a mount end by themselves when it goes, which gives them the time to write back.
        with contextlib.suppress(BenchError):
            run("umount", point, timeout=20)
    _end_processes(groups)
    for point in mounts_below(work):
        _complain(lambda p=point: run("umount", "-l", p, timeout=20))
    for line in loop_devices():
        device, backing = line
        if backing.startswith(f"{work}/"):
            _complain(lambda d=device: run("losetup", "-d", d))
    for group in groups:
        _complain(group.rmdir)
    shutil.rmtree(work, onerror=lambda _call, path, info: _warn(f"{path}: {info[1]}"))


def loop_devices() -> list[tuple[str, str]]:
    """Every loop device of the machine with its backing file."""
    try:
        rows = run("losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE").splitlines()
    except BenchError as error:
        _warn(str(error))
        return []
    return [tuple(row.split(" ", 1)) for row in rows if " " in row]


def _end_processes(groups: list[Path], patience_s: float = 10) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            pids = [int(line) for group in groups for line in _lines(f"{group}/cgroup.procs")]
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(0.2)


def _complain(action) -> None:
    try:
        action()
    except (BenchError, OSError) as error:
        _warn(str(error))


def _warn(message: str) -> None:
    print(f"while cleaning up: {message}", file=sys.stderr)


def stale_runs(parent: Path) -> list[Path]:
    """Work directories of runs whose process is gone."""
    stale = []
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), open(path / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stale.append(path)
    return stale
