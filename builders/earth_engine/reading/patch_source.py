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
    from registry.pins import Pin, PinFile


def metadata_of(source: Any) -> Mapping[str, Any]:
    """What a version keeps; a pin keeps less."""
    one = _one_of(source)
    found = getattr(one, "metadata", None) or one.version.metadata
    custom: Mapping[str, Any] = found.custom
    return custom


def read_of(source: Dataset | Pin | PinFile, split: str | ReadInstruction | None) -> Callable[..., Reader]:
    """What reads the examples of ``split``, given the rest of the arguments."""
    from registry.pins import Pin

    found = _one_of(source)
    if not isinstance(found, Pin):
        return partial(found.read, "train" if split is None else split)
    if split is not None:
        raise UsageError(
            "a pin is of one split expression, and another one is asked for",
            hint=f"Leave it out to read {found.split}.",
            details={"split": str(split)},
        )
    return found.read


def _one_of(source: Any) -> Any:
    """A version or a pin; the one of a file of pins. Raises UsageError for anything else."""
    if isinstance(source, Mapping):  # the file that load_pin gives
        if len(source) == 1:
            return next(iter(source.values()))
        names = list(map(str, source))
        raise UsageError(
            f"{len(names)} pins, and patches are read of one: {', '.join(names[:20])}",
            hint=f"Say which one: load_pin(...)[{names[0]!r}]." if names else None,
            details={"known": names[:100]},
        )
    if not hasattr(source, "read") or not (hasattr(source, "metadata") or hasattr(source, "version")):
        raise UsageError(
            f"{source!r:.60} is no published version and no pin",
            hint="Give catalog.dataset('NAME'); a folder is read by of_files('FOLDER').",
            details={"option": "source"},
        )
    return source
