#!/usr/bin/env python3
"""The runtime of a mount (docs/runtime.md), as four measurements:

requests  one operation at a time through the runtime, and the same through the mount, on a
          log file system and on a volume (LabStor, figure 7)
anatomy   where the time of a write of 4 KiB goes, by module (figure 4)
workers   a load that changes, with the dynamic policy beside fixed workers (figure 5a)
classes   short requests alone and beside long ones, with both schedulers (figure 8)

Sides take turns; each repetition has all of them. Prints medians, and writes all that it
saw as JSON. Needs root.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import threading
import time


class Mount:
    """A mount with a runtime while the block runs."""

    def __init__(self, braid, work, kind, runtime, modules=()):
        self.braid, self.work, self.kind, self.runtime, self.modules = braid, work, kind, runtime, modules
        self.point = os.path.join(work, "m")

    def __enter__(self):
        os.makedirs(self.point, exist_ok=True)
        flag = f"--runtime={self.runtime}" if self.runtime else "--runtime"
        log = ["--log-file", os.path.join(self.work, "log")]
        if self.kind == "log":
            image = os.path.join(self.work, "image")
            self.run("log", "create", "--force", "--size", "4GiB", image)
            self.run("log", "mount", *log, flag, image, self.point)
        else:
            home = tempfile.mkdtemp(dir=self.work)
            stack = {"volume": {"home": "all", "tiers": {"all": {"dir": home}}, "measure": False}}
            for name, settings in reversed(self.modules):
                stack = {name: {**settings, **stack}}
            path = os.path.join(self.work, "stack.yaml")
            with open(path, "w") as file:
                json.dump({"stack": stack}, file)
            self.run("mount", "--create", *log, flag, path, self.point)
        return self

    def __exit__(self, *_):
        self.run("umount", self.point)

    def run(self, *words):
        done = subprocess.run([self.braid, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise SystemExit(f"{words}: {done.stderr.decode()}")
        return done.stdout.decode()

    def measure(self, load, through="runtime", seconds=2, **flags):
        words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
        said = self.run("bench", "runtime", self.point, "--load", load, "--through", through,
                        "--seconds", str(seconds), "--json", *words)
        return json.loads(said)

    def workers(self):
        return len(json.loads(self.run("runtime", self.point, "--json"))["workers"])


def requests(args):
    """Each operation by each way."""
    seen = {}
    sides = [(kind, load, through) for kind in ("log", "volume") for load in ("stat", "create", "read", "write")
             for through in ("runtime", "mount")]
    for _ in range(args.reps):
        random.shuffle(sides)
        for kind, load, through in sides:
            with Mount(args.braid, args.work, kind, "") as mount:
                told = mount.measure(load, through, args.seconds)
            seen.setdefault(f"{kind} {load} {through}", []).append(told)
    return seen, ["operations_per_second", "p50_ns", "p99_ns"]


def anatomy(args):
    """The mean time of a write below each place of a stack, and its time for the program."""
    rule = {"rules": [{"paths": ["nowhere/**"], "uid": [54321], "deny": ["write"]}]}
    modules = [("metrics", {}), ("permissions", rule), ("metrics", {}), ("provenance", {}), ("metrics", {})]
    parts = ["permissions", "provenance", "volume"]
    seen = {}
    for _ in range(args.reps):
        with Mount(args.braid, args.work, "volume", "", modules) as mount:
            told = mount.measure("write", "runtime", args.seconds)
            status = json.loads(mount.run("status", mount.point, "--json"))
        below = []
        for module in status["modules"]:
            for figure in module["figures"]:
                if figure["name"] == "operation_seconds" and figure["labels"]["operation"] == "write":
                    histogram = figure["histogram"]
                    below.append(1e9 * histogram["sum"] / sum(count for _, count in histogram["buckets"]))
        times = {"queues and rights": told["mean_ns"] - below[0]}
        for part, time, rest in zip(parts, below, [*below[1:], 0]):
            times[part] = time - rest
        for part, time in times.items():
            seen.setdefault(part, []).append({"mean_ns": time, "share_percent": 100 * time / told["mean_ns"]})
        seen.setdefault("all", []).append({"mean_ns": told["mean_ns"], "share_percent": 100})
    return seen, ["mean_ns", "share_percent"]


def workers(args):
    """Clients come and go; each writes 4 KiB at a time, on a device that takes its time."""
    phases, seen = [1, 2, 4, 8, 4, 1], {}
    sides = {"1 worker": "workers=1,policy=round-robin", "8 workers": "workers=8,policy=round-robin",
             "dynamic": "workers=8,policy=dynamic"}
    modules = [("model", {"device": "nvme"})]
    for _ in range(args.reps):
        for name, runtime in random.sample(sorted(sides.items()), len(sides)):
            counts, over = [], threading.Event()
            with Mount(args.braid, args.work, "volume", runtime, modules) as mount:
                def sample():
                    while not over.wait(0.25):
                        counts.append(mount.workers())
                sampler = threading.Thread(target=sample)
                sampler.start()
                done = sum(mount.measure("write", "runtime", args.seconds, clients=clients)["operations"]
                           for clients in phases)
                over.set()
                sampler.join()
            seconds = len(phases) * args.seconds
            seen.setdefault(name, []).append({"operations_per_second": done / seconds,
                                              "workers": statistics.mean(counts)})
    return seen, ["operations_per_second", "workers"]


def classes(args):
    """Short requests every millisecond, alone and beside clients that write 1 MiB at a time
    through compression."""
    seen, modules = {}, [("compress", {"codec": "zstd"})]
    for _ in range(args.reps):
        for scheduler in random.sample(["noop", "blk-switch"], 2):
            runtime = f"workers=2,policy=round-robin,scheduler={scheduler},dedicated=false"
            with Mount(args.braid, args.work, "volume", runtime, modules) as mount:
                short = {"class": "latency", "pause": 0.001}
                alone = mount.measure("stat", "runtime", args.seconds, **short)
                long = subprocess.Popen(
                    [args.braid, "bench", "runtime", mount.point, "--load", "write", "--size", "1MiB",
                     "--file", "64MiB", "--clients", "2", "--class", "throughput", "--json",
                     "--seconds", str(args.seconds + 2)], stdout=subprocess.PIPE)
                time.sleep(1)
                beside = mount.measure("stat", "runtime", args.seconds, **short)
                told = json.loads(long.communicate()[0])
            seen.setdefault(f"{scheduler}, short alone", []).append(alone)
            seen.setdefault(f"{scheduler}, short beside long", []).append(beside)
            seen.setdefault(f"{scheduler}, long", []).append(told)
    return seen, ["operations_per_second", "p50_ns", "p99_ns"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("of", choices=["requests", "anatomy", "workers", "classes"])
    parser.add_argument("--braid", default="target/release/braid")
    parser.add_argument("--dir", default="/dev/shm", help="where the file systems are")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--output", help="all that was seen, as JSON")
    args = parser.parse_args()
    args.braid = os.path.abspath(args.braid)
    with tempfile.TemporaryDirectory(dir=args.dir) as args.work:
        seen, figures = {"requests": requests, "anatomy": anatomy, "workers": workers, "classes": classes}[args.of](args)
    medians = {side: {figure: statistics.median(run[figure] for run in runs) for figure in figures}
               for side, runs in sorted(seen.items())}
    for side, told in medians.items():
        print(f"{side:28} " + "  ".join(f"{figure} {value:,.1f}" for figure, value in told.items()))
    if args.output:
        with open(args.output, "w") as file:
            json.dump({"medians": medians, "runs": seen, "seconds": args.seconds}, file, indent=1)


if __name__ == "__main__":
    main()
