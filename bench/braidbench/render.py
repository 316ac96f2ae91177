"""Puts the tables and plots of runs that were kept into a document: `bench/run.py render DIR…`. The document has a place
for each scenario, between `<!-- results SCENARIO -->` and `<!-- end -->`; what stood there is replaced, and places of
scenarios that are not among the runs stay as they are. Plots go below a directory beside the document that has its name:
one for each run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from braidbench import plots
from braidbench.host import BenchError
from braidbench.report import as_markdown, read


def render(directories: list[Path], document: Path, say) -> None:
    """Fills the document from the runs."""
    text = document.read_text()
    runs: dict[str, list[Path]] = {}
    for directory in directories:
        runs.setdefault(_summary(directory)["scenario"], []).append(directory)
    for scenario, kept in runs.items():
        place = re.compile(rf"(<!-- results {re.escape(scenario)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not place.search(text):
            raise BenchError(f"{document}: no place for {scenario} (`<!-- results {scenario} -->` … `<!-- end -->`)")
        body = "\n".join(_section(directory, document, say) for directory in kept)
        text = place.sub(lambda found: f"{found[1]}{body}{found[2]}", text)
        say(f"{scenario}: {len(kept)} run(s)")
    document.write_text(text)


def _summary(directory: Path) -> dict:
    summary = read(directory)
    if summary["settings"].get("quick"):
        raise BenchError(f"{directory}: a run with --quick shows that everything works; its figures are no results")
    return summary


def _section(directory: Path, document: Path, say) -> str:
    """One run: where it comes from, its tables, plots and remarks."""
    summary = _summary(directory)
    pictures = document.with_suffix("") / directory.name
    try:
        drawn = plots.draw(directory, pictures)
    except BenchError as error:
        say(str(error))
        drawn = sorted(pictures.glob("*.svg"))
    parts = [_origin(summary, directory)]
    parts += [as_markdown(table["title"], table["heads"], table["rows"]) for table in summary["tables"]]
    parts += [f"![{path.stem}]({os.path.relpath(path, document.parent)})\n" for path in drawn]
    parts += [f"- {remark}" for remark in summary["remarks"]]
    return "\n".join(parts) + "\n"


def _origin(summary: dict, directory: Path) -> str:
    machine, settings = summary["machine"], summary["settings"]
    versions = ", ".join(text for name, text in machine["versions"].items() if name in ("mergerfs", "braid"))
    return (f"Run `{directory.name}`: commit {machine.get('source') or 'unknown'}, {machine['cpus']} processors "
            f"({machine['cpu']}), kernel {machine['kernel']}, {versions or 'no version of Braid'}, "
            f"{settings.get('reps', 1)} repetition(s), load {machine['load_at_start']} before and "
            f"{machine.get('load_at_end', '?')} at the end.\n")
