"""Makes a tree of files: `tree.py ROOT DIRECTORIES FILES_PER_DIRECTORY [SIZE]`, empty unless SIZE is given.
Run as a program of its own, so that a hanging mount cannot hang the runner."""

import os
import sys


def main() -> None:
    root, directories, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    content = b"t" * int(sys.argv[4] if len(sys.argv) > 4 else 0)
    os.makedirs(root)
    for d in range(directories):
        os.mkdir(f"{root}/{d}")
        for f in range(files):
            descriptor = os.open(f"{root}/{d}/f.{f}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            if content:
                os.write(descriptor, content)
            os.close(descriptor)


if __name__ == "__main__":
    main()
