"""Loads of scenario `zoned` that write whole files below a directory, and remove them when they are as old as such files get.
Run as a program: LOAD DIRECTORY STEPS STEPS-A-SECOND, which ends early at SIGTERM; or churn DIRECTORY BYTES TIMES. The pace
matters: space comes back about a second after a file was removed, and a tier that is full meanwhile passes data on to home.
Prints, as JSON, how long each file took, in microseconds, and how much was written."""

from __future__ import annotations

import heapq
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

KIB, MIB = 1024, 1024 * 1024


class Told:
    """The final results of a program: the times of its operations, and the rate of its writes."""

    def __init__(self) -> None:
        self.took, self.written, self.began = [], 0, time.monotonic()

    def end(self, **more: float) -> None:
        """Prints them, with further figures."""
        seconds = time.monotonic() - self.began
        print(json.dumps({"operations": len(self.took) / seconds, "program wrote": self.written / 1e6 / seconds,
                          "in all": self.written / 1e9, "seconds": seconds, **percentiles(self.took), **more}))


def percentiles(took: list[float]) -> dict[str, float]:
    """The percentiles of times in seconds, in microseconds."""
    took = sorted(took)
    return {name: 1e6 * took[int(share * (len(took) - 1))]
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.99", 0.9999), ("at most", 1))}


class Files:
    """Files that end after a number of steps, with so many steps in a second."""

    def __init__(self, root: Path, pace: float) -> None:
        self.root, self.step, self.ends, self.over = root, 0, [], False
        self.told, self.pace = Told(), pace
        self.noise = random.randbytes(4 * MIB)

    def write(self, name: str, size: int, steps: int) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        start = random.randrange(len(self.noise) - size)
        began = time.monotonic()
        with open(path, "wb") as file:
            file.write(memoryview(self.noise)[start:start + size])
            file.flush()
            os.fsync(file.fileno())
        self.told.took.append(time.monotonic() - began)
        self.told.written += size
        heapq.heappush(self.ends, (self.step + steps, name))

    def steps(self, count: int) -> Iterator[int]:
        """Numbers of steps; after each, files that have ended are removed."""
        while self.step < count and not self.over:
            yield self.step
            self.step += 1
            while self.ends and self.ends[0][0] <= self.step:
                (self.root / heapq.heappop(self.ends)[1]).unlink()
            time.sleep(max(0.0, self.told.began + self.step / self.pace - time.monotonic()))


def log_store(files: Files, steps: int) -> None:
    """A log-structured store: segments are cleaned soon, their live rest stays for long, and a
    manifest is written anew."""
    for number in files.steps(steps):
        files.write(f"store/seg-{number:06}.log", MIB, random.randrange(10, 30))
        if number % 4 == 0:
            files.write(f"store/old-{number:06}.log", MIB, random.randrange(500, 900))
        files.write(f"store/MANIFEST-{number}", 96 * KIB, 2)


def spool(files: Files, steps: int) -> None:
    """Mail as maildir has it: copies to be looked through, mail that is fetched soon, and mail that is kept."""
    for number in files.steps(steps):
        user, size = random.randrange(5), random.randrange(16, 128) * KIB
        name = f"{1_700_000_000 + number}.M{user}P{number}.host"
        files.write(f"mail/user{user}/tmp/{name}", size, 10)
        files.write(f"mail/user{user}/new/{name}", size, random.randrange(50, 200))
        if number % 4 == 0:
            files.write(f"mail/user{user}/cur/{name}:2,S", size, random.randrange(2000, 4000))


def churn(root: Path, room: int, times: int) -> None:
    """Files take nine tenths of the room, and are replaced at random, until so many times the room was written."""
    live, files, told, block = 0, [], Told(), 4 * KIB
    while told.written < times * room:
        size = random.randrange(4, 64) * block
        while live + size > room * 9 // 10:
            at = random.randrange(len(files))
            files[at], files[-1] = files[-1], files[at]
            name, freed = files.pop()
            name.unlink()
            live -= freed
        name = root / f"churn/{len(told.took) % 64:02}/{len(told.took)}"
        name.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with open(name, "wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
        told.took.append(time.monotonic() - began)
        files.append((name, size))
        live, told.written = live + size, told.written + size
    told.end()


def paced(load: str, root: Path, steps: int, pace: float) -> None:
    """Runs a load to its end, or until a signal ends it."""
    files = Files(root, pace)
    signal.signal(signal.SIGTERM, lambda *_: setattr(files, "over", True))
    {"log-store": log_store, "spool": spool}[load](files, steps)
    files.told.end()


if __name__ == "__main__":
    random.seed(1)
    if sys.argv[1] == "churn":
        churn(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        paced(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
