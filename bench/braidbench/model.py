"""Scenario `model`: the simulator against the product. fio writes new files on a new volume without
given weights, over throttled devices, while `braid trace record` records; `braid placement
simulate` replays that on simulated tiers with the same limits. Both report the rate, and the part
that each tier got."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from braidbench import devices, sides
from braidbench.devices import MB
from braidbench.evaluation import Bench, device_size, median_text, stop_all
from braidbench.host import BenchError, Host, run
from braidbench.plan import Group, Load, Plan
from braidbench.report import Report

SUMMARY = "what the placement simulator says of a load against what the product does, for each policy"
# The simulator's rate is to be this near to the product's.
AIM = 0.10
RECORDER_S = 30
# The key in `braid status` of policies that map threads anew.
REMAPS = "threads mapped anew"
# The latency of an operation besides its transfer, on devices in memory.
LATENCY_NS = 40_000


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    args.seconds, args.untold = 0, True
    plan = Plan(args, bench.chosen(["write"]))
    if any(group.buffered for group in plan.groups):
        raise BenchError("--access: the simulator has no page cache: direct only")
    report.settings.update(loads=[vars(load) for load in plan.loads], aim=AIM)
    for name, limits in plan.sets.items():
        room = device_size(max(load.total for load in plan.loads))
        tiers = bench.tiers_of(limits, [room] * len(limits))
        # Without a page cache in the kernel, each call is recorded as it was made.
        lineup = bench.braids(tiers, f"-{name}")
        for side in lineup:
            side.options = ("--cache", "direct")
        try:
            for repetition in range(args.reps):
                bench.repetition = repetition + 1
                for group, load in plan.cells(name):
                    for side in lineup:
                        bench.attempt(side, f"{group.title}: {load.text}", lambda s=side, g=group, l=load: _one(bench, s, g, l))
                report.save()
        finally:
            stop_all(lineup)
            for device in tiers:
                devices.remove(host, device)
            for group in (group for group in plan.groups if group.devices == name):
                _tabulate(report, group, plan.loads_of(group), [side.name for side in lineup])


def _one(bench: Bench, side: sides.Braid, group: Group, load: Load) -> None:
    """One load, done and simulated."""
    what, rates = f"{group.title}: {load.text}", [device.ceiling("write") for device in side.devices]
    side.renew()
    run("mkdir", "-p", side.root / "files")
    trace = bench.keep / "last.trace"
    trace.unlink(missing_ok=True)
    recorder = _record(side, trace)
    try:
        before = [device.transferred()[1] for device in side.devices]
        result = bench.fio.run(f"{load.text.replace(' ', '')}-{side.name}", **group.options(side, load, "write", "files", 1))
        written = [device.transferred()[1] - then for device, then in zip(side.devices, before)]
        remaps = json.loads(side.ask("status", str(side.root))).get("remaps")
    finally:
        recorder.send_signal(signal.SIGINT)
        said = recorder.communicate(timeout=RECORDER_S)[0]
    if recorder.returncode != 0 or json.loads(said)["dropped"]:
        raise BenchError(f"the recording is not whole: {said.strip()}")
    # The other sides need the room.
    run("find", side.root, "-mindepth", "1", "-delete", timeout=300)
    side.stop()
    simulated = _simulate(bench, side, trace, rates)
    shares = [tier["written_bytes"] / simulated["written_bytes"] for tier in simulated["tiers"]]
    figures = {"product": result.rate / MB, "simulator": simulated["write_rate"] / MB,
               "simulator / product": simulated["write_rate"] / result.rate}
    if remaps is not None:
        bench.report.cell(side.name, f"{what}: {REMAPS}").samples.append(remaps)
    for name, figure in figures.items():
        bench.report.cell(side.name, f"{what}: {name}", "" if "/" in name else "MB/s").samples.append(figure)
    for device, done, share in zip(side.devices, written, shares):
        bench.report.cell(side.name, f"{what}: {device.name} of the product", "%").samples.append(100 * done / sum(written))
        bench.report.cell(side.name, f"{what}: {device.name} of the simulator", "%").samples.append(100 * share)


def _record(side: sides.Braid, trace: Path) -> subprocess.Popen:
    """Starts to record; returns once it records."""
    recorder = subprocess.Popen([str(side.binary), "trace", "record", str(side.root), "--output", str(trace), "--json"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = recorder.stderr.readline()
    if "recording" not in line:
        recorder.kill()
        raise BenchError(f"braid trace record: {line.strip()}")
    return recorder


def _simulate(bench: Bench, side: sides.Braid, trace: Path, rates: list[int]) -> dict:
    """The simulator's results for a trace with the side's policy, on tiers that write as fast as
    the side's; it knows of them the figures measured at the mount."""
    figures = {"latency_ns": LATENCY_NS, "threads": 1, "degrades_at": None}
    profile = {"version": 1, "tiers": {device.name: {
        "read": {"bandwidth": device.ceiling("read"), **figures}, "write": {"bandwidth": rate, **figures}}
        for device, rate in zip(side.devices, rates)}}
    volume = {"home": side.devices[0].name, "profile": "simulated-profile.yaml",
              "tiers": {device.name: {"dir": str(store)} for device, store in zip(side.devices, side.stores)}}
    stack = bench.keep / "simulated.yaml"
    # JSON is YAML.
    stack.write_text(json.dumps({"stack": {"volume": volume}}, indent=1))
    (bench.keep / volume["profile"]).write_text(json.dumps(profile, indent=1))
    said = run(side.binary, "placement", "simulate", stack, "--trace", trace, "--policy", side.policy, "--throttled",
               "--as-fast-as-possible", "--json", timeout=600)
    return json.loads(said)["policies"][0]


def _tabulate(report: Report, group: Group, loads: list[Load], names: list[str]) -> None:
    limits = ", ".join(str(limit) for limit in group.limits)
    figures = ["product", "simulator", "simulator / product", REMAPS]
    rows = [[name, load.text, *(median_text(report, name, f"{group.title}: {load.text}: {figure}") for figure in figures),
             ", ".join(_parts(report, name, f"{group.title}: {load.text}", "product")),
             ", ".join(_parts(report, name, f"{group.title}: {load.text}", "simulator"))]
            for name in names for load in loads]
    report.table(f"{group.title} ({limits})", ["side", "load", *figures, "tiers' parts, product", "simulator"], rows)
    ratios = {(name, load.text): cell.median for name in names for load in loads
              if (cell := report.cells.get((name, f"{group.title}: {load.text}: simulator / product"))) and cell.median}
    apart = [f"{name} {load} ({ratio:.2f})" for (name, load), ratio in ratios.items() if abs(ratio - 1) > AIM]
    if ratios:
        report.remarks.append(f"{group.title}: {len(ratios) - len(apart)} of {len(ratios)} cells within {AIM:.0%}"
                              + (f"; not {', '.join(apart)}" if apart else ""))


def _parts(report: Report, name: str, what: str, of: str) -> list[str]:
    cells = [cell for (side, text), cell in report.cells.items()
             if side == name and text.startswith(f"{what}: ") and text.endswith(f" of the {of}")]
    return [f"{cell.median:.0f} %" for cell in cells if cell.median is not None]
