"""Loads of scenario `zoned` that no profile knows; each writes files below a directory and removes them when they are as
old as such files get. Run as a program: LOAD DIRECTORY STEPS STEPS-A-SECOND. The pace matters: space comes back about a
second after a file was removed, and a tier that is full meanwhile passes data on to home. Or: churn DIRECTORY BYTES TIMES."""

from __future__ import annotations

import heapq
import json
import os
import random
import sys
import time
from pathlib import Path

KIB, MIB = 1024, 1024 * 1024


class Files:
    """Files that end after a number of steps, so many of which there are in a second."""

    def __init__(self, root: Path, pace: float) -> None:
        self.root, self.step, self.ends = root, 0, []
        self.pace, self.began = pace, time.monotonic()

    def write(self, name: str, size: int, steps: int) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            for at in range(0, size, MIB):
                file.write(os.urandom(min(MIB, size - at)))
            file.flush()
            os.fsync(file.fileno())
        heapq.heappush(self.ends, (self.step + steps, name))

    def end_step(self) -> None:
        self.step += 1
        while self.ends and self.ends[0][0] <= self.step:
            (self.root / heapq.heappop(self.ends)[1]).unlink()
        time.sleep(max(0.0, self.began + self.step / self.pace - time.monotonic()))


def log_store(files: Files, steps: int) -> None:
    """A log-structured store: segments are cleaned soon, what was left of them stays for long, and a manifest is written
    anew."""
    for number in range(steps):
        files.write(f"store/seg-{number:06}.log", MIB, random.randrange(10, 30))
        if number % 4 == 0:
            files.write(f"store/old-{number:06}.log", MIB, random.randrange(500, 900))
        files.write(f"store/MANIFEST-{number}", 96 * KIB, 2)
        files.end_step()


def spool(files: Files, steps: int) -> None:
    """Mail as maildir has it: copies to be looked through, mail that is fetched soon, and mail that is kept."""
    for number in range(steps):
        user, size = random.randrange(5), random.randrange(16, 128) * KIB
        name = f"{1_700_000_000 + number}.M{user}P{number}.host"
        files.write(f"mail/user{user}/tmp/{name}", size, 10)
        files.write(f"mail/user{user}/new/{name}", size, random.randrange(50, 200))
        if number % 4 == 0:
            files.write(f"mail/user{user}/cur/{name}:2,S", size, random.randrange(2000, 4000))
        files.end_step()


def churn(root: Path, room: int, times: int) -> None:
    """Files take nine tenths of the room, and are replaced at random, until so many times the room was written. Prints, as
    JSON, the bytes that were written, and the seconds that a file took: median, 99th percentile, at most."""
    live, files, written, took, block = 0, [], 0, [], 4 * KIB
    while written < times * room:
        size = random.randrange(4, 64) * block
        while live + size > room * 9 // 10:
            at = random.randrange(len(files))
            files[at], files[-1] = files[-1], files[at]
            name, freed = files.pop()
            name.unlink()
            live -= freed
        name = root / f"churn/{len(took) % 64:02}/{len(took)}"
        name.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with open(name, "wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
        took.append(time.monotonic() - began)
        files.append((name, size))
        live, written = live + size, written + size
    took.sort()
    count = len(took)
    print(json.dumps({"written": written, "files": count, "median": took[count // 2], "p99": took[count * 99 // 100],
                      "most": took[-1]}))


if __name__ == "__main__":
    random.seed(1)
    if sys.argv[1] == "churn":
        sys.exit(churn(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    {"log-store": log_store, "spool": spool}[sys.argv[1]](Files(Path(sys.argv[2]), float(sys.argv[4])), int(sys.argv[3]))
