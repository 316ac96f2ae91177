"""Makes a huge sparse file and keeps it open: `sparse.py PATH SIZE WRITES`. Says `ready` when the writes are
synced, then waits for the end of its standard input."""

import os
import random
import sys


def main() -> None:
    path, size, writes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    place = random.Random(1)
    block = b"b" * 4096
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(descriptor, size)
    for _ in range(writes):
        os.pwrite(descriptor, block, place.randrange(size // 4096) * 4096)
    os.fsync(descriptor)
    print("ready", flush=True)
    sys.stdin.read()
    os.close(descriptor)


if __name__ == "__main__":
    main()
