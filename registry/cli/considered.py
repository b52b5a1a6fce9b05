"""How is it shown why a look-up gave its version? Sentences, and the table of what was considered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from registry.cli.output import Output
from registry.model import Considered

_SHOWN: Final = 20


def considered_json(considered: Sequence[Considered]) -> list[dict[str, str]]:
    """Every version considered, for programs."""
    return [{"version": str(one.version), "status": one.status.value, "verdict": one.verdict} for one in considered]


def why_json(sentences: Sequence[str], considered: Sequence[Considered]) -> dict[str, Any]:
    """Why a look-up gave its version, for programs."""
    return {"version": list(sentences), "considered": considered_json(considered)}


def print_considered(out: Output, considered: Sequence[Considered]) -> None:
    """The table of what was considered, for people: the first rows and the one that was chosen."""
    if len(considered) < 2:
        return  # nothing to choose from, and the sentences say so
    shown = list(considered[:_SHOWN])
    shown += [one for one in considered[_SHOWN:] if one.verdict == "chosen"]
    out.table(("VERSION", "STATUS", "VERDICT"), [(str(one.version), one.status.value, one.verdict) for one in shown])
    if len(considered) > len(shown):
        out.line(f"and {len(considered) - len(shown):,} more; --format json lists them all")
    out.line()
