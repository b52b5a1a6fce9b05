"""How is it shown why a look-up gave its version, or none? Sentences, and the table of what was considered."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from registry.cli.output import Output, give_up_stdout
from registry.errors import NotFoundError
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
    rows = [(str(one.version), one.status.value, one.verdict) for one in shown]
    _print_table(out, rows, len(considered), where="--format json lists them all")


@contextmanager
def explained_refusal(out: Output, why: bool) -> Iterator[None]:
    """Where a look-up in this block is refused, ``why`` shows people what it considered, before the error.

    Programs find the same in the ``details`` of the error.
    """
    try:
        yield
    except NotFoundError as error:
        considered = error.details.get("considered")
        if why and considered and not out.as_json:
            named = [one for one in considered[_SHOWN:] if not one["verdict"].startswith("not ")]
            shown = [*considered[:_SHOWN], *named[:_SHOWN]]
            rows = [(one["version"], one["status"], one["verdict"]) for one in shown]
            try:
                _print_table(out, rows, error.details["num_considered"], where="registry versions lists them all")
                sys.stdout.flush()
            except BrokenPipeError:  # a reader who leaves changes nothing: it is refused all the same
                give_up_stdout()
        raise


def _print_table(out: Output, rows: Sequence[tuple[str, str, str]], total: int, *, where: str) -> None:
    out.table(("VERSION", "STATUS", "VERDICT"), rows)
    if total > len(rows):
        out.line(f"and {total - len(rows):,} more; {where}")
    out.line()
