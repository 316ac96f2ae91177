"""The sides that are compared: a side offers a directory to work in, over one or more throttled or
plain devices.

A side is started inside the control group, so that the server, which does the I/O, is throttled.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from braidbench.devices import MB, Device, evict
from braidbench.host import BenchError, Host, run

START_TIMEOUT_S = 60
UNMOUNT_ATTEMPTS = 3


class Side:
    """A native file system, and the base of the others."""

    # Whether files opened with O_DIRECT are accepted.
    direct = True

    def __init__(self, name: str, host: Host, devices: list[Device], tag: str = ""):
        self.name, self.host, self.devices = name, host, devices
        # Sides of one name have places of their own by their tags.
        self.place = f"{name}{tag}"
        self.root = devices[0].mount / f"side-{self.place}"
        self.stores = [device.mount / f"side-{self.place}" for device in devices]
        self.running = False

    def start(self) -> None:
        """Makes the side usable, unless it is."""
        if self.running:
            return
        for store in self.stores:
            store.mkdir(exist_ok=True)
        self._start()
        self.running = True

    def _start(self) -> None:
        pass

    def stop(self) -> None:
        """Ends the side. Safe to call in any state."""
        self.running = False

    def evict(self) -> None:
        """Makes the next read meet the devices."""
        evict(*self.stores)

    def mode(self) -> str:
        """How the side is set up, in words to keep with its figures."""
        return ", ".join(f"{device.kind} {device.profile}".strip() + f" over {_limits_text(device)}" for device in self.devices)

    def layout(self, path: Path) -> str | None:
        """`plain` or `spread`, for a side that knows the difference."""
        return None

    def takes_direct(self) -> bool:
        """Whether direct I/O works here, tried once."""
        if not hasattr(self, "_takes_direct"):
            probe = self.root / "direct-probe"
            try:
                run("dd", "if=/dev/zero", f"of={probe}", "bs=4096", "count=1", "oflag=direct", "status=none")
                run("dd", f"if={probe}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none")
                self._takes_direct = True
            except BenchError:
                self._takes_direct = False
            run("rm", "-f", probe)
        return self._takes_direct

    def used(self) -> int:
        """Bytes in use on the devices' file systems, once removed files' space has been given
        back."""
        total = 0
        for device in self.devices:
            run("sync", "-f", device.mount)
            state = os.statvfs(device.mount)
            total += (state.f_blocks - state.f_bfree) * state.f_frsize
        return total

    def fullness(self) -> float:
        """How full the fullest device's file system is, 0 to 1."""
        states = [os.statvfs(device.mount) for device in self.devices]
        return max(1 - state.f_bfree / state.f_blocks for state in states)

    def transferred(self) -> list[tuple[int, int]]:
        """Bytes read and written by each device so far."""
        return [device.transferred() for device in self.devices]

    def processor_seconds(self) -> float | None:
        """Processor time that the side's server has used since it started; None without one."""
        return None


class Mounted(Side):
    """A side that is a FUSE file system served by a process."""

    def __init__(self, name: str, host: Host, devices: list[Device], tag: str = ""):
        super().__init__(name, host, devices, tag)
        self.root = host.directory(f"mnt/{self.place}")

    def _start(self) -> None:
        # Leftovers of an earlier server of this side.
        self.stop()
        path = self.host.work / f"{self.place}.log"
        with open(path, "ab") as log:
            said_before = log.tell()
            process = self.host.spawn(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            try:
                status = process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise BenchError(f"{self.name}: not mounted after {START_TIMEOUT_S} s") from None
        if status != 0 or not os.path.ismount(self.root):
            words = path.read_bytes()[said_before:].decode(errors="replace").strip().splitlines()
            raise BenchError(f"{self.name}: exit status {status}: {' / '.join(words[-3:]) or 'no message'}")

    def command(self) -> list[str]:
        """The command that mounts; returns when the file system is usable."""
        raise NotImplementedError

    def unmount(self) -> None:
        """The side's own way to unmount."""
        run("umount", self.root)

    def stop(self) -> None:
        self.running = False
        if not _is_mount_point(self.root):
            return
        for attempt in range(UNMOUNT_ATTEMPTS):
            try:
                self.unmount()
                break
            except BenchError as error:
                # The kernel lets go of the last files a moment after the program that used them has ended.
                if "busy" in str(error) and attempt + 1 < UNMOUNT_ATTEMPTS:
                    time.sleep(1)
                    continue
                self.host.warn(f"{self.name} did not unmount cleanly: {error}")
                self._end()
                break
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.pids():
            if time.monotonic() > deadline:
                self.host.warn(f"{self.name}: its server was killed {START_TIMEOUT_S} s after the unmount, which did not end it")
                self._end()
                break
            time.sleep(0.05)

    def _end(self) -> None:
        """Ends a server that does not unmount. The mount may have gone in the meantime."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if _is_mount_point(self.root):
            with contextlib.suppress(BenchError):
                run("umount", "-l", self.root)

    def processor_seconds(self) -> float:
        ticks = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                # From the state on, which follows the command's name in brackets; all threads together.
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def pids(self) -> list[int]:
        """The processes that serve the mount: those with the mount point in their command line."""
        wanted = os.fsencode(self.root)
        found = []
        for pid in self.host.group.processes() or [int(p.name) for p in Path("/proc").glob("[0-9]*")]:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in words:
                found.append(pid)
        return found


class Mergerfs(Mounted):
    """mergerfs over the devices. Debian's build refuses O_DIRECT."""

    direct = False

    def __init__(self, name: str, host: Host, devices: list[Device], policy: str, options: tuple[str, ...] = (),
                 binary: str = "mergerfs", tag: str = ""):
        super().__init__(name, host, devices, tag)
        self.policy, self.binary = policy, binary
        self.options = ",".join([f"category.create={policy}", "allow_other", "minfreespace=64M", *options])

    def mode(self) -> str:
        return f"mergerfs -o {self.options}"

    def command(self) -> list[str]:
        return [self.binary, "-o", self.options, ":".join(str(store) for store in self.stores), str(self.root)]


class Braid(Mounted):
    """Braid over the devices; the first one is home."""

    def __init__(self, name: str, host: Host, devices: list[Device], binary: Path, policy: str,
                 options: tuple[str, ...] = (), keys: tuple[str, ...] = (), tag: str = "",
                 weights: dict[str, int] | None | bool = True):
        super().__init__(name, host, devices, tag)
        # May be changed while the side is stopped.
        self.binary, self.policy, self.options = binary, policy, options
        # The weights of tiers by name; True: in proportion to the devices' limits, None: none are
        # given.
        self.weights = weights
        # Further keys of the volume, as lines of YAML; with any, the side is mounted by a stack file.
        self.keys = keys

    def _start(self) -> None:
        if not os.access(self.binary, os.X_OK):
            raise BenchError(f"no braid at {self.binary}: build it with `cargo build --release` or name one with --braid")
        super()._start()

    def command(self) -> list[str]:
        argv = [str(self.binary), "mount", "--create"]
        if self.keys:
            path = self.host.work / f"{self.place}.yaml"
            path.write_text(self.stack())
            return [*argv, *self.options, str(path), str(self.root)]
        for device, store in zip(self.devices, self.stores):
            argv += ["--tier", ",".join([f"{device.name}={store}", *(f"weight={each}" for each in self._weight(device))])]
        return argv + ["--home", self.devices[0].name, "--policy", self.policy, *self.options, str(self.root)]

    def mode(self) -> str:
        weights = ", ".join(f"{device.name} {each}" for device in self.devices for each in self._weight(device))
        return "; ".join([f"policy {self.policy}", f"weights {weights}" if weights else "no weights",
                          f"home {self.devices[0].name}", *self.options, *self.keys])

    def stack(self) -> str:
        """The stack file, with the settings of the command's flags and the further keys."""
        name, _, settings = self.policy.partition(":")
        settings = ", ".join(": ".join(pair.split("=", 1)) for pair in settings.split(",") if pair)
        lines = ["stack:", "  volume:", f"    home: {self.devices[0].name}", f"    policy: {{ {name}: {{ {settings} }} }}",
                 "    tiers:"]
        for device, store in zip(self.devices, self.stores):
            settings = ", ".join([f"dir: {store}", *(f"weight: {each}" for each in self._weight(device))])
            lines.append(f"      {device.name}: {{ {settings} }}")
        lines += [f"    {line}" for key in self.keys for line in key.splitlines()]
        return "\n".join(lines) + "\n"

    def _weight(self, device: Device) -> list[int]:
        """The tier's weight, if it has one."""
        if self.weights is True:
            return [device.limit.write_bps // MB if device.limit else 1]
        return [self.weights[device.name]] if self.weights else []

    def unmount(self) -> None:
        run(self.binary, "umount", self.root)

    def renew(self) -> None:
        """Makes a new volume in place of the side's: one that was never mounted before."""
        self.stop()
        for store in self.stores:
            shutil.rmtree(store, ignore_errors=True)
        self.start()

    def remount(self) -> None:
        """Mounts the side's volume a second time."""
        self.stop()
        self.start()

    def ask(self, *words: str) -> str:
        """One of braid's questions about the mount, as JSON text."""
        return run(self.binary, *words, "--json")

    def layout(self, path: Path) -> str | None:
        try:
            return json.loads(self.ask("explain", str(path)))["layout"]
        except (ValueError, KeyError):
            raise BenchError(f"{self.name}: cannot read the answer of `braid explain`") from None


def _limits_text(device: Device) -> str:
    limits = device.limits or (device.limit,) * len(device.nodes)
    return " + ".join(str(limit) if limit else "no limit" for limit in limits)


def _is_mount_point(path: Path) -> bool:
    # Not os.path.ismount: that asks the server, which may be dead.
    with open("/proc/self/mountinfo") as lines:
        return any(line.split()[4] == str(path) for line in lines)
