"""How long a zoned SSD would take for what two devices were asked for, by a model; from the lines of a block trace.

A line is `ACTION DEVICE RWBS SECTOR BYTES SECONDS NANOSECONDS`, as blkparse(1) names them, with the actions D (issued) and C
(completed). In the lab devices answer at once, and the processor is emulated: when requests were made says little, and what
was made says much. So the model has requests begin when all those have ended that had ended before they began in the trace,
and nothing but the device takes time. Both devices of a trace count as one: a zoned SSD has its conventional zones beside its
others.

The figures are round ones for an SSD like that which Reshim was measured on; they were not measured here: 11 µs for a small
write, 80 µs for a small read, 1.1 GB/s written, 3.2 GB/s read, 20 µs for a flush, and 16 ms for the reset of a zone of 1 GiB,
which is 60 µs for one of 4 MiB.
"""

import dataclasses
import heapq

WRITE_S, READ_S, RESET_S, FLUSH_S = 11e-6, 80e-6, 60e-6, 20e-6
WRITE_BYTES_S, READ_BYTES_S = 1.1e9, 3.2e9


@dataclasses.dataclass
class Request:
    """What a device was asked for."""

    kind: str
    bytes: int
    issued: float
    completed: float


def requests(lines):
    """The requests of a trace, in the order in which they were made."""
    open_ones, found = {}, []
    for line in lines:
        action, device, rwbs, sector, size, seconds, nanoseconds = line.split()
        at, key = int(seconds) + int(nanoseconds) / 1e9, (device, rwbs, sector)
        if action == "D":
            open_ones.setdefault(key, []).append((int(size), at))
        elif open_ones.get(key):
            issued = open_ones[key].pop(0)
            found.append(Request(kind_of(rwbs, issued[0]), *issued, at))
    return sorted(found, key=lambda request: request.issued)


def kind_of(rwbs, size):
    """What a request does. The reset of a zone counts as a write of nothing."""
    if "D" in rwbs:
        return "discard"
    if "W" in rwbs:
        return "write" if size else "reset"
    return "read" if size else "flush"


def seconds(found):
    """How long the device takes for requests."""
    ended, reached, last, lanes = [], 0.0, 0.0, {"write": 0.0, "read": 0.0}
    for request in found:
        while ended and ended[0][0] <= request.issued:
            reached = max(reached, heapq.heappop(ended)[1])
        if request.kind in lanes:
            fixed, rate = (WRITE_S, WRITE_BYTES_S) if request.kind == "write" else (READ_S, READ_BYTES_S)
            lanes[request.kind] = max(reached, lanes[request.kind]) + request.bytes / rate
            done = lanes[request.kind] + fixed
        else:
            done = reached + {"flush": FLUSH_S, "reset": RESET_S}.get(request.kind, 0.0)
        last = max(last, done)
        heapq.heappush(ended, (request.completed, done))
    return last


def summary(path):
    """A line on a trace."""
    with open(path, encoding="ascii") as lines:
        found = requests(lines)
    said = []
    for kind in ("write", "read", "flush", "reset"):
        sizes = [request.bytes for request in found if request.kind == kind]
        said.append(f"{len(sizes)} × {kind}" + (f" of {sum(sizes) / 1e6:.1f} MB" if any(sizes) else ""))
    return f"{seconds(found):.3f} s by the model; " + ", ".join(said)
