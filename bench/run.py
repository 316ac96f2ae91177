#!/usr/bin/env python3
"""Runs Braid's benchmarks: `sudo bench/run.py SCENARIO`. docs/benchmarks.md and docs/evaluation.md
describe them."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent

from braidbench import (applications, bandwidth, capacity, change, evaluation, hot, joining, memory, metadata,  # noqa: E402
                        misplaced, model, monitor, native, ordinary, overhead, plots, recovery, render, seesaw, shared,
                        stream, sync, zoned)
from braidbench.devices import Limit  # noqa: E402
from braidbench.host import BenchError, Host, describe, stale_runs, sweep  # noqa: E402
from braidbench.report import Report  # noqa: E402

EVALUATION = {"bandwidth": bandwidth, "misplaced": misplaced, "seesaw": seesaw, "joining": joining, "model": model,
              "shared": shared, "change": change, "hot": hot, "capacity": capacity, "native": native, "monitor": monitor, "metadata": metadata,
              "applications": applications}
SCENARIOS = {"stream": stream, "overhead": overhead, "ordinary": ordinary, "memory": memory, "sync": sync,
             "recovery": recovery, "zoned": zoned, **EVALUATION}
# Where the devices' backing files go, unless the scenario says.
WORK_DIR = Path("/var/tmp")
NEEDED = ["fio", "losetup", "mount", "umount", "mkfs.ext4", "mkfs.xfs"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Braid's benchmarks. Root, Linux, fio 3.x.")
    parser.add_argument("scenario", nargs="?", choices=[*SCENARIOS, "plot", "render"],
                        help="what to measure; --list explains. `plot DIR…` draws kept runs, `render DIR…` puts them "
                             "into the document")
    parser.add_argument("directories", nargs="*", type=Path, metavar="DIR", help="plot, render: the runs")
    parser.add_argument("--document", type=Path, default=ROOT.parent / "docs/evaluation.md",
                        help="render: where they go (default docs/evaluation.md)")
    parser.add_argument("--tables", metavar="TEXT", help="render: only the tables whose titles begin so, like Summary, and no "
                        "plots")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parser.add_argument("--sweep", action="store_true", help="remove what killed runs left behind, and end")
    parser.add_argument("--quick", action="store_true", help="small work and one repetition: is everything there?")
    parser.add_argument("--reps", type=int, help="repetitions (default 3)")
    parser.add_argument("--out", type=Path, help="where results go (default bench/raw/DATE-SCENARIO)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--braid", type=Path, default=ROOT.parent / "target/release/braid", help="the braid to measure")
    parser.add_argument("--work-dir", type=Path,
                        help=f"where the devices' backing files go (default {WORK_DIR}; ordinary: {ordinary.WORK_DIR})")
    parser.add_argument("--sides", type=_names, help="only these sides, comma-separated")
    parser.add_argument("--cells", type=_names, help="only these parts: of overhead like a,c; of ordinary, zoned and the "
                        "evaluation's scenarios by name")
    parser.add_argument("--variants", type=_names, help="stream: only these of direct,extending,buffered; sync: of bytes,iops")
    parser.add_argument("--size", type=_size, help="bytes of the work, like 1G: of stream, of ordinary's writes, of zoned's "
                        "document and cache, and of the evaluation's scenarios")
    parser.add_argument("--files", type=int, help="memory, ordinary: files in the tree (default 1,000,000)")
    parser.add_argument("--flat", type=int, help="ordinary: files in the one directory (default 200,000)")
    parser.add_argument("--caches", type=_names, help="ordinary: Braid's sides, once with each of these as `braid mount "
                        f"--cache`; {ordinary.DEFAULT_CACHE}: without that flag, which is the default")
    parser.add_argument("--volumes", type=_counts, help="recovery: files in the volumes (default 1000,100000,1000000)")
    parser.add_argument("--keys", type=int, default=0, help="zoned: keys that RocksDB gets (default 5,000,000)")
    parser.add_argument("--zones", type=int, default=66, help="zoned: zones of RocksDB's device (default 66)")
    parser.add_argument("--fast", type=_limit, default="200/400", help="fast tier, MB/s written/read (default 200/400)")
    parser.add_argument("--slow", type=_limit, default="60/120", help="slow tier, MB/s written/read (default 60/120)")
    parser.add_argument("--fast-fs", default="ext4", choices=["ext4", "xfs", "btrfs"])
    parser.add_argument("--slow-fs", default="xfs", choices=["ext4", "xfs", "btrfs"])
    evaluation.add_arguments(parser, _limit, _names)
    args = parser.parse_args()
    if not (args.list or args.sweep or args.scenario):
        parser.error("name a scenario, or use --list")
    if bool(args.directories) != (args.scenario in ("plot", "render")):
        parser.error("`plot` and `render` need at least one directory, and nothing else takes any")
    if args.reps is not None and args.reps < 1:
        parser.error("--reps: at least 1")
    args.reps = args.reps or (1 if args.quick else 3)
    args.braid = args.braid.resolve()
    args.work_dirs = [args.work_dir] if args.work_dir else [WORK_DIR, ordinary.WORK_DIR]
    args.work_dir = args.work_dir or getattr(SCENARIOS.get(args.scenario), "WORK_DIR", WORK_DIR)
    return args


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _counts(text: str) -> list[int]:
    return [int(word) for word in _names(text)]


def _size(text: str) -> int:
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    size = int(text[:-1] if unit > 1 else text) * unit
    if size < 2**20 or size % 2**20:
        raise argparse.ArgumentTypeError("a multiple of 1 MiB")
    return size


def _limit(text: str) -> Limit:
    try:
        return Limit.parse(text)
    except BenchError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def refuse_unless_possible(work_dir: Path) -> None:
    """Ends with the reason where the benchmarks cannot run at all."""
    if os.geteuid() != 0:
        sys.exit("bench/run.py makes loop devices, file systems and a control group: run it as root (sudo bench/run.py …)")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}. On Debian: apt install fio xfsprogs e2fsprogs btrfs-progs mergerfs")
    if not work_dir.is_dir():
        sys.exit(f"--work-dir {work_dir}: not a directory")


def main() -> int:
    args = parse()
    if args.list:
        print("\n".join(f"{name:12} {module.SUMMARY}" for name, module in SCENARIOS.items()))
        return 0
    if args.directories:
        try:
            show(args)
        except (BenchError, OSError) as error:
            sys.exit(f"{args.scenario}: {error}")
        return 0
    if args.estimate:
        return estimate(args)
    refuse_unless_possible(args.work_dir)
    if args.sweep:
        for path in stale(args.work_dirs):
            print(f"removing {path}")
            sweep(path)
        return 0
    if stale(args.work_dirs):
        print("note: a killed run left devices or mounts behind; `bench/run.py --sweep` removes them", file=sys.stderr)
    return measure(args)


def estimate(args: argparse.Namespace) -> int:
    """Says how long a run would take."""
    try:
        if args.scenario != "bandwidth":
            raise BenchError("--estimate is for bandwidth")
        print(bandwidth.plan_of(args)[1])
    except BenchError as error:
        sys.exit(f"{args.scenario}: {error}")
    return 0


def stale(work_dirs: list[Path]) -> list[Path]:
    """The leftovers of killed runs in any of the directories."""
    return [path for directory in work_dirs for path in stale_runs(directory)]


def show(args: argparse.Namespace) -> None:
    """Draws runs that were kept, below their own directories or into the document."""
    if args.scenario == "render":
        render.render(args.directories, args.document, print, args.tables)
        return
    for directory in args.directories:
        for path in plots.draw(directory, directory / "plots"):
            print(path)


def measure(args: argparse.Namespace) -> int:
    """Runs the chosen scenario and shows and keeps all results, also when it ends early."""
    directory = args.out or ROOT / "raw" / f"{time.strftime('%Y%m%d-%H%M%S')}-{args.scenario}"
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    args.progress = lambda text: print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)
    braid = args.braid if args.braid.exists() else None
    report = Report(args.scenario, describe(braid), {"quick": args.quick}, directory)
    status = 1
    with Host(args.work_dir) as host:
        report.machine["throttle"] = f"cgroup v{host.group.version}" if host.throttled else host.group.reason
        try:
            SCENARIOS[args.scenario].measure(host, report, args, directory / "fio")
            status = 0
        except (BenchError, OSError) as error:
            print(f"{args.scenario}: {error}", file=sys.stderr)
            report.remarks.append(f"ended early: {error}")
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            report.remarks.append("interrupted: incomplete")
            status = 130
        finally:
            report.explain_failures()
            report.remarks += host.warnings
            report.machine["load_at_end"] = round(os.getloadavg()[0], 2)
            keep_logs(host, directory)
    kept = report.save()
    print(report.render(args.markdown))
    print(f"\nkept: {kept}")
    return status


def keep_logs(host: Host, directory: Path) -> None:
    """Keeps the servers' logs, unless they are empty."""
    for log in host.work.glob("*.log"):
        if log.stat().st_size:
            shutil.copy(log, directory / log.name)


if __name__ == "__main__":
    sys.exit(main())
