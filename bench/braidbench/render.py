"""Puts the tables and plots of runs that were kept into a document: `bench/run.py render DIR…`. The document has a place
for each scenario, between `<!-- results SCENARIO -->` and `<!-- end -->`; the text there is
replaced, and places of scenarios that are not among the runs stay as they are. Runs with `--untold`
go to `<!-- results SCENARIO-untold -->` where the document has that. Plots go below a directory
beside the document that has its name: one for each run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from braidbench import plots
from braidbench.host import BenchError
from braidbench.report import as_markdown, read


def render(directories: list[Path], document: Path, say, only: str | None = None) -> None:
    """Fills the document from the runs; with `only`, from the tables whose titles begin so, and without plots."""
    text = document.read_text()
    runs: dict[str, list[Path]] = {}
    for directory in directories:
        runs.setdefault(_place(_summary(directory), text), []).append(directory)
    for name, kept in runs.items():
        place = re.compile(rf"(<!-- results {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not place.search(text):
            raise BenchError(f"{document}: no place for {name} (`<!-- results {name} -->` … `<!-- end -->`)")
        body = "\n".join(_section(directory, document, say, only) for directory in kept)
        text = place.sub(lambda found: f"{found[1]}{body}{found[2]}", text)
        say(f"{name}: {len(kept)} run(s)")
    document.write_text(text)


def _place(summary: dict, text: str) -> str:
    """The name of the place in the document that a run goes to."""
    untold = f"{summary['scenario']}-untold"
    return untold if summary["settings"].get("untold") and f"<!-- results {untold} -->" in text else summary["scenario"]


def _summary(directory: Path) -> dict:
    summary = read(directory)
    if summary["settings"].get("quick"):
        raise BenchError(f"{directory}: a run with --quick shows that everything works; its figures are no results")
    return summary


def _section(directory: Path, document: Path, say, only: str | None) -> str:
    """One run: where it comes from, its tables, plots and remarks."""
    summary = _summary(directory)
    parts = [_origin(summary, directory)]
    parts += [as_markdown(table["title"], table["heads"], table["rows"]) for table in summary["tables"]
              if table["title"].startswith(only or "")]
    if only is None:
        parts += [f"![{path.stem}]({os.path.relpath(path, document.parent)})\n" for path in _plots(directory, document, say)]
    parts += [f"- {remark}" for remark in summary["remarks"]]
    return "\n".join(parts) + "\n"


def _plots(directory: Path, document: Path, say) -> list[Path]:
    """The run's plots: drawn now, or the existing ones."""
    pictures = document.with_suffix("") / directory.name
    try:
        return plots.draw(directory, pictures)
    except BenchError as error:
        say(str(error))
        return sorted(pictures.glob("*.svg"))


def _origin(summary: dict, directory: Path) -> str:
    machine, settings = summary["machine"], summary["settings"]
    versions = ", ".join(text for name, text in machine["versions"].items() if name in ("mergerfs", "braid"))
    return (f"Run `{directory.name}`: commit {machine.get('source') or 'unknown'}, {machine['cpus']} processors "
            f"({machine['cpu']}), kernel {machine['kernel']}, {versions or 'no version of Braid'}, "
            f"{settings.get('reps', 1)} repetition(s), load {machine['load_at_start']} before and "
            f"{machine.get('load_at_end', '?')} at the end.\n")
