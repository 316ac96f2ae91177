"""Programs that scenarios run on a side: db_bench and Redis, and their own results."""

from __future__ import annotations

import contextlib
import csv
import re
import subprocess
import time
from pathlib import Path

from braidbench import sides
from braidbench.host import BenchError, Host, run

TIMEOUT_S = 1200
REDIS_VALUE_LEN = 1024
RESULT = re.compile(r":\s+[\d.]+ micros/op (\d+) ops/sec")


def start(host: Host, argv: list[str]) -> subprocess.Popen:
    """Starts a program inside the control group; `finish` has its output."""
    return host.spawn(argv, cwd=host.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True, errors="replace")


def finish(process: subprocess.Popen) -> str:
    """Waits for a program and returns its output."""
    try:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{process.args[0]}: no end after {TIMEOUT_S} s") from None
    finally:
        end(process)
    if process.returncode != 0:
        raise BenchError(f"{process.args[0]}: exit status {process.returncode}: "
                         + " / ".join(said.replace("\r", "\n").strip().splitlines()[-2:]))
    return said


def output(host: Host, argv: list[str]) -> str:
    """Runs a program inside the control group to its end and returns its output."""
    return finish(start(host, argv))


def end(process: subprocess.Popen) -> None:
    """Kills a program that still runs."""
    if process.poll() is None:
        process.kill()
        process.wait()


def operations(said: str) -> float:
    """Operations in a second of the last benchmark that db_bench ran."""
    found = RESULT.findall(said)
    if not found:
        raise BenchError("db_bench gave no result")
    return float(found[-1])


@contextlib.contextmanager
def redis(host: Host, side: sides.Side, *options: str):
    """A Redis server whose files are on the side; yields its socket."""
    socket = host.work / "redis.sock"
    run("mkdir", "-p", side.root / "redis")
    log = host.work / f"redis-{side.place}.out"
    argv = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", str(side.root / "redis"),
            "--logfile", str(log), "--save", "", *options]
    process = host.spawn(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until_answers(process, socket, log)
        yield socket
    finally:
        with contextlib.suppress(BenchError):
            run("redis-cli", "-s", socket, "shutdown", "nosave")
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            end(process)


def _until_answers(process: subprocess.Popen, socket: Path, log: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(BenchError):
            if run("redis-cli", "-s", socket, "ping").strip() == "PONG":
                return
        time.sleep(0.05)
    words = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    raise BenchError(f"redis-server does not answer: {' / '.join(words[-2:])}")


def sets(socket: Path, count: int, keys: int) -> list[str]:
    """The command that sets random ones of `keys` keys."""
    return ["redis-benchmark", "-s", str(socket), "-t", "set", "-n", str(count), "-r", str(keys), "-d",
            str(REDIS_VALUE_LEN), "-c", "16", "-P", "4", "--csv"]


def requests(said: str) -> tuple[float, float]:
    """Requests in a second and their p99 in milliseconds, as redis-benchmark reports them."""
    for row in csv.DictReader(said[said.index('"test"'):].splitlines() if '"test"' in said else []):
        return float(row["rps"]), float(row["p99_latency_ms"])
    raise BenchError("redis-benchmark gave no result")


def until_saved(socket: Path) -> float:
    """The moment when BGSAVE was done."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        state = dict(line.split(":", 1) for line in run("redis-cli", "-s", socket, "info", "persistence").split() if ":" in line)
        if state.get("rdb_bgsave_in_progress") == "0":
            if state.get("rdb_last_bgsave_status") != "ok":
                raise BenchError("redis: BGSAVE failed")
            return time.monotonic()
        time.sleep(0.02)
    raise BenchError("redis: BGSAVE did not end")
