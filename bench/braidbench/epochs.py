"""Bandwidth over time from the block devices' own counters, and when it has converged."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from braidbench.devices import MB, Device

# The papers' epoch, and that of Braid's policies.
EPOCH_S = 0.2
NEAR = 0.9
SMOOTH = 3


@dataclass
class Trace:
    """Bytes read and written by each device, at the end of each epoch."""

    devices: list[str]
    times: list[float] = field(default_factory=list)
    # For each moment, of each device: bytes read and written so far.
    counters: list[list[tuple[int, int]]] = field(default_factory=list)

    def rates(self, rw: str) -> list[float]:
        """MB/s of all devices in each epoch."""
        return [sum(each) for each in zip(*(self.device_rates(rw, i) for i in range(len(self.devices))))]

    def device_rates(self, rw: str, device: int) -> list[float]:
        """MB/s of one device in each epoch."""
        which = 1 if rw == "write" else 0
        return [(now[device][which] - then[device][which]) / MB / max(1e-6, end - start) for then, now, start, end in
                zip(self.counters, self.counters[1:], self.times, self.times[1:])]

    def moved(self, rw: str, start: float, end: float, device: int | None = None) -> int:
        """Bytes that passed between two moments."""
        which = 1 if rw == "write" else 0
        chosen = range(len(self.devices)) if device is None else [device]
        first, last = self.at(start), self.at(end)
        return sum(self.counters[last][i][which] - self.counters[first][i][which] for i in chosen)

    def at(self, moment: float) -> int:
        """Index of the first sample that is not before a moment (seconds since the trace began)."""
        return next((i for i, at in enumerate(self.times) if at >= moment), len(self.times) - 1)

    def as_series(self, title: str, side: str, optimum: list[tuple[float, float]], rw: str) -> dict:
        """The data for a plot."""
        return {"kind": "epochs", "title": title, "side": side, "rw": rw, "times": [round(t, 3) for t in self.times[1:]],
                "optimum": optimum,
                "devices": {name: {way: [round(rate, 2) for rate in self.device_rates(way, i)] for way in ("read", "write")}
                            for i, name in enumerate(self.devices)}}


class Sampler:
    """Takes a trace in the background: `with Sampler(devices) as sampler: …; sampler.trace`."""

    def __init__(self, devices: list[Device]):
        self.devices, self.trace = devices, Trace([device.name for device in devices])
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sampler":
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()

    def now(self) -> float:
        """Seconds since the trace began."""
        return time.monotonic() - self._began

    def _run(self) -> None:
        due = self._began
        while True:
            self.trace.counters.append([device.transferred() for device in self.devices])
            self.trace.times.append(self.now())
            due += EPOCH_S
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return


def converged(rates: list[float], target: float, smooth: int = 1) -> int | None:
    """The first epoch from which on the rate stays above a share of `target`; None when it never does. With `smooth`,
    each epoch counts as the mean of that many, up to it: a throttle lets requests through in slices."""
    means = [sum(rates[max(0, i + 1 - smooth):i + 1]) / (i + 1 - max(0, i + 1 - smooth)) for i in range(len(rates))]
    below = [i for i, rate in enumerate(means) if rate < NEAR * target]
    first = below[-1] + 1 if below else 0
    return first if first < len(rates) else None
