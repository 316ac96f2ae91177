"""The summary of a run of `bandwidth`: which shares of the devices' sum each side had, lowest to highest, how Braid stands
to the best of the others, and the cells that miss the aim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from braidbench.plan import MOUNTS, Group, Load, Plan, direction
from braidbench.report import Report, number

TITLE = "Summary"
# Per cent of the sum, where a mount knows its tiers: with two of them, and with more.
AIM_TWO, AIM_MORE = 95, 92
# On a volume that was never mounted before.
AIM_NEW = 85
# The block size that is bounded by the processors, and stands apart.
SMALL = "4K"


@dataclass(frozen=True)
class Figure:
    """The share of one side in one cell."""

    # The work, like `write 64K x 16`.
    cell: str
    share: float
    suspect: bool
    # The best of the other sides, if there is one, and the share that it had.
    peer: str | None
    peer_share: float

    @property
    def over_peer(self) -> float | None:
        return self.share / self.peer_share if self.peer else None


def is_braid(name: str) -> bool:
    """Whether a name is that of one of Braid's sides."""
    return name.startswith("braid-")


def median(report: Report, name: str, what: str) -> float | None:
    """A side's median, if it has any figure there."""
    cell = report.cells.get((name, what))
    return cell.median if cell else None


def best_peer(report: Report, names: list[str], what: str) -> tuple[float, str | None]:
    """The highest median of the sides that are not Braid's, and its side."""
    found = [(median(report, name, what) or 0, name) for name in names if not is_braid(name)]
    return max(found, default=(0, None))


def aim(group: Group, name: str) -> int:
    """Per cent of the sum that Braid is to reach."""
    if name.endswith(f"-{MOUNTS[0]}"):
        return AIM_NEW
    return AIM_TWO if len(group.limits) == 2 else AIM_MORE


def tabulate(report: Report, plan: Plan, groups: list[Group]) -> None:
    """Adds the tables of the summary."""
    heads = ["devices", "access", "files", "blocks", "side"]
    ranges, ratios, misses = [], [], []
    for group in groups:
        for sizes in _classes(plan):
            for name in plan.names[group.devices]:
                place = [group.devices, group.access, group.files, ", ".join(sizes), name]
                kinds = [_figures(report, plan, group, name, sizes, rw) for rw in ("write", "read")]
                if not any(kinds):
                    continue
                ranges.append(place + [text for figures in kinds for text in _range(figures, lambda f: 100 * f.share, " %")])
                if is_braid(name):
                    ratios.append(place + [text for figures in kinds for text in _range(figures, lambda f: f.over_peer)])
                    misses += [place[:3] + row for figures in kinds for row in _misses(group, name, sizes, figures)]
    columns = ["written", "lowest in", "read", "lowest in"]
    report.table(f"{TITLE}: share of the sum of all tiers, lowest to highest over threads and block sizes",
                 heads + columns, ranges)
    report.table(f"{TITLE}: Braid over the best other side of each cell, lowest to highest", heads + columns, ratios)
    report.table(f"{TITLE}: cells where Braid is below the aim or behind another side",
                 [*heads[:3], "cell", "side", "share", "aim", "over the best other side", "which is"], misses)


def _classes(plan: Plan) -> list[list[str]]:
    """The block sizes that are judged together."""
    sizes = list(dict.fromkeys(load.size for load in plan.loads))
    return [found for found in ([size for size in sizes if size != SMALL], [size for size in sizes if size == SMALL]) if found]


def _figures(report: Report, plan: Plan, group: Group, name: str, sizes: list[str], rw: str) -> list[Figure]:
    patterns = [pattern for pattern in plan.patterns if direction(pattern) == rw]
    found = [_figure(report, plan, group, name, pattern, load) for pattern in patterns
             for load in plan.loads_of(group) if load.size in sizes]
    return [figure for figure in found if figure]


def _figure(report: Report, plan: Plan, group: Group, name: str, pattern: str, load: Load) -> Figure | None:
    what = f"{group.title}: {pattern} {load.text}"
    own = median(report, name, what)
    if own is None:
        return None
    whole = group.whole(pattern, load.size)
    best, peer = best_peer(report, plan.names[group.devices], what)
    suspect = any(note.startswith("SUSPECT") for note in report.cells[name, what].notes)
    return Figure(f"{pattern} {load.text}", own / whole, suspect, peer if best else None, best / whole)


def _range(figures: list[Figure], value: Callable[[Figure], float | None], unit: str = "") -> list[str]:
    """Lowest and highest of a value, marked where the devices' counters contradict one of them, and where it is lowest."""
    known = [(found, figure) for figure in figures if (found := value(figure)) is not None]
    if not known:
        return ["", ""]
    (low, worst), (high, _) = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
    low, high = (f"{each:.0f}" if unit else number(each) for each in (low, high))
    text = (low if low == high else f"{low}–{high}") + unit
    return [text + ("†" if any(figure.suspect for _, figure in known) else ""), worst.cell]


def _misses(group: Group, name: str, sizes: list[str], figures: list[Figure]) -> list[list[str]]:
    """A row for each figure below the aim or behind another side, as they are rounded for the table."""
    rows, wanted = [], None if sizes == [SMALL] else aim(group, name)
    for figure in figures:
        below = wanted is not None and round(100 * figure.share) < wanted
        behind = figure.over_peer is not None and round(figure.over_peer, 2) < 1
        if below or behind:
            rows.append([figure.cell, name, f"{100 * figure.share:.0f} %" + ("†" if figure.suspect else ""),
                         f"{wanted} %" if wanted else "", number(figure.over_peer) if figure.over_peer else "",
                         (figure.peer or "") if behind else ""])
    return rows
