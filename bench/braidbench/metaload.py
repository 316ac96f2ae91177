"""Loads of many small files: `metaload.py varmail|fileserver ROOT PROCESSES FILES LOOPS SEED`. Makes the files, then each
process does its loops; prints one JSON object. The operations, sizes and shares are those of Filebench's
`varmail.f` and `fileserver.f`; every choice comes from the seed, so that all sides do the same work. A program of its
own, so that a hanging mount cannot hang the runner."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time

APPEND = 16 * 1024
FILES_PER_DIRECTORY = {"varmail": 1_000_000, "fileserver": 20}
MEAN_SIZE = {"varmail": 16 * 1024, "fileserver": 128 * 1024}
# Operations of one loop, as Filebench counts them.
OPERATIONS = {"varmail": 13, "fileserver": 11}
CHUNK = os.urandom(1024 * 1024)


class Worker:
    """One process: files of its own in directories that all share."""

    def __init__(self, load: str, root: str, number: int, files: int, seed: int):
        self.load, self.root, self.number = load, root, number
        self.random = random.Random(f"{seed}-{number}")
        self.made, self.live, self.dirty = 0, [], set()
        self.initial = files
        self.syncs: list[float] = []

    def fill(self) -> None:
        """The files that are there before the clock starts."""
        for _ in range(self.initial):
            self.create(sync=False)

    def path(self, number: int) -> str:
        return f"{self.root}/{number // FILES_PER_DIRECTORY[self.load]}/{self.number}.{number}"

    def size(self) -> int:
        mean = MEAN_SIZE[self.load]
        return max(1, min(len(CHUNK), int(self.random.gammavariate(1.5, mean / 1.5))))

    def create(self, *, sync: bool) -> None:
        number = self.made
        self.made += 1
        path = self.path(number)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        self.write(descriptor, self.size())
        self.close(descriptor, sync)
        self.live.append(number)
        self.dirty.add(number)

    def write(self, descriptor: int, length: int) -> None:
        view = memoryview(CHUNK)[:length]
        while view:
            view = view[os.write(descriptor, view):]

    def close(self, descriptor: int, sync: bool) -> None:
        if sync:
            began = time.perf_counter()
            os.fsync(descriptor)
            self.syncs.append(time.perf_counter() - began)
        os.close(descriptor)

    def any(self) -> int:
        return self.live[self.random.randrange(len(self.live))]

    def delete(self) -> None:
        index = self.random.randrange(len(self.live))
        self.live[index], self.live[-1] = self.live[-1], self.live[index]
        number = self.live.pop()
        self.dirty.discard(number)
        os.unlink(self.path(number))

    def append(self, *, read: bool, sync: bool) -> None:
        number = self.any()
        descriptor = os.open(self.path(number), os.O_RDWR | os.O_APPEND)
        if read:
            self.read(descriptor)
        self.write(descriptor, self.random.randrange(1, APPEND + 1))
        self.close(descriptor, sync)
        self.dirty.add(number)

    def read(self, descriptor: int) -> None:
        while os.read(descriptor, len(CHUNK)):
            pass

    def read_whole(self) -> None:
        descriptor = os.open(self.path(self.any()), os.O_RDONLY)
        self.read(descriptor)
        os.close(descriptor)

    def loop(self) -> None:
        """One round of the load."""
        if self.load == "varmail":
            self.delete()
            self.create(sync=True)
            self.append(read=True, sync=True)
            self.read_whole()
        else:
            self.create(sync=False)
            self.append(read=False, sync=False)
            self.read_whole()
            self.delete()
            os.stat(self.path(self.any()))

    def finish(self) -> None:
        """Syncs the remaining writes, so that they reach the devices inside the measured time."""
        for number in sorted(self.dirty):
            descriptor = os.open(self.path(number), os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def work(load: str, root: str, number: int, files: int, loops: int, seed: int, filled, go, answers) -> None:
    """The life of a process."""
    try:
        worker = Worker(load, root, number, files, seed)
        worker.fill()
        # The clock starts with nothing left to write back.
        worker.finish()
        worker.dirty.clear()
        filled.release()
        go.wait()
        for _ in range(loops):
            worker.loop()
        if load == "fileserver":
            worker.finish()
        answers.put((time.monotonic(), worker.syncs))
    except OSError as error:
        filled.release()
        answers.put((None, str(error)))


def main() -> None:
    load, root = sys.argv[1:3]
    processes, files, loops, seed = map(int, sys.argv[3:7])
    filled, go, answers = multiprocessing.Semaphore(0), multiprocessing.Event(), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=work, args=(load, root, number, max(1, files // processes), loops, seed,
                                                          filled, go, answers)) for number in range(processes)]
    for worker in workers:
        worker.start()
    for _ in workers:
        filled.acquire()
    began = time.monotonic()
    go.set()
    ends, syncs = [], []
    for _ in workers:
        end, told = answers.get()
        if end is None:
            for worker in workers:
                worker.terminate()
            sys.exit(f"{load}: {told}")
        ends.append(end)
        syncs += told
    for worker in workers:
        worker.join()
    syncs.sort()
    print(json.dumps({"seconds": max(ends) - began, "operations": OPERATIONS[load] * loops * processes,
                      "sync_ms_p50": 1000 * syncs[len(syncs) // 2] if syncs else None,
                      "sync_ms_p99": 1000 * syncs[len(syncs) * 99 // 100] if syncs else None}))


if __name__ == "__main__":
    main()
