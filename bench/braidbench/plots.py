"""Plots of a run that was kept, as SVG. By matplotlib; without it there are tables only."""

from __future__ import annotations

from pathlib import Path

from braidbench.bandwidth import NAMES
from braidbench.evaluation import TIER_NAMES, combined
from braidbench.devices import Limit
from braidbench.epochs import NEAR
from braidbench.host import BenchError
from braidbench.plan import PATTERNS, SIZES, STREAM, direction
from braidbench.report import read

COLUMNS = 2


def draw(run: Path, directory: Path) -> list[Path]:
    """Draws the plots of the run into the directory; returns their files. BenchError if matplotlib
    is missing."""
    plot = _library()
    summary = read(run)
    figures = _bandwidth(plot, summary) if summary["scenario"] == "bandwidth" else {}
    figures |= _epochs(plot, summary.get("series", []))
    made = []
    for name, figure in figures.items():
        path = directory / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the date, the same figures give the same file.
        figure.savefig(path, metadata={"Date": None})
        plot.close(figure)
        made.append(path)
    return made


def _library():
    try:
        import matplotlib
        matplotlib.use("Agg")
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "braid", "font.size": 8,
                                    "figure.constrained_layout.use": True})
        from matplotlib import pyplot
    except ImportError:
        raise BenchError("no plots: matplotlib is not installed (pip install matplotlib)") from None
    return pyplot


def _bandwidth(plot, summary: dict) -> dict:
    """One figure for each pattern and group: rate against threads, a field for each block size."""
    medians = {(cell["side"], cell["what"]): cell["median"] for cell in summary["cells"] if cell["median"] is not None}
    settings = summary["settings"]
    threads = sorted({int(load["threads"]) for load in settings.get("loads", []) if load["threads"] != STREAM})
    figures = {}
    for title, sums in _groups(settings).items():
        for pattern in PATTERNS:
            lines = {(size, side): [(n, medians.get((side, f"{title}: {pattern} {size} x {n}"))) for n in threads]
                     for size in SIZES for side in dict.fromkeys(side for side, _ in medians)}
            points = {place: line for place, line in lines.items() if any(rate for _, rate in line)}
            if points:
                name = title.removesuffix(" tiers").replace(", ", "-")
                figures[f"bandwidth-{name}-{pattern}"] = _lines(plot, points, sums[pattern],
                                                                f"{NAMES[pattern]}, {title}, fixed work")
    return figures


def _groups(settings: dict) -> dict[str, dict[str, dict[str, float]]]:
    """For each group of cells, its tiers' combined bandwidth, by pattern and block size."""
    if "groups" in settings:
        return {group["title"]: group["sums"] for group in settings["groups"]}
    # Runs before there were sets of devices.
    found = {}
    for count in settings.get("tiers", []):
        limits = [Limit.parse(settings[name].split()[0]) for name in TIER_NAMES[:count]]
        found[f"{count} tiers"] = {pattern: dict.fromkeys(SIZES, combined(limits, direction(pattern))) for pattern in PATTERNS}
    return found


def _lines(plot, points: dict, sums: dict[str, float], title: str):
    figure, fields = plot.subplots(1, len(SIZES), figsize=(11, 3.6), sharey=True, squeeze=False)
    for field, size in zip(fields[0], SIZES):
        for (_, side), line in ((place, line) for place, line in points.items() if place[0] == size):
            style = "-o" if side.startswith("braid") else "--x"
            field.plot(*zip(*((n, rate) for n, rate in line if rate)), style, label=side, markersize=3, linewidth=1)
        if size in sums:
            field.axhline(sums[size], color="red", linestyle=":", linewidth=1, label="all tiers together")
        field.set(title=f"{title}, {size}", xlabel="threads", xscale="log")
        field.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    fields[0][0].set_ylabel("MB/s")
    # Last, because it ends the choice of the scale by the data.
    fields[0][0].set_ylim(bottom=0)
    handles = {label: line for field in fields[0] for line, label in zip(*field.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper")
    return figure


def _epochs(plot, series: list[dict]) -> dict:
    """One figure for each title: a field for each side, of its first repetition."""
    groups: dict[str, dict[str, dict]] = {}
    for part in series:
        groups.setdefault(part["title"], {}).setdefault(part["side"], part)
    figures = {}
    for title, sides in groups.items():
        rows = -(-len(sides) // COLUMNS)
        figure, fields = plot.subplots(rows, COLUMNS, figsize=(11, 2.2 * rows), sharey=True, squeeze=False)
        for field, (side, part) in zip(fields.flat, sides.items()):
            _trace(field, side, part)
        for field in list(fields.flat)[len(sides):]:
            field.set_axis_off()
        fields.flat[0].set_ylim(bottom=0)
        figure.legend(*fields.flat[0].get_legend_handles_labels(), loc="outside right upper")
        figure.suptitle(f"{title}: MB/s in each epoch")
        figures[title.replace(" ", "-")] = figure
    return figures


def _trace(field, side: str, part: dict) -> None:
    times, ways = part["times"], ("read", "write")
    totals = {way: [sum(at) for at in zip(*(device[way] for device in part["devices"].values()))] for way in ways}
    field.plot(times, totals[part["rw"]], color="black", linewidth=1, label=f"all devices, {part['rw']}")
    for device, rates in part["devices"].items():
        field.plot(times, rates[part["rw"]], linewidth=0.8, label=device)
    other = ways[part["rw"] == "read"]
    field.plot(times, totals[other], color="grey", linewidth=0.8, linestyle=":", label=f"moved ({other})")
    moments = [moment for moment, _ in part["optimum"]]
    for moment, end, (_, optimum) in zip(moments, [*moments[1:], times[-1]], part["optimum"]):
        field.plot([moment, end], [optimum] * 2, color="red", linewidth=0.8, linestyle="--")
        field.plot([moment, end], [NEAR * optimum] * 2, color="red", linewidth=0.5, linestyle=":")
        if moment != moments[0]:
            field.axvline(moment, color="blue", linewidth=0.5, linestyle=":")
    field.set(title=side, xlabel="s")
