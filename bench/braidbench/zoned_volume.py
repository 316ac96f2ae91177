"""Volumes of scenario `zoned`: all data goes to an emulated zoned device in memory, home has only
names and the data that can't be on zones. And the measurements that all loads share."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from braidbench.host import Host, run

OPEN = 14
RANGE = 2 * 2**20
SIDES = {"streams": "{ learned: off, profiles: [ by-hand.yaml, all ] }", "no-streams": "off",
         "learned": "{ learned: on, profiles: [ ] }"}
# For the loads that no shipped profile knows.
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
# Files that fit in one range go to the zones too.
SMALL_FILES = "    rules: [ { when: 'true', tier: zones } ]\n"


class Volume:
    """A mounted volume of one side."""

    def __init__(self, braid: Path, mount: Path):
        self.braid, self.mount = braid, mount

    def tiers(self) -> dict[str, dict]:
        """The entry of each tier in `braid status`."""
        return {tier["name"]: tier for tier in json.loads(run(self.braid, "status", self.mount, "--json"))["tiers"]}

    def room(self) -> int:
        """Bytes that the zones have room for."""
        return self.tiers()["zones"]["available"]

    def in_zones(self, path: Path, first: int = 0, end: int = sys.maxsize) -> float:
        """The percentage of these bytes of a file that is in zones, of those that are on any
        tier."""
        told = json.loads(run(self.braid, "explain", path, "--json"))
        here = {"zones": 0, "names": 0}
        for part in told.get("runs", []):
            if part["tier"]:
                bytes_of_it = min(end, part["offset"] + part["len"]) - max(first, part["offset"])
                here[part["tier"]["name"]] += max(0, bytes_of_it)
        return 100 * here["zones"] / max(1, sum(here.values()))

    @contextlib.contextmanager
    def measured(self) -> Iterator[dict[str, float]]:
        """Yields an empty dictionary, which at the end gets the tiers' work meanwhile."""
        figures: dict[str, float] = {}
        before = self.tiers()
        with self._watched() as seen:
            yield figures
        after = self.tiers()
        zones = after["zones"]["zones"]
        new = {key: zones[key] - before["zones"]["zones"][key] for key in ("data_bytes", "moved_bytes", "index_bytes")}
        in_use, memory = zip(*seen)
        figures.update({
            "written": new["data_bytes"] / 1e9, "amplification": sum(new.values()) / max(1, new["data_bytes"]),
            "moved": new["moved_bytes"] / 1e6, "mixed zones": zones["mixed"], "streams": len(zones["streams"]),
            "memory": max(memory) / 1e6, "waits": zones["gc_waits"] - before["zones"]["zones"]["gc_waits"],
            "longest wait": zones["gc_longest_wait_ns"] / 1e6, "in use": in_use[-1], "in use at most": max(in_use),
            "to home": (after["names"]["write_bytes"] - before["names"]["write_bytes"]) / 1e6,
            "on home": after["names"]["ranges"] * RANGE / 1e6,
            "GC share": 100 * new["moved_bytes"] / max(1, sum(new.values())),
            "GC time": (zones["gc_ns"] - before["zones"]["zones"]["gc_ns"]) / 1e9})

    @contextlib.contextmanager
    def _watched(self) -> Iterator[list[tuple[float, int]]]:
        """Collects, every second and at the end, how much of the zones' room is in use, in percent, and the memory for data
        that is not in zones yet."""
        seen, over = [], threading.Event()

        def look() -> None:
            told = self.tiers()["zones"]
            seen.append((100 * (1 - told["available"] / told["total"]), told["zones"]["memory_bytes"]))

        def watch() -> None:
            while not over.wait(1):
                look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            over.set()
            watcher.join()
            look()


@contextlib.contextmanager
def mounted(host: Host, braid: Path, side: str, zones: int, zone_mib: int, *, small_files: bool = True) -> Iterator[Volume]:
    """A new volume, until the end."""
    place = host.directory(f"zoned-{side}")
    for name in ("names", "zones", "mount"):
        (place / name).mkdir()
    run(braid, "zoned", "emulate", place / "zones", "--zones", str(zones), "--zone-size", f"{zone_mib}MiB",
        "--open", str(OPEN), "--active", str(OPEN))
    (place / "by-hand.yaml").write_text(BY_HAND)
    (place / "s.yaml").write_text(STACK.format(hints=SIDES[side]) + (SMALL_FILES if small_files else ""))
    mount = place / "mount"
    log = host.work / f"zoned-{side}.log"
    run(braid, "mount", "--create", "--log-file", log, "--log-level", "warn", place / "s.yaml", mount)
    try:
        yield Volume(braid, mount)
    finally:
        run(braid, "umount", mount)
        shutil.rmtree(place)
