#!/usr/bin/env python3
"""Metadata of the log file system beside ext4, XFS and btrfs on the same loop device
(LabStor, figure 7): files made a second by one process, without and with fsync, looked
up, and removed; one large file written and synced, and read; and files made by `braid
bench runtime`, through the mount, by a session (log-session) and in its own process
(log-direct). log-io_uring has that driver.

The sides take turns on one image, which is made anew for each; each repetition has all
of them. Prints medians, and writes all raw results as JSON. Needs root. """

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

SIDES = ["log", "log-io_uring", "log-session", "log-direct", "ext4", "xfs", "btrfs"]
BY_PROGRAM = "create by a program"
# MiB of the large file.
LARGE = 512


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Side:
    """A file system that is mounted while the block runs."""

    def __init__(self, name, braid, image, mount):
        self.name, self.braid, self.image, self.mount = name, braid, image, mount
        self.loop, self.stack = None, None

    def __enter__(self):
        run("blkdiscard", "-f", self.device())
        if self.is_log():
            run(self.braid, "log", "create", "--force", self.device())
        if self.name == "log-direct":
            self.stack = self.image + ".yaml"
            with open(self.stack, "w", encoding="utf-8") as stack:
                json.dump({"exec": "direct", "stack": {"log": {"device": self.device()}}}, stack)
        elif self.is_log():
            driver = "io_uring" if self.name == "log-io_uring" else "auto"
            run(self.braid, "log", "mount", "--runtime", "--driver", driver, self.device(), self.mount)
        else:
            quiet = {"ext4": ["-q", "-F"], "xfs": ["-q", "-f"], "btrfs": ["-q", "-f"]}[self.name]
            run(f"mkfs.{self.name}", *quiet, self.device())
            run("mount", "-o", "noatime", self.device(), self.mount)
        return self

    def __exit__(self, *_):
        if self.name != "log-direct":
            run(*([self.braid, "umount"] if self.is_log() else ["umount"]), self.mount)
        run("losetup", "-d", self.loop)

    def is_log(self):
        return self.name.startswith("log")

    def created_by_program(self):
        """Files made a second by `braid bench runtime`."""
        through = {"log-session": "runtime", "log-direct": "direct"}.get(self.name, "mount")
        place = self.stack if through == "direct" else self.mount
        # So few that the inodes of ext4 suffice.
        words = [self.braid, "bench", "runtime", place, "--load", "create", "--through", through, "--seconds", "2", "--json"]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)["operations_per_second"]

    def device(self):
        if self.loop is None:
            found = subprocess.run(["losetup", "-f", "--show", self.image], check=True, stdout=subprocess.PIPE)
            self.loop = found.stdout.decode().strip()
        return self.loop


def timed(count, work):
    began = time.perf_counter()
    for which in range(count):
        work(which)
    return count / (time.perf_counter() - began)


def measure(side, files, synced):
    """Operations a second."""
    found = {BY_PROGRAM: side.created_by_program()}
    if side.name in ("log-session", "log-direct"):
        return found
    mount = side.mount
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    directory = os.path.join(mount, "files")
    os.mkdir(directory)
    names = [os.path.join(directory, f"file-{which}") for which in range(files)]

    def create(which):
        os.close(os.open(names[which], flags, 0o644))

    def create_synced(which):
        file = os.open(os.path.join(mount, f"synced-{which}"), flags, 0o644)
        os.write(file, b"content")
        os.fsync(file)
        os.close(file)

    found["create"] = timed(files, create)
    os.sync()
    drop_caches("2")
    found["stat"] = timed(files, lambda which: os.stat(names[which]))
    found["unlink"] = timed(files, lambda which: os.unlink(names[which]))
    found["create and fsync"] = timed(synced, create_synced)
    large, block = os.path.join(mount, "large"), os.urandom(1 << 20)
    with open(large, "wb", buffering=0) as file:
        found["MiB written"] = LARGE * timed(1, lambda _: write_synced(file, block))
    drop_caches("3")
    with open(large, "rb", buffering=0) as file:
        found["MiB read"] = timed(LARGE, lambda _: file.readinto(bytearray(1 << 20)))
    return found


def write_synced(file, block):
    for _ in range(LARGE):
        file.write(block)
    os.fsync(file)


def drop_caches(which):
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as caches:
        caches.write(which)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--braid", default="target/release/braid")
    parser.add_argument("--dir", default="/var/tmp", help="where the image is")
    parser.add_argument("--size", default="4G")
    parser.add_argument("--files", type=int, default=30_000)
    parser.add_argument("--synced", type=int, default=500)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--out", help="a file for all that was seen, as JSON")
    args = parser.parse_args()
    braid, seen = os.path.abspath(args.braid), []
    with tempfile.TemporaryDirectory(dir=args.dir) as work:
        image, mount = os.path.join(work, "image"), os.path.join(work, "mount")
        os.mkdir(mount)
        run("truncate", "-s", args.size, image)
        for rep in range(args.reps):
            sides = args.sides.split(",")
            random.Random(rep).shuffle(sides)
            for name in sides:
                with Side(name, braid, image, mount) as side:
                    seen.append({"rep": rep, "side": name, **measure(side, args.files, args.synced)})
                print(json.dumps(seen[-1]), flush=True)
    for what in [BY_PROGRAM, "create", "stat", "unlink", "create and fsync", "MiB written", "MiB read"]:
        samples = {side: [one[what] for one in seen if one["side"] == side and what in one] for side in args.sides.split(",")}
        medians = {side: statistics.median(of) for side, of in samples.items() if of}
        print(f"{what} a second: " + ", ".join(f"{side} {rate:,.0f}" for side, rate in medians.items()))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as out:
            json.dump({"settings": vars(args), "seen": seen}, out, indent=1)


if __name__ == "__main__":
    main()
