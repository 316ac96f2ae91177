"""Checks that a figure is about the devices: their own counters against the requested bytes. Used
by every scenario whose figures are rates of throttled devices."""

from __future__ import annotations

import time

from braidbench.devices import MB
from braidbench.report import Cell
from braidbench.sides import Side

# The kernel's throttle lets through up to a few of its slices at once when a device was idle before.
BURST_S = 0.1
FREED_WITHIN_S = 5


def freed(cell: Cell, side: Side, used_before: int, size: int) -> None:
    """Notes space that a removed file still takes, and restarts the side then: the tiers are shared by the sides,
    and one that fills them would make the others fail."""
    deadline = time.monotonic() + FREED_WITHIN_S
    while (left := side.used() - used_before) > size // 8:
        if time.monotonic() > deadline:
            cell.note(f"{left / size * 100:.0f} % of the file's space was not given back within {FREED_WITHIN_S} s "
                      "of its removal")
            side.stop()
            return
        time.sleep(0.5)


def examine(cell: Cell, side: Side, rw: str, size: int, before: list[tuple[int, int]], seconds: float) -> None:
    """Notes where the bytes went, and anything that would make the figure meaningless."""
    which = 1 if rw == "write" else 0
    moved = [now[which] - then[which] for now, then in zip(side.transferred(), before)]
    if len(moved) > 1 and not cell.notes:
        shares = [f"{device.name} {100 * part / max(1, sum(moved)):.0f} %" for device, part in zip(side.devices, moved)]
        cell.note(", ".join(shares))
    if sum(moved) < 0.97 * size:
        cell.note(f"SUSPECT: the devices moved only {100 * sum(moved) / size:.0f} % of the bytes (cached?)")
    for device, part in zip(side.devices, moved):
        if part > 1.03 * device.ceiling(rw) * (seconds + BURST_S) > 0:
            cell.note(f"SUSPECT: {device.name} was not throttled ({part / seconds / MB:.0f} MB/s)")
