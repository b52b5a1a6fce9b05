"""Of what are patches read? Of a published version, or of a pin, which knows less of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from registry.errors import UsageError
from registry.reading import Reader
from registry.splits import ReadInstruction

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api import Dataset
    from registry.pins import Pin


def metadata_of(source: Any) -> Mapping[str, Any]:
    """What a version keeps; a pin keeps less."""
    found = getattr(source, "metadata", None) or source.version.metadata
    custom: Mapping[str, Any] = found.custom
    return custom


def read_of(source: Dataset | Pin, split: str | ReadInstruction | None) -> Callable[..., Reader]:
    """What reads the examples of ``split``, given the rest of the arguments."""
    from registry.pins import Pin

    if not isinstance(source, Pin):
        return partial(source.read, "train" if split is None else split)
    if split is not None:
        raise UsageError(
            "a pin is of one split expression, and another one is asked for",
            hint=f"Leave it out to read {source.split}.",
            details={"split": str(split)},
        )
    return source.read
