"""Files of a mount, made or in use. `inuse.py make ROOT FIRST COUNT SIZE` makes files; `inuse.py hold ROOT COUNT LEN`
appends to as many and overwrites their first bytes, syncs nothing, says `ready`, and keeps them open until the end
of its standard input. A program of its own, so that a hanging mount cannot hang the runner."""

import os
import sys

DIRECTORY_LEN = 1000


def path_of(root: str, number: int) -> str:
    return f"{root}/{number // DIRECTORY_LEN}/s.{number}"


def make(root: str, first: int, count: int, size: int) -> None:
    half = os.urandom(size // 2)
    for number in range(first, first + count):
        os.makedirs(f"{root}/{number // DIRECTORY_LEN}", exist_ok=True)
        with open(path_of(root, number), "wb", buffering=0) as file:
            # In one write, all of it would get one place.
            file.write(half)
            file.write(half)


def hold(root: str, count: int, length: int) -> None:
    descriptors = [os.open(path_of(root, number), os.O_RDWR) for number in range(count)]
    for descriptor in descriptors:
        os.pwrite(descriptor, b"h" * 4096, 0)
        os.pwrite(descriptor, b"h" * length, os.fstat(descriptor).st_size)
    print("ready", flush=True)
    sys.stdin.read()


def main() -> None:
    what, root, *numbers = sys.argv[1:]
    {"make": make, "hold": hold}[what](root, *map(int, numbers))


if __name__ == "__main__":
    main()
