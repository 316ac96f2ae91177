"""The sets of devices that `bandwidth` measures over: the bandwidth of each tier, written and
read."""

from __future__ import annotations

from braidbench.devices import MB, Limit
from braidbench.host import BenchError

# `two` and `three` follow --fast, --slow and --third.
TWO, THREE = "two", "three"
DEFAULT = [TWO, THREE]
FAST = Limit.parse("200/400")
OTHERS: dict[str, tuple[Limit, ...]] = {
    "alike": (Limit.parse("120/200"),) * 2,
    "twenty": (Limit.parse("400/800"), Limit.parse("20/40")),
    # The slower one reads six times as fast as it writes.
    "unlike": (FAST, Limit.parse("40/240")),
    # Small requests meet the limit on operations, large ones that on bytes.
    "latent": (FAST, Limit(100 * MB, 200 * MB, 400)),
}
NAMES = [TWO, THREE, *OTHERS]


def chosen(args) -> dict[str, tuple[Limit, ...]]:
    """The limits of the sets that `--devices` asks for, the fastest tier first."""
    given = {TWO: (args.fast, args.slow), THREE: (args.fast, args.slow, args.third), **OTHERS}
    names = args.devices or DEFAULT
    if unknown := [name for name in names if name not in given]:
        raise BenchError(f"--devices: {', '.join(unknown)}: not one of {', '.join(given)}")
    return {name: given[name] for name in names}


def described() -> str:
    """The sets, for the help."""
    fixed = "; ".join(f"{name}: {' + '.join(map(str, limits))}" for name, limits in OTHERS.items())
    return f"{TWO}: --fast + --slow; {THREE}: and --third; {fixed}"
