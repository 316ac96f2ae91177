"""Collects samples, prints tables (plain or Markdown), writes the summary, which is kept of a
run."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from braidbench.host import BenchError


@dataclass
class Cell:
    """Repeated measurements of one thing on one side."""

    side: str
    what: str
    unit: str
    samples: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None

    def note(self, text: str) -> None:
        """Adds a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    def text(self) -> str:
        """The median and the range."""
        if self.median is None:
            return "failed" if self.failures else "not run"
        low, high = min(self.samples), max(self.samples)
        spread = f" ({number(low)}–{number(high)})" if len(self.samples) > 1 else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"{number(self.median)} {self.unit}{spread}{failed}"


def number(value: float) -> str:
    """Three significant figures, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Report:
    """The cells of one run, in the order in which they were first measured."""

    def __init__(self, scenario: str, machine: dict, settings: dict, directory: Path):
        self.scenario, self.machine, self.settings, self.directory = scenario, machine, settings, directory
        self.cells: dict[tuple[str, str], Cell] = {}
        self.tables: list[tuple[str, list[str], list[list[str]]]] = []
        self.ratios: dict[str, float] = {}
        self.remarks: list[str] = []
        # Figures over time, for plots.
        self.series: list[dict] = []
        self.started = time.time()

    def cell(self, side: str, what: str, unit: str = "") -> Cell:
        """The cell of this side and measurement; made when first asked for."""
        cell = self.cells.setdefault((side, what), Cell(side, what, unit))
        # A failure may be noted before the unit is known.
        cell.unit = cell.unit or unit
        return cell

    def explain_failures(self) -> None:
        """Adds one remark for each side and reason of a failure."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for cell in self.cells.values():
            for reason in dict.fromkeys(cell.failures):
                reasons.setdefault((cell.side, reason), []).append(cell.what)
        for (side, reason), what in reasons.items():
            more = f" and {len(what) - 1} more" if len(what) > 1 else ""
            self.remarks.append(f"{side} failed: {reason} (in: {what[0]}{more})")

    def table(self, title: str, heads: list[str], rows: list[list[str]]) -> None:
        """Adds a table to print. The row of a side that only failed shows that."""
        failed = {cell.side for cell in self.cells.values() if cell.failures}
        rows = [[row[0], "failed", *row[2:]] if row[0] in failed and not any(row[1:]) else row for row in rows]
        self.tables.append((title, heads, rows))

    def render(self, markdown: bool) -> str:
        """Everything to show, as text."""
        parts = [as_markdown(*table) if markdown else _plain(*table) for table in self.tables]
        parts += [f"{'- ' if markdown else '* '}{remark}" for remark in self.remarks]
        return "\n".join(parts)

    def save(self) -> Path:
        """Writes `summary.json` beside the raw results."""
        summary = {
            "scenario": self.scenario,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started)),
            "seconds": round(time.time() - self.started),
            "machine": self.machine,
            "settings": self.settings,
            "cells": [
                {"side": c.side, "what": c.what, "unit": c.unit, "median": _short(c.median),
                 "samples": [_short(sample) for sample in c.samples], "failures": c.failures, "notes": c.notes}
                for c in self.cells.values()
            ],
            "ratios": self.ratios,
            "tables": [{"title": t, "heads": h, "rows": r} for t, h, r in self.tables],
            "remarks": self.remarks,
            "series": self.series,
        }
        path = self.directory / "summary.json"
        path.write_text(_compact(summary))
        return path


def read(directory: Path) -> dict:
    """The summary of a run that was kept. BenchError where there is none."""
    path = directory / "summary.json"
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BenchError(f"{path}: {error}") from None


def _short(value: float | None) -> float | None:
    """Six significant figures: no measurement has more."""
    return None if value is None else float(f"{value:.6g}")


def _compact(summary: dict) -> str:
    """JSON with one line for each cell: a run may have thousands."""
    def line(value) -> str:
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in value) + "\n ]"
        return json.dumps(value, ensure_ascii=False, indent=1 if isinstance(value, dict) else None)
    return "{\n" + ",\n".join(f' "{key}": {line(value)}' for key, value in summary.items()) + "\n}\n"


def _plain(title: str, heads: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in [heads, *rows]]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([f"\n{title}", lines[0], rule, *lines[1:], ""])


def as_markdown(title: str, heads: list[str], rows: list[list[str]]) -> str:
    """One table as Markdown."""
    escaped = [[text.replace("|", "\\|") for text in line] for line in [heads, *rows]]
    lines = ["| " + " | ".join(line) + " |" for line in escaped]
    return "\n".join([f"\n**{title}**\n", lines[0], "|" + " --- |" * len(heads), *lines[1:], ""])
