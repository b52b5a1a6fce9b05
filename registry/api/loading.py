"""Look-up and read in one call."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

from registry.api.catalog import Catalog, connect
from registry.api.dataset import Dataset
from registry.api.lock import current_lock
from registry.api.moments import Moment
from registry.api.references import parse_reference
from registry.errors import YankedVersionWarning
from registry.model import Reference, SlicingRule
from registry.splits import ReadInstruction

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    from registry.order import ReadConfig
    from registry.reading import Reader

Expression: TypeAlias = str | ReadInstruction
SplitArgument: TypeAlias = Expression | list[Expression] | tuple[Expression, ...] | dict[str, Expression] | None


def load(
    reference: str | Reference,
    split: SplitArgument = None,
    read_config: ReadConfig | None = None,
    *,
    slicing: SlicingRule | str | None = None,
    rounding: str | None = None,
    at: Moment | None = None,
    catalog: Catalog | None = None,
) -> Any:
    """Look a dataset up and read it, in one call.

    ``split`` may be an expression, or a list, tuple or dict of expressions; the answer has its shape. None gives a dict
    with every split. ``read_config`` is that of ``Dataset.read``, ``slicing`` and ``rounding`` are those of
    ``Dataset.resolve``, ``at`` that of ``Catalog.dataset``.

        registry.load("digits:1.*", split=["train[:80%]", "train[80%:]"])
    """
    dataset = find_dataset(reference, at=at, catalog=catalog)
    if dataset.yank_note is not None:
        warnings.warn(dataset.yank_note, YankedVersionWarning, stacklevel=2)

    def read(expression: str | ReadInstruction) -> Reader:
        return dataset.read(expression, read_config, slicing=slicing, rounding=rounding)

    if split is None and (pins := getattr(dataset, "pins", None)):
        return {pin.name: pin.read(read_config) for pin in pins}
    if split is None:
        return {name: read(name) for name in dataset.splits}
    if isinstance(split, dict):
        return {key: read(expression) for key, expression in split.items()}
    if isinstance(split, (list, tuple)):
        readers = [read(expression) for expression in split]
        return tuple(readers) if isinstance(split, tuple) else readers
    return read(split)


def find_dataset(reference: str | Reference, *, at: Moment | None = None, catalog: Catalog | None = None) -> Dataset:
    """As ``Catalog.look_up``, in ``catalog`` or the default one; locked to a pin file, in none."""
    lock = current_lock()
    if lock is not None and lock.pins is not None:
        from registry.api.pinned import find_pinned

        return find_pinned(lock.pins, parse_reference(reference), at=at)
    return (catalog or connect()).look_up(reference, at=at)
