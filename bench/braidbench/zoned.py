"""Scenario `zoned`: RocksDB on an emulated zoned device in memory, alone and beside a program that writes and rotates logs,
and loads that no profile knows; with streams by profile, without, and learned (Reshim, figures 3 to 6). All data goes to the
zones; home has only names."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from braidbench import programs
from braidbench.host import BenchError, Host, run
from braidbench.report import Report, number

SUMMARY = "RocksDB on an emulated zoned device: throughput, latency, write amplification, with and without streams"
WORK_DIR = Path("/dev/shm")
CELLS = ["fill", "overwrite", "mixed"]
# Steps, steps a second, zones, MiB of a zone.
LOADS = {"log-store": (2000, 40, 44, 8), "spool": (8000, 100, 30, 4)}
# Times the room is written, zones, MiB of a zone.
CHURN = (100, 130, 2)
SIDES = {"streams": "{ learned: off, profiles: [ by-hand.yaml, all ] }", "no-streams": "off",
         "learned": "{ learned: on, profiles: [ ] }"}
BY_HAND = """\
name: by-hand
streams:
  segments: { files: [ "store/seg-*" ], life: short }
  old: { files: [ "store/old-*" ], life: long }
  manifest: { files: [ "store/MANIFEST-*" ], life: short }
  tmp: { files: [ "mail/*/tmp/*" ], life: short }
  new: { files: [ "mail/*/new/*" ], life: medium }
  cur: { files: [ "mail/*/cur/*" ], life: extreme }
"""
VALUE_LEN, KEY_LEN = 400, 20
ZONE_MIB, OPEN = 64, 14
MEASURED = [("operations", "/s"), ("p99", "µs"), ("p99.99", "µs"), ("written", "GB"), ("amplification", ""),
            ("moved", "MB"), ("mixed zones", ""), ("memory", "MB"), ("longest wait", "ms"), ("in use", "%"),
            ("in use at most", "%"), ("on home", "MB")]
OF_LOADS = [("seconds", "s"), ("written", "GB"), ("amplification", ""), ("moved", "MB"), ("mixed zones", ""),
            ("streams", ""), ("on home", "MB")]
OF_CHURN = [("written", "GB"), ("amplification", ""), ("gc share", "%"), ("gc time", "s"), ("waits", ""),
            ("longest wait", "ms"), ("file, median", "ms"), ("file, p99", "ms"), ("file, at most", "ms"), ("on home", "MB")]
PERCENTILES = re.compile(r"P99: ([0-9.]+) .*P99\.99: ([0-9.]+)")
STACK = """\
stack:
  volume:
    home: names
    hints: {hints}
    policy: {{ size: {{ small: 0, sync: 0, large: zones }} }}
    movers: {{ promote: false, demote: false }}
    tiers:
      names: {{ dir: names }}
      zones: {{ dir: zones }}
"""
# Writes eight logs in turn, 32 MiB each, and begins each anew, until it is killed.
LOGS = """
import os, sys
line = b"2026-01-01T00:00:00Z INFO request served in 12 ms\\n" * 1311
at = 0
while True:
    with open(os.path.join(sys.argv[1], "app.log.%d" % (at % 8)), "wb") as log:
        for _ in range(512):
            log.write(line)
    at += 1
"""


def measure(host: Host, report: Report, args, _keep: Path) -> None:
    """Runs the scenario."""
    lineup = [side for side in SIDES if not args.sides or side in args.sides]
    cells = [cell for cell in CELLS if not args.cells or cell in args.cells]
    loads = [load for load in LOADS if not args.cells or load in args.cells]
    churned = not args.cells or "churn" in args.cells
    if cells and shutil.which("db_bench") is None:
        raise BenchError("db_bench is missing (Debian: rocksdb-tools)")
    keys = args.keys or (200_000 if args.quick else 5_000_000)
    report.settings.update(keys=keys, key=KEY_LEN, value=VALUE_LEN, zones=args.zones, zone_mib=ZONE_MIB, open=OPEN)
    try:
        for repetition in range(args.reps):
            for side in lineup if repetition % 2 == 0 else reversed(lineup):
                args.progress(f"repetition {repetition + 1}/{args.reps}, {side}")
                if cells:
                    _one(host, report, args, side, cells, keys)
                for load in loads:
                    _load(host, report, args, side, load)
                if churned:
                    _churn(host, report, args, side)
    finally:
        for cell in cells:
            heads = [f"{what}, {unit}" if unit else what for what, unit in MEASURED]
            rows = [[side, *[_text(report, side, f"{cell}: {what}") for what, _ in MEASURED]] for side in lineup]
            report.table(f"RocksDB on zones, {cell}", ["side", *heads], rows)
        for load in loads:
            heads = [f"{what}, {unit}" if unit else what for what, unit in OF_LOADS]
            rows = [[side, *[_text(report, side, f"{load}: {what}") for what, _ in OF_LOADS]] for side in lineup]
            report.table(f"{load} on zones", ["side", *heads], rows)
        if churned:
            heads = [f"{what}, {unit}" if unit else what for what, unit in OF_CHURN]
            rows = [[side, *[_text(report, side, f"churn: {what}") for what, _ in OF_CHURN]] for side in lineup]
            report.table("Zones that are nine tenths full, written anew again and again", ["side", *heads], rows)


def _text(report: Report, side: str, what: str) -> str:
    median = report.cell(side, what).median
    return "" if median is None else f"{median:.2f}" if median < 10 else number(median)


def _one(host: Host, report: Report, args, side: str, cells: list[str], keys: int) -> None:
    """A new volume; the cells build on one another."""
    with _mounted(host, args.braid, side, STACK, (args.zones, ZONE_MIB)) as mount:
        for cell in cells:
            _cell(host, report, args.braid, side, cell, keys, mount)


@contextlib.contextmanager
def _mounted(host: Host, braid: Path, side: str, stack: str, geometry: tuple[int, int]) -> Iterator[Path]:
    place = host.directory(f"zoned-{side}")
    for name in ("names", "zones", "mount"):
        (place / name).mkdir()
    run(braid, "zoned", "emulate", place / "zones", "--zones", str(geometry[0]), "--zone-size", f"{geometry[1]}MiB",
        "--open", str(OPEN), "--active", str(OPEN))
    (place / "by-hand.yaml").write_text(BY_HAND)
    (place / "s.yaml").write_text(stack.format(hints=SIDES[side]))
    mount = place / "mount"
    run(braid, "mount", "--create", place / "s.yaml", mount)
    try:
        yield mount
    finally:
        run(braid, "umount", mount)
        shutil.rmtree(place)


def _load(host: Host, report: Report, args, side: str, load: str) -> None:
    """A load on a volume of its own; its small files go to the zones too."""
    steps, pace, *geometry = LOADS[load]
    stack = STACK + "    rules: [ {{ when: 'true', tier: zones }} ]\n"
    with _mounted(host, args.braid, side, stack, tuple(geometry)) as mount:
        began = time.monotonic()
        steps = steps // 8 if args.quick else steps
        program = str(Path(__file__).with_name("zoned_loads.py"))
        programs.output(host, [sys.executable, program, load, str(mount), str(steps), str(pace)])
        seconds = time.monotonic() - began
        zones, home = _zones(args.braid, mount)
        written = zones["data_bytes"]
        amplified = (written + zones["moved_bytes"] + zones["index_bytes"]) / max(1, written)
        values = [seconds, written / 1e9, amplified, zones["moved_bytes"] / 1e6, zones["mixed"], len(zones["streams"]),
                  home / 1e6]
        for (what, unit), value in zip(OF_LOADS, values):
            report.cell(side, f"{load}: {what}", unit).samples.append(value)


def _churn(host: Host, report: Report, args, side: str) -> None:
    """Files that take nine tenths of the room are replaced at random."""
    times, *geometry = CHURN
    times = 3 if args.quick else times
    stack = STACK + "    rules: [ {{ when: 'true', tier: zones }} ]\n"
    with _mounted(host, args.braid, side, stack, tuple(geometry)) as mount:
        room = _tiers(args.braid, mount)["zones"]["available"]
        program = str(Path(__file__).with_name("zoned_loads.py"))
        said = json.loads(programs.output(host, [sys.executable, program, "churn", str(mount), str(room), str(times)]))
        zones, home = _zones(args.braid, mount)
        new = zones["data_bytes"] + zones["moved_bytes"] + zones["index_bytes"]
        values = [zones["data_bytes"] / 1e9, new / zones["data_bytes"], 100 * zones["moved_bytes"] / new, zones["gc_ns"] / 1e9,
                  zones["gc_waits"], zones["gc_longest_wait_ns"] / 1e6, *[1e3 * said[key] for key in ("median", "p99", "most")],
                  home / 1e6]
        for (what, unit), value in zip(OF_CHURN, values):
            report.cell(side, f"churn: {what}", unit).samples.append(value)


def _cell(host: Host, report: Report, braid: Path, side: str, cell: str, keys: int, mount: Path) -> None:
    before, logs = _zones(braid, mount)[0], None
    if cell == "mixed":
        (mount / "logs").mkdir(exist_ok=True)
        logs = programs.start(host, [sys.executable, "-c", LOGS, str(mount / "logs")])
    with _watched(braid, mount) as used:
        try:
            said = programs.output(host, [
                "db_bench", f"--db={mount / 'db'}", f"--benchmarks={'fillrandom' if cell == 'fill' else 'overwrite'}",
                f"--num={keys}", f"--key_size={KEY_LEN}", f"--value_size={VALUE_LEN}", "--compression_type=none", "--seed=1",
                "--max_background_jobs=4", "--histogram=1", f"--use_existing_db={int(cell != 'fill')}"])
        finally:
            if logs is not None:
                programs.end(logs)
    after, home = _zones(braid, mount)
    found = PERCENTILES.search(said)
    if found is None:
        raise BenchError("db_bench gave no percentiles")
    new = {key: after[key] - before[key] for key in ("data_bytes", "moved_bytes", "index_bytes")}
    values = [programs.operations(said), float(found[1]), float(found[2]), new["data_bytes"] / 1e9,
              sum(new.values()) / max(1, new["data_bytes"]), new["moved_bytes"] / 1e6, after["mixed"],
              after["memory_bytes"] / 1e6, after["gc_longest_wait_ns"] / 1e6, used[-1], max(used), home / 1e6]
    for (what, unit), value in zip(MEASURED, values):
        report.cell(side, f"{cell}: {what}", unit).samples.append(value)


@contextlib.contextmanager
def _watched(braid: Path, mount: Path) -> Iterator[list[float]]:
    """Collects how much of the zones' room is in use, in percent, every second and at the end."""
    used, over = [], threading.Event()

    def look() -> None:
        told = _tiers(braid, mount)["zones"]
        used.append(100 * (1 - told["available"] / told["total"]))

    def watch() -> None:
        while not over.wait(1):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield used
    finally:
        over.set()
        watcher.join()
        look()


def _tiers(braid: Path, mount: Path) -> dict[str, dict]:
    return {tier["name"]: tier for tier in json.loads(run(braid, "status", mount, "--json"))["tiers"]}


def _zones(braid: Path, mount: Path) -> tuple[dict, int]:
    """What the zoned tier has and did, and the bytes of ranges that are on home."""
    tiers = _tiers(braid, mount)
    return tiers["zones"]["zones"], tiers["names"]["ranges"] * 2**21
