"""Loop devices with a native file system each, throttled or not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from braidbench.host import BenchError, Host, run

MB = 10**6
GIB = 2**30

MKFS = {
    # Nothing is left for the kernel to initialise in the background while a measurement runs.
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}


@dataclass(frozen=True)
class Limit:
    """Bytes per second that a device takes and gives, and how many operations of each kind; 0: any number."""

    write_bps: int
    read_bps: int
    operations: int = 0

    @staticmethod
    def parse(text: str) -> "Limit":
        """`200/400`: MB/s written / read."""
        write, _, read = text.partition("/")
        try:
            limit = Limit(int(float(write) * MB), int(float(read) * MB))
        except ValueError:
            raise BenchError(f"{text!r}: expected WRITE/READ in MB/s, like 200/400") from None
        if limit.write_bps < MB or limit.read_bps < MB:
            raise BenchError(f"{text!r}: at least 1 MB/s each")
        return limit

    def rate(self, rw: str, operation: int | None = None) -> int:
        """Bytes per second written or read, in operations of that many bytes or, without, as large as it takes."""
        rate = self.write_bps if rw == "write" else self.read_bps
        return min(rate, self.operations * operation) if self.operations and operation else rate

    def __str__(self) -> str:
        operations = f" and {self.operations} operations/s" if self.operations else ""
        return f"{self.write_bps // MB}/{self.read_bps // MB} MB/s{operations}"


@dataclass(frozen=True)
class Device:
    """One loop device, or two under one file system, mounted at `mount`."""

    name: str
    kind: str
    nodes: tuple[str, ...]
    mount: Path
    limit: Limit | None
    # Of each node, where they differ.
    limits: tuple[Limit, ...] = ()
    # How btrfs lays data out over several nodes.
    profile: str = ""

    def ceiling(self, rw: str) -> int:
        """Bytes per second that all nodes together take (`write`) or give (`read`); 0 without a limit."""
        each = self.limits or (self.limit,) * len(self.nodes)
        return sum(limit.rate(rw) for limit in each if limit)

    def transferred(self) -> tuple[int, int]:
        """Bytes read and written by the block devices since they were made."""
        read = written = 0
        for node in self.nodes:
            fields = Path(f"/sys/block/{os.path.basename(node)}/stat").read_text().split()
            # The kernel counts in sectors of 512 bytes here, whatever the device's own.
            read += int(fields[2]) * 512
            written += int(fields[6]) * 512
        return read, written

    def set_readahead(self, kib: int) -> None:
        """Sets how far the kernel reads ahead in files on the device."""
        for node in self.nodes:
            Path(f"/sys/block/{os.path.basename(node)}/queue/read_ahead_kb").write_text(str(kib))


def make(host: Host, name: str, kind: str, size: int, limit: Limit | None, *, pair: bool = False,
         mkfs_options: tuple[str, ...] = ()) -> Device:
    """Makes a device (`pair`: two equal ones, striped by btrfs), its file system, and mounts it."""
    if kind not in MKFS:
        raise BenchError(f"{kind!r}: not one of {', '.join(MKFS)}")
    nodes = tuple(host.loop_device(f"{name}{part}", size) for part in (["-a", "-b"] if pair else [""]))
    striped = ["-d", "raid0", "-m", "raid0"] if pair else []
    run(*MKFS[kind], *mkfs_options, *striped, *nodes, timeout=300)
    if pair:
        run("btrfs", "device", "scan", *nodes)
    mount = host.directory(f"mnt/{name}")
    run("mount", "-t", kind, nodes[0], mount)
    if limit is not None:
        for node in nodes:
            _throttle(host, node, limit)
    return Device(name, kind, nodes, mount, limit, profile="raid0" if pair else "")


def pool(host: Host, name: str, size: int, limits: list[Limit], profile: str) -> Device:
    """btrfs over one device for each limit, its data laid out by `profile`."""
    nodes = tuple(host.loop_device(f"{name}-{part}", size) for part in range(len(limits)))
    run(*MKFS["btrfs"], "-d", profile, "-m", "raid0", *nodes, timeout=300)
    run("btrfs", "device", "scan", *nodes)
    mount = host.directory(f"mnt/{name}")
    run("mount", "-t", "btrfs", nodes[0], mount)
    for node, limit in zip(nodes, limits):
        _throttle(host, node, limit)
    return Device(name, "btrfs", nodes, mount, None, tuple(limits), profile)


def remove(host: Host, device: Device) -> None:
    """Unmounts a device and gives its memory or disk space back."""
    run("umount", device.mount)
    for node in device.nodes:
        host.remove_loop_device(node)


def _throttle(host: Host, node: str, limit: Limit) -> None:
    host.group.limit(node, limit.read_bps, limit.write_bps)
    if limit.operations and not host.group.limit_operations(node, limit.operations):
        host.warn("the kernel's own threads, which write the journals, were not limited in operations")


def evict(*directories: Path) -> None:
    """Writes back and drops the cached pages of every file below, so that the next read meets the device.

    Only these files: the machine's other caches stay as they are.
    """
    for top in directories:
        for folder, _, names in os.walk(top):
            for name in names:
                _evict_file(os.path.join(folder, name))


def _evict_file(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        # Sockets and the like have no pages.
        pass
    finally:
        os.close(descriptor)
