"""Prints the figures of benchmarks/reading.py: a table for each set, and ratios next to their targets."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.readers import OURS, PEERS
from benchmarks.readers.peer import JOBS

Found = dict[tuple[str, str], float]
"""Examples in a second by job and peer; seconds for job v."""

CHECKED_TARGETS: Final = {
    "A": {"i": 1.3, "ii": 2.0, "iii": 2.5, "ivb": 10.0, "v": 2.0},
    "B": {"i": 1.3, "ii": 4.0, "iii": 3.0, "v": 2.0},
    "C": {"i": 3.0, "ii": 3.0, "iii": 3.0, "v": 2.0},
    "A.gz": dict.fromkeys(JOBS, 1.0),
    "B.gz": dict.fromkeys(JOBS, 1.0),
}
MAPPED_TARGETS: Final = {"A": {"iii": 0.6}, "B": {"iii": 0.9}}
TAKE_TARGETS: Final = {"A": {"ivb": 0.67}, "B": {"ivb": 0.67}, "C": {"ivb": 0.67}}
LIMIT_TARGETS: Final = {"C": {"i": 0.6, "ii": 0.6, "iii": 0.6}}
WIDTH: Final = 13


def print_checks(checks: dict[str, dict[str, Any]]) -> None:
    """Who noticed the flipped bit, and which threads were allowed."""
    if checks:
        print("\none bit of an example flipped, and threads")
    for peer, answer in checks.items():
        noticed = "noticed" if answer.get("checks") else "not noticed" if "checks" in answer else "failed"
        print(f"{peer:<14}{noticed:<13}{answer.get('how', answer.get('error', ''))[:60]:<34}{PEERS[peer].threads}")


def print_set(name: str, results: list[dict[str, Any]], checks: dict[str, dict[str, Any]]) -> None:
    """The figures of one set, and their ratios."""
    found = {(result["job"], result["peer"]): result["value"] for result in results if "value" in result}
    jobs = list(dict.fromkeys(result["job"] for result in results))
    peers = [peer for peer in PEERS if any((job, peer) in found for job in jobs)]
    _print_line("1000 examples/s, v: ms", [f"({job})" for job in jobs] + ["cores"])
    for peer in peers:
        cores = [result["cores"] for result in results if result["peer"] == peer and "cores" in result]
        cells = [_figure(job, found.get((job, peer))) for job in jobs]
        _print_line(f"  {peer}", [*cells, f"{min(cores):.1f}-{max(cores):.1f}"])
    for result in results:
        if "error" in result:
            print(f"  {result['peer']}, job {result['job']}: {result['error'][:150]}")
    best = {job: _best(job, found, [peer for peer in peers if checks.get(peer, {}).get("checks")]) for job in jobs}
    _print_ratios("times the best that checks", jobs, found, best, CHECKED_TARGETS.get(name, {}))
    mapped: dict[str, str | None] = {job: "HF" if (job, "HF") in found else None for job in jobs}
    _print_ratios("times unchecked mapped Arrow", jobs, found, mapped, MAPPED_TARGETS.get(name, {}))
    limit: dict[str, str | None] = {job: "limit" if (job, "limit") in found else None for job in jobs}
    take: dict[str, str | None] = {job: "take" if (job, "take") in found else None for job in jobs}
    _print_ratios("share of arrays in memory", jobs, found, take, TAKE_TARGETS.get(name, {}))
    _print_ratios("share of the physical limit", jobs, found, limit, LIMIT_TARGETS.get(name, {}))


def _best(job: str, found: Found, peers: list[str]) -> str | None:
    able = [peer for peer in peers if (job, peer) in found and peer not in OURS]
    if not able:
        return None
    return (min if job == "v" else max)(able, key=lambda peer: found[job, peer])


def _print_ratios(
    title: str, jobs: list[str], found: Found, against: dict[str, str | None], targets: dict[str, float]
) -> None:
    """Our figures divided by those of the peer that a job is held to, and below them the targets."""
    ours = [peer for peer in OURS if any((job, peer) in found for job in jobs)]
    if not ours or not any(against.values()):
        return
    _print_line(title, [against[job] or "-" for job in jobs])
    for peer in ours:
        _print_line(f"  {peer}", [_ratio(job, found.get((job, peer)), found, against[job]) for job in jobs])
    if targets:
        _print_line("  target", [f"{targets[job]:.1f}" if job in targets else "" for job in jobs])


def _ratio(job: str, value: float | None, found: Found, other: str | None) -> str:
    theirs = found.get((job, other)) if other is not None else None
    if not value or not theirs:
        return "-"
    return f"{theirs / value if job == 'v' else value / theirs:.2f}"


def _figure(job: str, value: float | None) -> str:
    if value is None:
        return "-"
    shown = value * 1e3 if job == "v" else value / 1e3
    return f"{shown:,.0f}" if shown >= 100 else f"{shown:.3g}"


def _print_line(title: str, cells: list[str]) -> None:
    print(f"{title:<30}" + "".join(f"{cell:>{WIDTH}}" for cell in cells))
