"""Loads of scenario `zoned` that write in place. Run as a program: document DIRECTORY BYTES PREALLOCATED, as MongoDB's
WiredTiger writes, or cache DIRECTORY BYTES, as CacheLib's Navy does. Prints, as JSON, how long a group of the journal or a
bucket took, in microseconds, and how much was written; then reads all back, and fails if any data
differs."""

from __future__ import annotations

import heapq
import mmap
import os
import random
import sys
import time
from pathlib import Path

from zoned_loads import KIB, MIB, Told, percentiles

BLOCK = 4 * KIB
NOISE = 16 * MIB
# Documents of a journal's group, which is synced as one; bytes of a file of the journal; checkpoints while as much as all
# documents is written to the journal.
GROUP, JOURNAL, CHECKPOINTS = 16, 16 * MIB, 32
# Pages of the history.
HISTORY = 1000
# The size of the cache's writes, its regions, how often all are written, and the buckets written
# for each.
PIECE, REGION, TURNS, BUCKETS_OF_REGION = MIB, 16 * MIB, 4, 1024


class Noise:
    """Bytes at random, in memory that direct I/O takes. Written pieces are known by their start."""

    def __init__(self) -> None:
        self.bytes = mmap.mmap(-1, NOISE)
        self.bytes.write(random.randbytes(NOISE))

    def start(self, size: int) -> int:
        """The start of a piece of this size; direct I/O needs whole blocks."""
        return random.randrange((NOISE - size) // BLOCK) * BLOCK

    def piece(self, start: int, size: int) -> memoryview:
        """The bytes from there on."""
        return memoryview(self.bytes)[start:start + size]


class Journal:
    """Files of a fixed size that are written from beginning to end; a checkpoint removes all but the one in use."""

    def __init__(self, root: Path, noise: Noise, told: Told, preallocated: bool) -> None:
        self.root, self.noise, self.told, self.preallocated = root, noise, told, preallocated
        self.number, self.at = 0, JOURNAL
        self.file, self.old = -1, []

    def _next(self) -> None:
        """As WiredTiger makes it: under another name, with a header and, by default, its whole length at once."""
        if self.file >= 0:
            os.close(self.file)
            self.old.append(self.number)
        self.number += 1
        made, ready = (self.root / f"WiredTiger{kind}.{self.number:010}" for kind in ("Tmplog", "Preplog"))
        self.file = os.open(made, os.O_RDWR | os.O_CREAT, 0o644)
        self.at = os.pwrite(self.file, self.noise.piece(0, 128), 0)
        if self.preallocated:
            os.posix_fallocate(self.file, 0, JOURNAL)
        os.fsync(self.file)
        made.rename(ready)
        ready.rename(self.root / f"WiredTigerLog.{self.number:010}")

    def write(self, size: int) -> None:
        """A group of records."""
        size = -(-size // 128) * 128
        began = time.monotonic()
        if self.at + size > JOURNAL:
            self._next()
        self.at += os.pwrite(self.file, self.noise.piece(self.noise.start(size), size), self.at)
        os.fdatasync(self.file)
        self.told.took.append(time.monotonic() - began)
        self.told.written += size

    def checkpoint(self) -> None:
        for number in self.old:
            (self.root / f"WiredTigerLog.{number:010}").unlink()
        self.old = []


class Pages:
    """A file of pages of 4 KiB blocks. A page is written at a new place each time; its old place is
    free from the next checkpoint on, and used again, the first place of the least length that
    fits."""

    def __init__(self, path: Path, noise: Noise, told: Told, blocks_max: int) -> None:
        self.noise, self.told, self.blocks_max = noise, told, blocks_max
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.path, self.end = path, 1
        self.free: list[list[int]] = [[] for _ in range(blocks_max + 1)]
        self.freed: list[tuple[int, int]] = []
        # First block, blocks, and start of the noise, of each page.
        self.pages: list[tuple[int, int, int]] = []
        self._put(0, 1)

    def _put(self, first: int, blocks: int) -> int:
        start = self.noise.start(blocks * BLOCK)
        os.pwrite(self.file, self.noise.piece(start, blocks * BLOCK), first * BLOCK)
        self.told.written += blocks * BLOCK
        return start

    def _place(self, blocks: int) -> int:
        for length in range(blocks, self.blocks_max + 1):
            if self.free[length]:
                first = heapq.heappop(self.free[length])
                if length > blocks:
                    heapq.heappush(self.free[length - blocks], first + blocks)
                return first
        self.end += blocks
        return self.end - blocks

    def write(self, page: int | None = None) -> int:
        """Writes a page anew, or a new one; its bytes."""
        blocks = random.randint(1, self.blocks_max)
        first = self._place(blocks)
        written = first, blocks, self._put(first, blocks)
        if page is None:
            self.pages.append(written)
        else:
            self.freed.append(self.pages[page][:2])
            self.pages[page] = written
        return blocks * BLOCK

    def checkpoint(self) -> None:
        os.fsync(self.file)
        for first, blocks in self.freed:
            heapq.heappush(self.free[blocks], first)
        self.freed = []

    def wrong(self) -> int:
        """Pages that do not read as they were written."""
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        return sum(os.pread(self.file, blocks * BLOCK, first * BLOCK) != self.noise.piece(start, blocks * BLOCK)
                   for first, blocks, start in self.pages)


class Documents:
    """A collection, its index, the history of overwritten documents, and the journal."""

    def __init__(self, root: Path, size: int, preallocated: bool) -> None:
        (root / "db/journal").mkdir(parents=True)
        self.root, self.told, noise = root / "db", Told(), Noise()
        self.journal = Journal(self.root / "journal", noise, self.told, preallocated)
        # Pages of up to 32 KiB, and of up to 16 KiB.
        self.collection = Pages(self.root / "collection-0-1.wt", noise, self.told, 8)
        self.index = Pages(self.root / "index-1-1.wt", noise, self.told, 4)
        self.history = Pages(self.root / "WiredTigerHS.wt", noise, self.told, 2)
        self.documents, self.since = 0, 0
        self.every = max(JOURNAL // 2, size // CHECKPOINTS)

    def commit(self) -> int:
        """A group of documents goes to the journal; its bytes."""
        size = sum(random.randrange(KIB, 4 * KIB) for _ in range(GROUP))
        self.journal.write(size)
        self.documents += GROUP
        self.since += size
        return size

    def insert(self, size: int) -> None:
        """Fills the collection and its index."""
        committed = filled = 0
        while committed < size:
            committed += self.commit()
            while filled < committed:
                filled += self.collection.write()
                if len(self.collection.pages) % 2 == 0:
                    filled += self.index.write()
            if self.since > self.every:
                self.checkpoint()

    def update(self, size: int) -> None:
        """Documents of skewed popularity are overwritten: their pages, at the next checkpoint."""
        committed, dirty = 0, set()
        while committed < size:
            committed += self.commit()
            dirty.update(int(random.random() ** 2 * len(self.collection.pages)) for _ in range(GROUP))
            if self.since > self.every:
                for page in sorted(dirty):
                    self.collection.write(page)
                    if page % 4 == 0:
                        self.index.write(page // 2 % len(self.index.pages))
                    if page % 8 == 0:
                        self.history.write(page % HISTORY if len(self.history.pages) > HISTORY else None)
                dirty.clear()
                self.checkpoint()

    def checkpoint(self) -> None:
        """The files are synced, the turtle file records that, and the journal before it goes."""
        for file in (self.collection, self.index, self.history):
            file.checkpoint()
        turtle = self.root / "WiredTiger.turtle.set"
        with open(turtle, "wb") as file:
            file.write(b"checkpoint %d\n" % self.documents)
            file.flush()
            os.fsync(file.fileno())
        turtle.rename(self.root / "WiredTiger.turtle")
        self.journal.checkpoint()
        self.since = 0


def document(root: Path, size: int, preallocated: bool) -> int:
    """Fills a collection of this size with documents, then overwrites as much."""
    store = Documents(root, size, preallocated)
    store.insert(size)
    store.update(size)
    store.checkpoint()
    # The written part of the last file of the journal.
    store.told.end(journal=store.journal.at)
    return store.collection.wrong() + store.index.wrong() + store.history.wrong()


class Cache:
    """One preallocated file: regions, which are overwritten whole in turn, then a sixteenth for buckets of 4 KiB. Direct, as
    Navy writes."""

    def __init__(self, root: Path, size: int) -> None:
        (root / "cache").mkdir()
        self.file = os.open(root / "cache/navy", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        os.posix_fallocate(self.file, 0, size)
        self.regions = range(0, regions_of(size), REGION)
        self.buckets = range(regions_of(size), size, BLOCK)
        self.noise, self.told, self.large = Noise(), Told(), []
        # Start of the noise, by the place written.
        self.written: dict[int, int] = {}

    def write(self, at: int, size: int, took: list[float]) -> None:
        start = self.noise.start(size)
        began = time.monotonic()
        os.pwrite(self.file, self.noise.piece(start, size), at)
        took.append(time.monotonic() - began)
        self.told.written += size
        self.written[at] = start

    def turn(self) -> None:
        """Writes all regions, and buckets meanwhile."""
        for region in self.regions:
            for at in range(region, region + REGION, PIECE):
                self.write(at, PIECE, self.large)
            for _ in range(BUCKETS_OF_REGION):
                self.write(random.choice(self.buckets), BLOCK, self.told.took)

    def wrong(self) -> int:
        """Writes that do not read as they were written."""
        into, wrong = mmap.mmap(-1, PIECE), 0
        for at, start in self.written.items():
            size = PIECE if at < self.buckets.start else BLOCK
            os.preadv(self.file, [memoryview(into)[:size]], at)
            wrong += into[:size] != self.noise.piece(start, size)
        return wrong


def regions_of(size: int) -> int:
    """Bytes of a cache's regions."""
    return size * 15 // 16 // REGION * REGION


def cache(root: Path, size: int) -> int:
    """Writes all regions of a cache of this size, again and again."""
    store = Cache(root, size)
    for _ in range(TURNS):
        store.turn()
    os.fsync(store.file)
    store.told.end(buckets=store.buckets.start, **{f"region {name}": value for name, value in percentiles(store.large).items()})
    return store.wrong()


if __name__ == "__main__":
    random.seed(1)
    directory, length = Path(sys.argv[2]), int(sys.argv[3])
    wrong = document(directory, length, sys.argv[4] == "yes") if sys.argv[1] == "document" else cache(directory, length)
    if wrong:
        sys.exit(f"{wrong} of its writes do not read as they were written")
