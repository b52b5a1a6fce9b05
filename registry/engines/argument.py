"""The argument ``engine`` of public calls.

Every call of the API is decorated when its module is imported, so this module imports no engine before it is used.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from registry.engines.announcing import announced, chosen_engine
from registry.masking import mask

if TYPE_CHECKING:
    from registry.engines.engine import Engine

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def engine_argument(
    doing: str, *subjects: str, other: str = "data"
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a public call that has an argument ``engine``: it runs in a block of ``use_engine``.

    None means the engine of the surrounding block; without a block, it means this machine. If a cluster does the
    work, one line of the log says so: ``building prices on Ray, with 8 CPUs on 2 nodes``.

    Args:
        doing: what the call does, e.g. ``building``.
        subjects: the arguments that may name its object, e.g. ``builder``; the line names the first that was passed.
        other: what the line names if none was passed.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            engine = cast("str | Engine | None", kwargs.get("engine"))
            if engine is None and chosen_engine.get() is None:
                return function(*args, **kwargs)
            from registry.engines.choice import use_engine

            given = inspect.signature(function).bind_partial(*args, **kwargs).arguments
            named = next((found for one in subjects if (found := _name_of(given.get(one)))), other)
            with ExitStack() as stack:
                if engine is not None:
                    stack.enter_context(use_engine(engine))
                stack.enter_context(announced(f"{doing} {named}", is_new=engine is not None))
                return function(*args, **kwargs)

        return call

    return decorate


def _name_of(value: object) -> str | None:
    """The words for an argument in the line that names the engine; None if it has no name."""
    if isinstance(value, str | os.PathLike):
        return mask(os.fsdecode(value))
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Sequence) and len(value) == 1:
        return _name_of(value[0])
    reference = getattr(value, "reference", None)
    return None if reference is None else str(reference)
