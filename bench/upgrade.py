#!/usr/bin/env python3
"""Upgrades of a mounted volume, log file system or view (--on) under load, of the program or of a
module, or crashes of the program (--of crash, kill -9): how long operations are held up, and what
that costs in total, beside the same load without them (LabStor, table 1).

The load is fixed work: fio writes and verifies with checksums, SQLite commits, and files
are made, renamed and removed; beside crashes, all that would show if it were done twice or not at
all: appended lines, exchanged names, links, attributes, files without a name; with --sessions, also by requests through the runtime. Each repetition runs it once without and once with
upgrades, which go back and forth between two copies of the program, or of a module (--of module;
it is the template in C). Prints medians, and
writes all that it saw as JSON.
"""

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import time

FORK = multiprocessing.get_context("fork")


def fio(mount, size):
    os.makedirs(f"{mount}/fio", exist_ok=True)
    subprocess.run(
        ["fio", "--name=verify", f"--directory={mount}/fio", "--rw=randwrite", "--bs=16k", f"--size={size}",
         "--numjobs=2", "--loops=3", "--verify=crc32c", "--verify_fatal=1", "--ioengine=psync", "--thread"],
        check=True, stdout=subprocess.DEVNULL, cwd=os.path.dirname(mount))


def sqlite(mount, commits):
    with contextlib.closing(sqlite3.connect(f"{mount}/database", isolation_level=None)) as database:
        commit(database, commits)


def commit(database, commits):
    database.execute("create table t (k integer primary key, v text)")
    for number in range(commits):
        database.execute("begin")
        for _ in range(5):
            row = (random.randrange(2000), "x" * random.randrange(500))
            database.execute("insert or replace into t values (?, ?)", row)
        database.execute("commit")
        if number % 200 == 0:
            assert database.execute("pragma integrity_check").fetchone()[0] == "ok"


def names(mount, rounds):
    directory = f"{mount}/names"
    os.mkdir(directory)
    for number in range(rounds):
        one, other = f"{directory}/a{number % 50}", f"{directory}/b{number % 50}"
        with open(one, "w") as file:
            file.write(str(number))
        os.rename(one, other)
        os.mkdir(one)
        assert open(other).read() == str(number)
        os.rmdir(one)
        os.unlink(other)


def exchange(one, other):
    """renameat2(2) with RENAME_EXCHANGE."""
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, one.encode(), -100, other.encode(), 2):
        raise OSError(ctypes.get_errno(), "renameat2")


def name(descriptor, path):
    """Gives a name to a file without one: linkat(2) with AT_SYMLINK_FOLLOW."""
    if ctypes.CDLL(None, use_errno=True).linkat(-100, f"/proc/self/fd/{descriptor}".encode(), -100, path.encode(), 0x400):
        raise OSError(ctypes.get_errno(), "linkat")


def deeds(mount, rounds):
    """Operations whose result is wrong if one is done twice, or not at all."""
    directory = f"{mount}/deeds"
    os.mkdir(directory)
    logs = [os.open(f"{directory}/{log}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | how)
            for log, how in (("log", 0), ("direct", os.O_DSYNC))]
    try:
        deed_by_deed(directory, logs, rounds)
    finally:
        for log in logs:
            os.close(log)


def deed_by_deed(directory, logs, rounds):
    one, other = f"{directory}/one", f"{directory}/other"
    for number, path in enumerate((one, other)):
        with open(path, "w") as file:
            file.write(str(number))
    for number in range(rounds):
        for file in logs:
            assert os.write(file, f"{number:08}\n".encode()) == 9
        exchange(one, other)
        assert open(one).read() == str((number + 1) % 2), f"exchanged twice in round {number}"
        os.link(one, f"{directory}/link")
        assert os.stat(one).st_nlink == 2
        os.symlink("link", f"{directory}/symbolic")
        os.unlink(f"{directory}/symbolic")
        os.setxattr(one, "user.round", b"x", os.XATTR_CREATE)
        os.removexattr(one, "user.round")
        os.unlink(f"{directory}/link")
        removed = os.open(f"{directory}/removed", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.write(removed, b"still there")
        os.unlink(f"{directory}/removed")
        assert os.pread(removed, 20, 0) == b"still there"
        os.close(removed)
        nameless = os.open(directory, os.O_RDWR | os.O_TMPFILE)
        os.write(nameless, b"no name")
        name(nameless, f"{directory}/named")
        os.close(nameless)
        assert open(f"{directory}/named").read() == "no name"
        os.unlink(f"{directory}/named")
        assert sorted(os.listdir(directory)) == ["direct", "log", "one", "other"]
    for log in ("log", "direct"):
        with open(f"{directory}/{log}") as file:
            assert file.read().split() == [f"{number:08}" for number in range(rounds)], f"{log}: lost or twice"


def sessions(mount, args, seconds):
    """The same through the runtime: the output of braid bench runtime."""
    said = subprocess.run(
        [args.braid, "bench", "runtime", mount, "--load", "deeds", "--clients", str(args.sessions), "--file", "4MiB",
         "--seconds", str(seconds), "--pause", str(args.session_pause), "--json"], capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"sessions: {said.stderr}")
    return json.loads(said.stdout)


class Place:
    """What is mounted: how it is made, mounted by flags, and checked at the end."""

    def __init__(self, args, root):
        tiers = ["--tier", f"fast={root}/fast", "--tier", f"slow={root}/slow"]
        self.made, self.mount, self.of, self.below = [], ["mount", "--create"], tiers, []
        self.check = ["fsck", *tiers]
        if args.on == "log":
            self.made = [["log", "create", f"{root}/device", "--size", "4GiB"]]
            self.mount, self.of, self.check = ["log", "mount"], [f"{root}/device"], ["log", "check", f"{root}/device"]
        if args.on == "view":
            os.makedirs(f"{root}/below")
            with open(f"{root}/view.yaml", "w") as stack:
                stack.write(f"stack: {{ view: {{ of: {root}/below }} }}\n")
            self.made = [["mount", "--create", "--runtime", *tiers, f"{root}/below"]]
            self.mount, self.of, self.below = ["mount"], [f"{root}/view.yaml"], [f"{root}/below"]


def copies(args, root, place):
    """Two copies of the upgraded program or module, and the words of the mount."""
    braid, mount = os.path.abspath(args.braid), f"{root}/mount"
    words_of_sessions = ["--runtime"] if args.sessions else []
    words = [*place.mount, "--transport", args.transport, *words_of_sessions, *args.flags.split()]
    if args.of == "crash":
        # Both sides, so that only the crashes differ.
        return [], [braid, *words, "--restart", "--log-file", f"{root}/log", *place.of, mount]
    if args.of == "program":
        programs = [f"{root}/braid-{number}" for number in range(2)]
        for program in programs:
            shutil.copy(braid, program)
        return [[program, "upgrade"] for program in programs], [programs[0], *words, *place.of, mount]
    os.makedirs(f"{root}/modules")
    with open(f"{root}/modules/braid_module.h", "w") as header:
        subprocess.run([braid, "module", "header"], check=True, stdout=header)
    template = os.path.join(os.path.dirname(__file__), "../crates/sdk/templates/c/keep.c")
    for name in ("keep", "other"):
        subprocess.run(["gcc", "-O2", "-fPIC", "-shared", f"-I{root}/modules", "-o", f"{root}/modules/{name}.so",
                        template], check=True)
    with open(f"{root}/stack.yaml", "w") as stack:
        stack.write(f"stack: {{ keep: {{ suffix: .keep, volume: {{ home: fast, tiers: {{ fast: {{ dir: {root}/fast }}, "
                    f"slow: {{ dir: {root}/slow }} }} }} }} }}\n")
    os.environ["XDG_CONFIG_HOME"] = f"{root}/config"
    subprocess.run([braid, "module", "repo", "add", f"{root}/modules"], check=True)
    upgrade = [braid, "module", "upgrade", "keep", "--to"]
    return ([[*upgrade, f"{root}/modules/{name}.so"] for name in ("keep", "other")],
            [braid, *words, f"{root}/stack.yaml", mount])


def status(args, mount):
    said = subprocess.run([args.braid, "status", "--json", mount], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return json.loads(said.stdout)


def crash(args, mount):
    """Kills the process that serves the mount; the milliseconds until another one does."""
    before = status(args, mount)
    os.kill(before["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        # The one that ends may hang up.
        with contextlib.suppress(subprocess.CalledProcessError):
            after = status(args, mount)
            if after["pid"] != before["pid"]:
                return after["restarts"]["paused_ns"] / 1e6
    raise RuntimeError("no process goes on")


def guarded(results, mount, work, *arguments):
    """A load, in a process of its own: threads would wait for the interpreter's lock, also that of
    the upgrades."""
    try:
        results.put((None, work(mount, *arguments)))
    except Exception as error:  # each of them fails the run
        results.put((repr(error), None))


def run(args, upgrades):
    """The seconds that the load took, and the pauses in milliseconds."""
    root = f"{args.work_dir}/upgrade"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("fast", "slow", "mount"):
        os.makedirs(f"{root}/{name}")
    mount = f"{root}/mount"
    place = Place(args, root)
    for made in place.made:
        subprocess.run([args.braid, *made], check=True, stdout=subprocess.DEVNULL)
    commands, mounting = copies(args, root, place)
    subprocess.run(mounting, check=True)
    begun = time.monotonic()
    work = [(fio, args.size), (sqlite, args.commits), (names, args.rounds), *[(deeds, args.deeds)] * (args.of == "crash")]
    if args.sessions:
        work.append((sessions, args, args.upgrades * args.every + 2))
    results = FORK.SimpleQueue()
    loads = [FORK.Process(target=guarded, args=(results, mount, *load)) for load in work]
    for load in loads:
        load.start()
    pauses = []
    for number in range(upgrades):
        target = begun + (number + 1) * args.every
        time.sleep(max(0, target - time.monotonic()))
        if args.of == "crash":
            pauses.append(crash(args, mount))
            continue
        said = subprocess.run([*commands[(number + 1) % 2], "--json", mount], check=True, capture_output=True, text=True)
        pauses.append(json.loads(said.stdout)["paused_ns"] / 1e6)
    at_work = sum(load.is_alive() for load in loads)
    for load in loads:
        load.join()
    seconds = time.monotonic() - begun
    assert not any(load.exitcode for load in loads), "a load ended without a result"
    found = [results.get() for _ in loads]
    errors = [error for error, _ in found if error]
    assert not errors, errors
    for mounted in (mount, *place.below):
        subprocess.run([args.braid, "umount", mounted], check=True)
    subprocess.run([args.braid, *place.check], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root)
    return {"upgrades": upgrades, "seconds": seconds, "pauses_ms": pauses, "loads_at_the_last_upgrade": at_work,
            "sessions": [result for _, result in found if result]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", default="target/release/braid")
    parser.add_argument("--of", default="program", choices=["program", "module", "crash"])
    parser.add_argument("--on", default="volume", choices=["volume", "log", "view"], help="what is mounted")
    parser.add_argument("--work-dir", default="/dev/shm")
    parser.add_argument("--transport", default="auto", choices=["auto", "device"])
    parser.add_argument("--flags", default="", help="further flags of braid mount")
    parser.add_argument("--upgrades", type=int, default=100, help="how many, or how many crashes")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two upgrades")
    parser.add_argument("--size", default="768M")
    parser.add_argument("--commits", type=int, default=40000)
    parser.add_argument("--rounds", type=int, default=90000)
    parser.add_argument("--deeds", type=int, default=4000)
    parser.add_argument("--sessions", type=int, default=0, help="clients with sessions, beside the other loads")
    parser.add_argument("--session-pause", type=float, default=0, help="seconds between two rounds of these")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--out", help="a file for all results")
    args = parser.parse_args()
    if args.of == "module" and args.on != "volume":
        parser.error("modules are exchanged on a volume")
    results = [run(args, upgrades) for _ in range(args.reps) for upgrades in (0, args.upgrades)]
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"of": args.of, "on": args.on, "transport": args.transport, "flags": args.flags, "runs": results}, file, indent=1)
    without = statistics.median(result["seconds"] for result in results if not result["upgrades"])
    upgraded = statistics.median(result["seconds"] for result in results if result["upgrades"])
    pauses = sorted(pause for result in results for pause in result["pauses_ms"])
    print(f"{args.of} on a {args.on}, {args.transport}: {without:.1f} s without, {upgraded:.1f} s with {args.upgrades} of them: "
          f"{upgraded / without:.2f}")
    for result in results:
        for seen in result["sessions"]:
            print(f"{result['upgrades']} of them, sessions: {seen['operations']} rounds, median {seen['p50_ns'] / 1e6:.1f} ms, "
                  f"p99 {seen['p99_ns'] / 1e6:.1f} ms, longest {seen['longest_ns'] / 1e6:.1f} ms")
    at = lambda part: pauses[min(len(pauses) - 1, int(len(pauses) * part))]
    print(f"{len(pauses)} pauses, ms: median {at(0.5):.1f}, p99 {at(0.99):.1f}, longest {pauses[-1]:.1f}")


if __name__ == "__main__":
    main()
