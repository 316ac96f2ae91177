"""Scenario `bandwidth`: how much of the tiers' combined bandwidth private files get (PolyStore figures 3 and 6,
table 4). Each cell is measured as fixed work, until the last byte of the last thread, and, where
Braid is given weights, as a timed run too, which hides threads that are stuck on a slow tier."""

from __future__ import annotations

from pathlib import Path

from braidbench import devices, shares, sides
from braidbench.evaluation import (MERGERFS_PASSTHROUGH, Bench, chosen, device_size, explain_suspects, median_text,
                                   mergerfs_modes, processor_time, share_text, stop_all)
from braidbench.host import BenchError, Host, run, written_back_from
from braidbench.plan import PATTERNS, STREAM, Group, Load, Plan, direction
from braidbench.report import Report, number

SUMMARY = "private files of 1 … 32 threads against the tiers' combined bandwidth; fixed work and timed; latencies"
NAMES = {"write": "sequential write", "read": "sequential read", "randread": "random read", "randwrite": "random write"}


def plan_of(args) -> tuple[Plan, str]:
    """The plan that the options ask for, and its length in words."""
    plan = Plan(args, chosen(args, PATTERNS, quick=["write", "read"]))
    seconds, count = plan.seconds(), args.reps * plan.count()
    return plan, f"{count} times one load on one side, {seconds / max(1, count):.1f} s each: about {_length(seconds)}"


def _length(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def measure(host: Host, report: Report, args, keep: Path) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    plan, length = plan_of(args)
    report.settings.update(_settings(plan))
    args.progress(length)
    if bench.wants("mergerfs-passthrough") and "passthrough" not in mergerfs_modes(args):
        report.remarks.append(f"mergerfs-passthrough is left out: {args.mergerfs} is not known to be version "
                              + ".".join(map(str, MERGERFS_PASSTHROUGH)))
    modes: dict[str, str] = {}
    begun: list[str] = []
    try:
        for name in plan.sets:
            begun.append(name)
            _over(bench, plan, name, modes)
    finally:
        _tabulate(bench.report, plan, begun, modes)
        explain_suspects(report)


def _settings(plan: Plan) -> dict:
    """The settings kept with the figures; tables and plots are made from them."""
    deepest = max((load.count for load in plan.loads), default=1)
    groups = [{"title": group.title, "limits": [str(limit) for limit in group.limits],
               "sums": {pattern: {load.size: group.whole(pattern, load.size) for load in plan.loads}
                        for pattern in plan.patterns}} for group in plan.groups]
    return {"latency_threads": str(deepest), "loads": [vars(load) for load in plan.loads], "patterns": plan.patterns,
            "mounts": plan.mounts, "groups": groups}


def _over(bench: Bench, plan: Plan, name: str, modes: dict[str, str]) -> None:
    """All cells over one set of devices, which are made for it and removed then."""
    room = device_size(max(load.total for load in plan.loads))
    tiers = bench.tiers_of(plan.sets[name], [room] * len(plan.sets[name]))
    lineup = _lineup(bench, plan, name, tiers, room)
    modes |= {f"{name}: {side.name}": side.mode() for side in lineup}
    _warn_of_write_back(bench, plan)
    try:
        for repetition in range(bench.args.reps):
            bench.repetition = repetition + 1
            for group, load in plan.cells(name):
                # Other work of the machine meets another side first each time.
                for side in lineup if repetition % 2 == 0 else reversed(lineup):
                    bench.attempt(side, f"{group.title}: {load.text}",
                                  lambda s=side, g=group, l=load: _one(bench, plan, s, g, l))
            bench.report.save()
    finally:
        stop_all(lineup)
    for device in dict.fromkeys([*tiers, *(device for side in lineup for device in side.devices)]):
        try:
            devices.remove(bench.host, device)
        except BenchError as error:
            bench.host.warn(f"{device.name} stays until the end: {error}")


def _lineup(bench: Bench, plan: Plan, name: str, tiers: list[devices.Device], room: int) -> list[sides.Side]:
    tag = f"-{name}"
    return [*bench.natives(tiers, tag), *bench.mergerfs_modes(tiers, tag), *bench.btrfs_of(plan.sets[name], room, tag),
            *bench.braids(tiers, tag)]


def _warn_of_write_back(bench: Bench, plan: Plan) -> None:
    """Says where buffered files are so large that the kernel's own threads, which are not limited, write them back."""
    most = max(load.total for load in plan.loads)
    if bench.host.group.version == 1 and most > written_back_from() and any(group.buffered for group in plan.groups):
        bench.host.warn(f"files of {most >> 20} MiB together are more than the {written_back_from() >> 20} MiB from which on "
                        "the kernel writes back in the background, which is not limited here: choose a smaller --size")


def _one(bench: Bench, plan: Plan, side: sides.Side, group: Group, load: Load) -> None:
    """All patterns of one load on one side, for Braid on each mount of a new volume that was asked for."""
    load = group.load_of(side.name, load)
    if not (plan.mounts and isinstance(side, sides.Braid)):
        _patterns(bench, plan, side, side.name, group, load)
        return
    side.renew()
    if "new" in plan.mounts:
        _patterns(bench, plan, side, f"{side.name}-new", group, load)
    else:
        _use(bench, plan, side, group, load)
    if "known" in plan.mounts:
        side.remount()
        _patterns(bench, plan, side, f"{side.name}-known", group, load)


def _patterns(bench: Bench, plan: Plan, side: sides.Side, name: str, group: Group, load: Load) -> None:
    """All patterns: the files are written first, then used by the others."""
    used = side.used()
    run("mkdir", "-p", side.root / "files", side.root / "timed")
    for pattern in PATTERNS:
        if pattern in plan.patterns or pattern == "write":
            _pattern(bench, side, name, group, load, pattern)
    cell = bench.report.cell(name, f"{group.title}: write {load.text}", "MB/s")
    bench.clear(side, cell, used, load.each * load.count)


def _use(bench: Bench, plan: Plan, side: sides.Side, group: Group, load: Load) -> None:
    """The same work, without keeping figures: the next mount knows all that this one learns."""
    run("mkdir", "-p", side.root / "files")
    for pattern in PATTERNS:
        if pattern in plan.patterns or pattern == "write":
            bench.fio.run(f"first-{pattern}-{side.name}",
                          **group.options(side, load, pattern, "files", _direct(bench, side, group)))
    run("find", side.root, "-mindepth", "1", "-delete", timeout=300)


def _direct(bench: Bench, side: sides.Side, group: Group) -> int:
    return 0 if group.buffered else bench.direct(side)


def _pattern(bench: Bench, side: sides.Side, name: str, group: Group, load: Load, pattern: str) -> None:
    rw, direct = direction(pattern), _direct(bench, side, group)
    what = f"{group.title}: {pattern} {load.text}"
    label = f"{group.title.replace(', ', '-')}-{pattern}-{load.size}-{load.threads}-{name}"
    # Through the page cache, a timed run would end with the copying into it.
    for timed in (False, True) if load.seconds and not group.buffered else (False,):
        if rw == "read":
            side.evict()
        before = side.transferred()
        if timed:
            options = group.timed(side, load, pattern, "timed" if pattern == "write" else "files", direct)
        else:
            options = group.options(side, load, pattern, "files", direct)
        busy = processor_time()
        result = bench.fio.run(label + ("-timed" if timed else ""), **options)
        busy, idle = (now - then for now, then in zip(processor_time(), busy))
        bench.record(side, what + (" timed" if timed else ""), rw, result, before, name=name)
        if not timed and load.size == "4K":
            bench.report.cell(name, f"{what} processors busy", "%").samples.append(100 * busy / max(1, busy + idle))
        if not timed and load.threads == bench.report.settings["latency_threads"]:
            bench.latencies(side, what, result, name)
    if pattern == "write":
        run("find", side.root / "timed", "-type", "f", "-delete")


def _tabulate(report: Report, plan: Plan, begun: list[str], modes: dict[str, str]) -> None:
    """The tables of the device sets that were begun, the summary first."""
    groups = [group for group in plan.groups if group.devices in begun]
    shares.tabulate(report, plan, groups)
    report.table("how each side was set up", ["side", "mode"], [[side, mode] for side, mode in modes.items()])
    for group in groups:
        loads = plan.loads_of(group)
        for pattern in plan.patterns:
            _tabulate_rates(report, plan, group, pattern, loads)
            _against_best(report, plan, group, pattern, loads)
        _tabulate_busy(report, plan, group, [load for load in loads if load.size == "4K"])
        _tabulate_latencies(report, plan, group, loads)


def _tabulate_rates(report: Report, plan: Plan, group: Group, pattern: str, loads: list[Load]) -> None:
    limits = ", ".join(str(limit) for limit in group.limits)
    for size in dict.fromkeys(load.size for load in loads):
        columns = [load for load in loads if load.size == size]
        whole = group.whole(pattern, size)
        rows = [[name, *(_cell(report, name, group, pattern, load, whole) for load in columns)]
                for name in plan.names[group.devices]]
        title = (f"{NAMES[pattern]}, {size}, {group.title} ({limits}): MB/s as fixed work, share of "
                 f"the {number(whole)} MB/s of all tiers" + (", and timed" if columns[0].seconds else ""))
        report.table(title, ["side", *(_head(load) for load in columns)], rows)


def _head(load: Load) -> str:
    return "depth 16" if load.threads == STREAM else f"{load.threads} thread" + ("s" if load.count > 1 else "")


def _cell(report: Report, side: str, group: Group, pattern: str, load: Load, whole: float) -> str:
    what = f"{group.title}: {pattern} {load.text}"
    text = share_text(report, side, what, whole)
    timed = share_text(report, side, f"{what} timed", whole)
    return f"{text} ({timed.split(' = ')[-1]} timed)" if text and timed else text


def _against_best(report: Report, plan: Plan, group: Group, pattern: str, loads: list[Load]) -> None:
    """Braid's sides over the best of the others, by fixed work."""
    names = plan.names[group.devices]
    rows = []
    for name in names:
        if not shares.is_braid(name):
            continue
        row = [name]
        for load in loads:
            what = f"{group.title}: {pattern} {load.text}"
            own, (best, _) = shares.median(report, name, what), shares.best_peer(report, names, what)
            row.append(number(own / best) if own and best else "")
            if own and best:
                report.ratios[f"{what}: {name} / best peer"] = round(own / best, 4)
        rows.append(row)
    if rows and len(rows) < len(names):
        report.table(f"{NAMES[pattern]}, {group.title}: Braid over the best other side (fixed work)",
                     ["side", *(load.text for load in loads)], rows)


def _tabulate_busy(report: Report, plan: Plan, group: Group, loads: list[Load]) -> None:
    """The bound of 4 KiB: near 100 %, it is the processors."""
    for pattern in plan.patterns if loads else []:
        rows = [[name, *(median_text(report, name, f"{group.title}: {pattern} {load.text} processors busy")
                         for load in loads)] for name in plan.names[group.devices]]
        report.table(f"{NAMES[pattern]}, 4K, {group.title}: % of the machine's processors that were busy",
                     ["side", *(_head(load) for load in loads)], rows)


def _tabulate_latencies(report: Report, plan: Plan, group: Group, loads: list[Load]) -> None:
    figures = [(pattern, figure) for pattern in plan.patterns for figure in ("mean", "p50", "p99")]
    for load in loads:
        if load.threads != report.settings["latency_threads"]:
            continue
        rows = [[name, *(median_text(report, name, f"{group.title}: {pattern} {load.text} {figure}")
                         for pattern, figure in figures)] for name in plan.names[group.devices]]
        report.table(f"latency in ms, {load.size}, {load.count} threads, {group.title}, during the fixed work",
                     ["side", *(f"{NAMES[pattern]} {figure}" for pattern, figure in figures)], rows)
