"""Runs fio inside the control group and reads its JSON."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from braidbench.host import BenchError, Host

TIMEOUT_S = 600


@dataclass(frozen=True)
class Result:
    """One fio run, all jobs together."""

    bytes: int
    seconds: float
    operations: float
    latency_ns_mean: float | None
    latency_ns_p50: float | None
    latency_ns_p99: float | None

    @property
    def rate(self) -> float:
        """Bytes per second, until the last byte (and the last sync of a write) was done."""
        return self.bytes / self.seconds

    @property
    def iops(self) -> float:
        return self.operations / self.seconds


class Fio:
    """fio with this run's control group; keeps every raw result in a directory."""

    def __init__(self, host: Host, keep: Path):
        self.host, self.keep, self.count = host, keep, 0
        keep.mkdir(parents=True, exist_ok=True)

    def run(self, label: str, timeout: float = TIMEOUT_S, **options) -> Result:
        """Runs one job; `options` are fio's own, with `_` for `-` left as fio spells them."""
        return self.run_groups(label, [options], timeout)[0]

    def run_groups(self, label: str, groups: list[dict], timeout: float = TIMEOUT_S) -> list[Result]:
        """Runs several kinds of jobs at once; one result for each."""
        process, output = self.start(label, groups)
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise BenchError(f"fio: no end after {timeout:.0f} s") from None
        except BaseException:
            process.kill()
            raise
        return results(output, process.returncode, said, groups)

    def start(self, label: str, groups: list[dict]) -> tuple[subprocess.Popen, Path]:
        """Starts fio and returns at once: its process, and the file of its result."""
        self.count += 1
        output = self.keep / f"{self.count:03}-{label}.json"
        argv = ["fio", "--output-format=json", f"--output={output}"]
        for number, options in enumerate(groups):
            argv += ["--name=bench" if number == 0 else f"--name=bench{number}", "--group_reporting=1"]
            argv += ["--new_group=1"] if number else []
            argv += [f"--{key}={value}" for key, value in options.items()]
        return self.host.spawn(argv, cwd=self.host.work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace"), output


def results(output: Path, status: int, said: str, groups: list[dict]) -> list[Result]:
    """The results of a run of `groups` that has ended."""
    text = output.read_text(errors="replace") if output.exists() else ""
    complaints = [line for line in (said + text).splitlines() if line.startswith("fio:")]
    if status != 0:
        raise BenchError((complaints or said.strip().splitlines() or [f"fio: exit status {status}"])[0])
    try:
        # fio writes its warnings into the same file, before the object.
        jobs = json.loads(text[text.index("{\n"):])["jobs"]
        return [_result(job, options["rw"], complaints) for job, options in zip(jobs, groups)]
    except (ValueError, KeyError):
        raise BenchError(f"fio: unreadable result in {output}") from None


def _result(job: dict, pattern: str, complaints: list[str]) -> Result:
    if job["error"]:
        raise BenchError((complaints or [f"fio: error {job['error']}"])[0])
    side = job["write" if "write" in pattern else "read"]
    percentiles = side["clat_ns"].get("percentile", {})
    if side["runtime"] == 0 or side["total_ios"] == 0:
        raise BenchError("fio: nothing was done")
    return Result(side["io_bytes"], side["runtime"] / 1000, side["total_ios"], side["clat_ns"].get("mean"),
                  percentiles.get("50.000000"), percentiles.get("99.000000"))
