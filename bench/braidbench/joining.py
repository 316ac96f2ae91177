"""Scenario `joining`: given weights beside measured ones. A third tier without a weight joins two
that have one (`add`); or one of three tiers without weights is given one (`set`). Each tier is to
get its fair share of the ranges that `weighted` deals after three seconds of load."""

from __future__ import annotations

from braidbench import sides
from braidbench.devices import MB
from braidbench.evaluation import KIB, MIB, Bench, device_size
from braidbench.host import Host, run
from braidbench.report import Report

SUMMARY = "a tier without a weight joins tiers with weights: its share of what is written"
THREADS = 16
BLOCK = 64 * KIB
LOAD_S = 3
CELLS = ["add", "set"]
# Given as the read bandwidth of the tiers, in MB/s.
GIVEN = {"fast": 400, "slow": 120}


def measure(host: Host, report: Report, args, keep) -> None:
    """Runs the scenario."""
    bench = Bench(host, report, args, keep)
    cells = bench.chosen(CELLS)
    size = args.size or 512 * MIB
    report.settings.update(threads=THREADS, block=BLOCK, size=size, load_seconds=LOAD_S)
    tiers = bench.tiers(3, [device_size(3 * size)] * 3)
    side = sides.Braid("braid-weighted", host, tiers, args.braid, "weighted", keys=tuple(args.volume_key), weights=None)
    names = [tier.name for tier in tiers]
    try:
        bench.each_cell(side, cells, lambda cell: _one(bench, side, cell, size))
    finally:
        report.table("share of what was written after three seconds of load, over the fair share", ["case", *names],
                     [bench.row(side, cell, names) for cell in cells])


def _one(bench: Bench, side: sides.Braid, cell: str, size: int) -> None:
    everything, binary = side.devices, side.binary
    try:
        if cell == "add":
            side.devices, side.weights = everything[:2], GIVEN
        side.renew()
        if cell == "add":
            third = everything[2]
            store = third.mount / f"side-{side.place}"
            run("rm", "-rf", store)
            store.mkdir()
            run(binary, "tier", "add", f"{third.name}={store}", side.root)
        else:
            run(binary, "tier", "set", "fast", f"weight={GIVEN['fast']}", side.root)
        _load(bench, side, f"warm-{cell}", {"time_based": 1, "runtime": f"{LOAD_S}s", "size": size})
        before = [device.transferred()[1] for device in everything]
        _load(bench, side, cell, {"size": size // THREADS, "end_fsync": 1})
        written = [device.transferred()[1] - then for device, then in zip(everything, before)]
    finally:
        side.stop()
        side.devices, side.weights = everything, None
    rates = [device.ceiling("write") / MB for device in everything]
    for device, rate, got in zip(everything, rates, written):
        fair = rate / sum(rates)
        bench.report.cell(side.name, f"{cell}: {device.name}", "").samples.append(got / sum(written) / fair)


def _load(bench: Bench, side: sides.Braid, name: str, options: dict) -> None:
    run("mkdir", "-p", side.root / name)
    bench.fio.run(name, directory=side.root / name, rw="write", bs=BLOCK, numjobs=THREADS, thread=1, direct=1,
                  ioengine="psync", fallocate="none", **options)
