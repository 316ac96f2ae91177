#!/usr/bin/env python3
"""Keys and values of Braid beside one file for each value and RocksDB, on one file system
(LabStor, figure 9b): a value is put under a new key, read, and put once more, by one
thread, in microseconds.

Each repetition has all sides, in an order of its own, each on a fresh directory or image.
Only a side's own syncs are made: a put of a Braid volume waits until its value is durable. Prints
medians, and writes all raw results as JSON. Needs root, and db_bench (Debian package
rocksdb-tools). """

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile

SIZES = {100: 5_000, 1024: 5_000, 16_384: 1_000, 1_048_576: 40}
SIDES = ["library", "direct", "log", "log-16", "log-session", "volume", "volume-16", "volume-session", "files-ext4", "files-log", "files-volume", "rocksdb"]


def run(*words):
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.stdout.decode()


class Mounted:
    """A Braid file system with a socket for values, while the block runs."""

    def __init__(self, braid, what, work):
        self.braid, self.what, self.work = braid, what, work
        self.mount, self.socket = os.path.join(work, "m"), os.path.join(work, "kv.sock")

    def __enter__(self):
        os.mkdir(self.mount)
        flags = ["--runtime", "--kv", f"unix:{self.socket}", "--log-file", os.path.join(self.work, "daemon.log")]
        if self.what == "log":
            image = os.path.join(self.work, "fs")
            run(self.braid, "log", "create", image, "--size", "1GiB")
            run(self.braid, "log", "mount", *flags, image, self.mount)
        else:
            tiers = []
            for tier in ["fast", "slow"]:
                os.mkdir(os.path.join(self.work, tier))
                tiers += ["--tier", f"{tier}={self.work}/{tier}"]
            run(self.braid, "mount", "--create", "--no-measure", *flags, *tiers, self.mount)
        return self

    def __exit__(self, *_):
        run(self.braid, "umount", self.mount)


def direct(braid, work, size, count):
    """A stack that the program carries out itself, by `braid bench runtime`; nothing is put again."""
    stack = os.path.join(work, "values.yaml")
    run(braid, "log", "create", os.path.join(work, "fs"), "--size", "1GiB")
    with open(stack, "w", encoding="utf-8") as file:
        file.write("exec: direct\nstack: { log: { device: fs } }\n")

    def mean_us(load):
        said = run(braid, "bench", "runtime", stack, "--through", "direct", "--load", load, "--size", str(size),
                   "--file", str(size * count), "--seconds", "0.1", "--json")
        return json.loads(said)["mean_ns"] / 1000

    return {"put_us": mean_us("put"), "get_us": mean_us("get"), "again_us": None}


def rocksdb(work, size, count):
    text = run(
        "db_bench", "--benchmarks=fillrandom,readrandom,overwrite", f"--num={count}", f"--value_size={size}",
        "--key_size=16", "--threads=1", "--compression_type=none", f"--db={work}/db",
    )
    micros = dict(re.findall(r"^(\w+)\s*:\s*([\d.]+) micros/op", text, re.M))
    return {"put_us": float(micros["fillrandom"]), "get_us": float(micros["readrandom"]),
            "again_us": float(micros["overwrite"])}


def measure(side, size, count, args):
    with tempfile.TemporaryDirectory(dir=args.dir) as work:
        def values(*words):
            return json.loads(run(args.values, *words[:2], str(size), str(count), *words[2:]))

        kind, _, rest = side.partition("-")
        if kind == "library":
            return values("library", os.path.join(work, "fs"))
        if kind == "direct":
            return direct(args.braid, work, size, count)
        if kind == "rocksdb":
            return rocksdb(work, size, count)
        if side == "files-ext4":
            return values("files", work)
        with Mounted(args.braid, rest if kind == "files" else kind, work) as mounted:
            if kind == "files":
                return values("files", mounted.mount)
            if rest == "session":
                return values("session", mounted.mount)
            return values("redis", mounted.socket, rest or "1")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--braid", default="target/release/braid")
    parser.add_argument("--values", required=True, help="the program of cargo bench -p braid-log --bench values")
    parser.add_argument("--dir", default="/var/tmp", help="where everything is")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--volume-count", type=int, default=60, help="most values on a volume, which syncs each")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--out", help="a file for all that was seen, as JSON")
    args = parser.parse_args()
    args.braid, args.values = os.path.abspath(args.braid), os.path.abspath(args.values)
    if not shutil.which("db_bench"):
        parser.error("db_bench is missing: apt-get install rocksdb-tools")
    seen, sides = [], args.sides.split(",")
    for rep in range(args.reps):
        for size, count in SIZES.items():
            random.Random(rep * 1000 + size).shuffle(sides)
            for side in sides:
                few = min(count, args.volume_count) if side.startswith("volume") else count
                seen.append({"rep": rep, "side": side, "bytes": size, **measure(side, size, few, args)})
                print(json.dumps(seen[-1]), flush=True)
    for size in SIZES:
        for side in args.sides.split(","):
            ones = [one for one in seen if one["side"] == side and one["bytes"] == size]
            medians = {what: statistics.median(one[f"{what}_us"] for one in ones)
                       for what in ["put", "get", "again"] if ones[0][f"{what}_us"] is not None}
            print(f"{size} bytes, {side}: " + ", ".join(f"{what} {time:.1f}" for what, time in medians.items()) + " us")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as out:
            settings = {name: vars(args)[name] for name in ["dir", "reps", "volume_count", "sides"]}
            json.dump({"settings": settings, "seen": seen}, out, indent=1)


if __name__ == "__main__":
    main()
