"""Loads of `ordinary` that are made of files: long and short writes, archives and repositories, small files in numbers."""

from __future__ import annotations

import sys
from pathlib import Path

from braidbench import metadata, sides
from braidbench.evaluation import MIB
from braidbench.host import run
from braidbench.ordinary_bench import TIMEOUT_S, Bench, Load, Row

TREE, CRATE = (Path(__file__).with_name(name) for name in ("tree.py", "crate.py"))
SMALL_FILE_LEN = 100
APPEND_LEN = 100

WRITE_CLOSED = Row("4 KiB buffered writes, until the file is closed", "MiB/s")
WRITE_SYNCED = Row("4 KiB buffered writes, until the file is synced", "MiB/s")
APPEND = Row(f"appends of {APPEND_LEN} bytes", "/s")
UNPACK, PACK = Row("tar: unpack", "s"), Row("tar: pack what was unpacked", "s")
CLONE, STATUS = Row("git clone", "s"), Row("git status, five times", "s")
BUILD = Row("cargo build", "s")
VARMAIL, FILESERVER = Row("varmail-like", "/s"), Row("fileserver-like", "/s")


def _write(bench: Bench, side: sides.Side) -> None:
    # Not fio: its clock stops before the file is closed, which is when some write back.
    size, path = bench.work.write, side.root / "written"
    for row, end in ((WRITE_CLOSED, ()), (WRITE_SYNCED, ("conv=fsync",))):
        seconds = bench.seconds(side, row, "dd", "if=/dev/zero", f"of={path}", "bs=4k", f"count={size // 4096}", *end)
        bench.put(side, row, size / MIB / seconds)
        run("rm", "-f", path)
        bench.settle(side)


def _append(bench: Bench, side: sides.Side) -> None:
    count = bench.work.appends
    seconds = bench.seconds(side, APPEND, "dd", "if=/dev/zero", f"of={side.root / 'log'}", f"bs={APPEND_LEN}",
                            f"count={count}", "oflag=append", "conv=notrunc")
    bench.put(side, APPEND, count / seconds)


def _tar(bench: Bench, side: sides.Side) -> None:
    archive, again = bench.archive(), bench.host.work / "packed.tar"
    run("mkdir", side.root / "unpacked")
    bench.put(side, UNPACK, bench.seconds(side, UNPACK, "tar", "-xf", archive, "-C", side.root / "unpacked"))
    try:
        # Into a file, because tar reads nothing if its output is /dev/null.
        bench.put(side, PACK, bench.seconds(side, PACK, "tar", "-cf", again, "-C", side.root / "unpacked", "."))
    finally:
        again.unlink(missing_ok=True)


def _git(bench: Bench, side: sides.Side) -> None:
    clone = side.root / "clone"
    # As from another machine: objects are sent and indexed, not copied or linked.
    bench.put(side, CLONE, bench.seconds(side, CLONE, "git", "clone", "--quiet", "--no-local", bench.repository(), clone))
    status = f'for _ in 1 2 3 4 5; do git -C "{clone}" status --porcelain || exit; done'
    bench.put(side, STATUS, bench.seconds(side, STATUS, "sh", "-c", status))


def _cargo(bench: Bench, side: sides.Side) -> None:
    crate = side.root / "crate"
    run(sys.executable, CRATE, crate, bench.work.modules)
    bench.put(side, BUILD, bench.seconds(side, BUILD, "cargo", "build", "--quiet", "--offline", "--manifest-path",
                                         crate / "Cargo.toml", "--target-dir", crate / "target"))


def _mail(row: Row):
    load = row.text.removesuffix("-like")

    def action(bench: Bench, side: sides.Side) -> None:
        with bench.counted(side, row):
            told = metadata.run_load(bench.host, load, side, bench.work.mail_files, bench.work.mail_loops)
        bench.put(side, row, told["operations"] / told["seconds"])
    return action


def _small(name: str) -> tuple[Row, ...]:
    return (Row(f"{name}: create", "/s"), Row(f"{name}: ls -l", "s"), Row(f"{name}: ls -l, kernel's caches dropped", "s"),
            Row(f"{name}: read", "/s"), Row(f"{name}: remove", "/s"))


DIRECTORY, MANY = _small("one directory"), _small("tree")


def _files(bench: Bench, side: sides.Side, rows: tuple[Row, ...], directories: int, each: int) -> None:
    create, warm, cold, read, remove = rows
    root, count = side.root / "small", directories * each
    # Written into /dev/null, which ls does not treat in a way of its own, as tar would.
    walk = ("ls", "-lR", root)
    bench.put(side, create, count / bench.seconds(side, create, sys.executable, TREE, root, directories, each, SMALL_FILE_LEN))
    run(*walk, timeout=TIMEOUT_S, discard_output=True)
    bench.put(side, warm, bench.seconds(side, warm, *walk))
    bench.forget(side)
    bench.put(side, cold, bench.seconds(side, cold, *walk))
    bench.put(side, read, count / bench.seconds(side, read, "find", root, "-type", "f", "-exec", "cat", "{}", "+"))
    bench.put(side, remove, count / bench.seconds(side, remove, "rm", "-r", root))


def _directory(bench: Bench, side: sides.Side) -> None:
    _files(bench, side, DIRECTORY, 1, bench.work.flat)


def _tree(bench: Bench, side: sides.Side) -> None:
    directories = bench.work.tree_directories
    _files(bench, side, MANY, directories, bench.work.tree // directories)


WRITES = [Load("write", (WRITE_CLOSED, WRITE_SYNCED), _write), Load("append", (APPEND,), _append)]
TOOLS = [
    Load("git", (CLONE, STATUS), _git, ("git",), "git"),
    Load("tar", (UNPACK, PACK), _tar),
    Load("cargo", (BUILD,), _cargo, ("cargo",), "cargo"),
]
SMALL = [
    Load("varmail", (VARMAIL,), _mail(VARMAIL)),
    Load("fileserver", (FILESERVER,), _mail(FILESERVER)),
    Load("directory", DIRECTORY, _directory),
    Load("tree", MANY, _tree),
]
