"""The errors of inputs of ``Pieces`` that cannot be used, and the one error of a build that names all of them.

    exception  --in the process that reads the input-->  Failure  --in the one that builds-->  BuildError

Twenty inputs often fail for the same reason. The message therefore groups failures by exception and line of author
code, with one short line for each input. ``details`` has all facts about each failure, for ``--format json``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from registry.building.author_code import text_of
from registry.building.keys import label_of, shorten
from registry.engines import REACH_HINT
from registry.errors import BuildError, FeatureError
from registry.masking import mask

MOST_FAILED: Final = 20
"""The number of inputs that may fail before a build ends: all of them are named."""

_LINE_WIDTH: Final = 80
_LEAST_TEXT: Final = 30
_MOST_HEAD: Final = 240
_LEAST_NAME: Final = 3
"""The minimum length of an input's name: a shorter one may be part of any word."""
_MOST_SHOWN: Final = 3
"""Tracebacks, and hints."""


class Failure(NamedTuple):
    """An input that cannot be used.

    Attributes:
        label: the input, as errors show it.
        error: its error.
        kind: the class of the author's exception; empty if an example is invalid.
        problem: the fault on one line, without the place. The name of the input is replaced by ``…``.
        position: where in the input, e.g. ``after 3 examples``; empty for its beginning.
        missing: the path of a file that was not found, empty if unknown; None for any other problem.
    """

    label: str
    error: BuildError | FeatureError
    kind: str
    problem: str
    position: str
    missing: str | None

    @classmethod
    def of(cls, given: Any, error: BuildError | FeatureError, *, where: str) -> Failure:
        """The failure of an input whose errors begin with ``where``. Called where it was read: causes are not sent."""
        label, cause, details = label_of(given), error.__cause__, error.details
        missing = next((link for link in _chain(cause) if isinstance(link, FileNotFoundError)), None)
        path = None if missing is None else _path_of(missing)
        key, count = details.get("key"), details.get("position")
        if "traceback" in details and cause is not None:
            position = f"after {count} example{'' if count == 1 else 's'}" if count else f"key {key}" if key else ""
            return cls(label, error, type(cause).__name__, _problem(given, text_of(cause)), position, path)
        problem = error.message.removeprefix(mask(where)).removesuffix(f" ({details.get('where')})")
        position = f"key {key}" if key else "" if count is None else f"example {count}"
        for said in (f", example with key {key}", f", example {count}", ": "):
            problem = problem.removeprefix(said)
        return cls(label, error, "", _problem(given, problem), position, path)


def failed_inputs(split: str, failures: Sequence[Failure], *, is_elsewhere: bool) -> BuildError | FeatureError:
    """The error for inputs that failed: that of the only one, or one that names all, up to ``MOST_FAILED``.

    Args:
        split: the name of the split.
        failures: what failed.
        is_elsewhere: whether other machines read the inputs, which may lack files of this one.
    """
    first = failures[:MOST_FAILED]
    if is_elsewhere:
        for failure in first:
            if failure.missing is not None:
                failure.error.rephrase(hint="\n".join(filter(None, (failure.error.hint, _reach_hint(failure.missing)))))
    if len(first) == 1:
        return first[0].error
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in first:
        groups.setdefault((failure.kind, failure.error.details.get("where", "")), []).append(failure)
    ended = ", and the build ended" if len(failures) >= MOST_FAILED else ""
    lines = [f"split {split!r}: {len(first)} inputs failed{ended}"]
    for (kind, place), group in groups.items():
        lines += _group_lines(kind, place, group, is_only=len(groups) == 1)
    hints = dict.fromkeys(failure.error.hint for failure in first if failure.error.hint is not None)
    firsts = (group[0].error.details for group in groups.values())
    tracebacks = [details["traceback"] for details in firsts if "traceback" in details][:_MOST_SHOWN]
    return BuildError(
        "\n".join(lines),
        hint="\n".join(list(hints)[:_MOST_SHOWN]) or None,
        details={
            "split": split,
            "inputs": [
                {"input": failure.label, "error": failure.error.message, **failure.error.details} for failure in first
            ],
            **({"traceback": "\n".join(tracebacks)} if tracebacks else {}),
        },
    )


def with_failures(error: BuildError, failed: BuildError | FeatureError) -> BuildError:
    """Return the error that ended a build, followed by the error of the inputs that had failed before."""
    hints = [fault.hint for fault in (error, failed) if fault.hint is not None]
    return BuildError(
        f"{error.message}\nBefore that, {failed.message}",
        hint="\n".join(dict.fromkeys(hints)) or None,
        details={**failed.details, **error.details, "failed": failed.details.get("inputs", [failed.message])},
    )


def _group_lines(kind: str, place: str, group: Sequence[Failure], *, is_only: bool) -> Iterator[str]:
    """Format the failures at a line of author code: the problem, then the inputs, with problems that differ."""
    is_same = len({failure.problem for failure in group}) == 1
    head = shorten(group[0].problem, _MOST_HEAD) if is_same else kind or "invalid examples"
    count = "" if is_only else f"{len(group)} input{'' if len(group) == 1 else 's'}: "
    yield f"  {count}{head}" + (f" ({place})" if place else "")
    for failure in group:
        line = f"    {failure.label}"
        if failure.position:
            line += f", {shorten(failure.position, max(_LEAST_TEXT, _LINE_WIDTH - len(line) - 2))}"
        if not is_same:
            text = failure.problem.removeprefix(f"{kind}: ").removeprefix("…: ")
            line += f": {shorten(text, max(_LEAST_TEXT, _LINE_WIDTH - len(line) - 2))}"
        yield line


def _problem(given: Any, text: str) -> str:
    """``text`` on one line, without the name of the input: ``No such file or directory: 'a.csv'`` is equal for all."""
    if isinstance(given, str | os.PathLike) and len(name := os.fsdecode(given)) >= _LEAST_NAME:
        text = text.replace(repr(name), "…").replace(name, "…")
    return mask(" ".join(text.split()))


def _reach_hint(missing: str) -> str:
    """Return the hint for a file that another machine did not find."""
    if not missing or not os.path.exists(missing):  # noqa: PTH110 (a text of any kind)
        return f"Check the path. {REACH_HINT}"
    if not Path(missing).is_absolute():
        return f"Write absolute paths: nodes do not work in the current folder of this machine. {REACH_HINT}"
    return f"The path exists on this machine, but not on the node that tried to read it. {REACH_HINT}"


def _path_of(error: FileNotFoundError) -> str:
    name: Any = error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, because libraries often replace the exception of the system."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
