"""Turns NumPy values into tensors and examples into batches. ``frameworks/torch.py`` builds its datasets on this.

columns of a block --to_tensors--> tensors and lists --Collate--> a batch
|
examples, maybe transformed ----------------------------^
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils.data import default_collate

from registry.errors import UsageError, suggest
from registry.features import NestedExamples, Ragged
from registry.features.dtypes import is_bfloat16
from registry.reading.frameworks.arrays import missing_rows

Path: TypeAlias = tuple[str, ...]

_NUMBERS: Final = (torch.Tensor, np.ndarray, np.generic, bool, int, float, complex)


class Padded(NamedTuple):
    r"""Values of different shapes in one tensor.

    >>> batch = collate([{"x": torch.tensor([1, 2, 3])}, {"x": torch.tensor([4])}], pad={"x": 0})
    >>> values, lengths = batch["x"]
    >>> values.tolist(), lengths.tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])
    >>> batch["x"].mask.tolist()
    [[True, True, True], [True, False, False]]

    Attributes:
        values: tensor of shape (batch, \*largest shape); every value starts at index 0 of each dimension.
        lengths: int64. Shape (batch,) if the values have one dimension, else (batch, number of dimensions): the shape
            of each value.
    """

    values: torch.Tensor
    lengths: torch.Tensor

    @property
    def mask(self) -> torch.Tensor:
        """A bool tensor of the shape of ``values``: True for stored entries, False for padding."""
        sizes = self.lengths.reshape(len(self.values), -1)
        mask = torch.ones(self.values.shape, dtype=torch.bool, device=self.values.device)
        for dimension, size in enumerate(self.values.shape[1:]):
            within = torch.arange(size, device=sizes.device) < sizes[:, dimension, None]
            ones = [1] * (self.values.ndim - 1)
            ones[dimension] = size
            mask &= within.reshape(-1, *ones).to(mask.device)
        return mask


class GatheredExamples(Sequence[Any]):
    """The examples of one ``ReaderDataset.__getitems__``, created when one of them is used.

    torch passes them to its ``collate_fn`` unchanged, so that ``Collate`` uses their columns as the batch, instead of
    dividing columns into examples and stacking these again.
    """

    def __init__(
        self, size: int, *, examples: Callable[[], Iterator[Any]], batch: Callable[[], Any], collate: Collate
    ) -> None:
        """Hold ``size`` examples. ``batch`` returns the same as ``collate`` of a list of ``examples``."""
        self._size = size
        self._create = examples
        self.batch = batch
        self.collate = collate

    @cached_property
    def _examples(self) -> list[Any]:
        return list(self._create())

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return self._examples[index]


@dataclass(frozen=True)
class Collate:
    """A ``collate_fn`` for ``torch.utils.data.DataLoader``. It can be pickled.

    Numbers, arrays and tensors of one shape and dtype are stacked. Text, bytes, lists and other objects become a list.
    Dicts, tuples and named tuples are merged entry by entry. The type of each entry of a batch depends on ``pad`` and
    on the types of the values, never on their shapes.

    Attributes:
        pad: what to do with values that differ in shape or may be None, by path: keys and tuple positions joined
            by ``/``, such as ``"tokens"``, ``"place/name"`` or, in a pair, ``"0"``. A number pads
            them with that number and gives a ``Padded``; None gives a list.
    """

    pad: Mapping[str, float | None] = field(default_factory=dict)

    def __call__(self, examples: Sequence[Any]) -> Any:
        """The batch of ``examples``, nested as they are. See ``collate`` for its errors."""
        if isinstance(examples, GatheredExamples) and examples.collate == self:
            return examples.batch()
        seen: set[str] = set()
        rows = list(examples)
        try:
            batch = self._merge(rows, (), seen)
        except UsageError as error:
            names = sorted(_paths(rows[0]))
            for path in self.pad:
                if path not in names:  # probably a misspelling of the value in the error
                    hints = (suggest(path, [name for name in names if name], have="They have:"), error.hint)
                    raise UsageError(
                        f"{error}; and pad names {path!r}, which the examples do not have",
                        hint=" ".join(filter(None, hints)) or None,
                        details=error.details,
                    ) from error
            raise
        for path in self.pad:
            if path not in seen and seen:
                raise UsageError(
                    f"pad names {path!r}, which the examples do not have",
                    hint=suggest(path, sorted(seen - {""}), have="They have:"),
                    details={"path": path},
                )
        return batch

    def columns(self, columns: Mapping[str, Any], at: Path = ()) -> dict[str, Any]:
        """Return the batch of columns that a reader decoded: equal to collating their examples, and faster.

        Args:
            columns: a dict of arrays, nested as an example is, whose first dimension counts examples.
            at: the path of ``columns`` in the example, for the names in ``pad``.
        """
        batch: dict[str, Any] = {}
        for name, column in columns.items():
            path = (*at, name)
            if isinstance(column, Mapping):
                batch[name] = self.columns(column, path)
                continue
            values = to_tensors(column)
            key = "/".join(path)
            if key in self.pad:
                values = self._pad(values if isinstance(values, list) else list(values.unbind()), key)
            batch[name] = values
        return batch

    def _merge(self, values: list[Any], at: Path, seen: set[str]) -> Any:
        if not values:
            return []
        path, first = "/".join(at), values[0]
        seen.add(path)
        if path in self.pad:
            return self._pad([to_tensors(value) for value in values], path)
        if isinstance(first, NestedExamples):
            values = [to_tensors(value) for value in values]
            first = values[0]
        if isinstance(first, Mapping):
            _require(all(isinstance(value, Mapping) and value.keys() == first.keys() for value in values), path, "keys")
            return {name: self._merge([value[name] for value in values], (*at, str(name)), seen) for name in first}
        if isinstance(first, tuple):
            _require(
                all(isinstance(value, tuple) and len(value) == len(first) for value in values),
                path,
                "lengths of tuples",
            )
            merged = [
                self._merge([value[place] for value in values], (*at, str(place)), seen) for place in range(len(first))
            ]
            return type(first)(*merged) if hasattr(first, "_fields") else tuple(merged)
        return _stack(values, path)

    def _pad(self, values: list[Any], path: str) -> Any:
        filler = self.pad[path]
        return values if filler is None else _pad_tensors(values, filler, path)


def collate(examples: Sequence[Any], *, pad: Mapping[str, float | None] | None = None) -> Any:
    """Merge examples into a batch: a ``collate_fn`` for ``torch.utils.data.DataLoader``.

    ``reader.to_torch(...).collate`` is usually better, because it also knows which features vary in shape.

    >>> examples = [{"x": np.float32(1), "name": b"a"}, {"x": np.float32(2), "name": b"b"}]
    >>> collate(examples)
    {'x': tensor([1., 2.]), 'name': [b'a', b'b']}

    Args:
        examples: dicts, tuples or single values, nested alike. Leaves are tensors, arrays, numbers, text or bytes.
        pad: how to merge values that differ in shape or may be None; see ``Collate``. To set it for a loader, write
            ``functools.partial(registry.torch.collate, pad={"tokens": 0})``.

    Returns:
        Tensors with a first dimension of ``len(examples)``, ``Padded`` or lists, nested as an example is.

    Raises:
        UsageError: values differ in shape, dtype or structure, or are None, and ``pad`` does not name them; or ``pad``
            names something that cannot be padded.
    """
    return Collate(pad or {})(examples)


def to_tensors(value: Any) -> Any:
    """``value`` of an example or of a batch, with tensors for NumPy numbers and arrays.

    A value without a tensor becomes a list: of ``bytes``, of tensors that differ in shape, or of such lists for a
    Ragged. A Dataset is converted like a Sequence. A missing value is None, and a masked column is a list of tensors
    and None.
    """
    if isinstance(value, dict):
        return {name: to_tensors(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return to_tensors(value.columns())
    if isinstance(value, np.ma.MaskedArray):
        return _with_none(value)
    if isinstance(value, np.ndarray) and value.dtype == object and value.size and isinstance(value.flat[0], bytes):
        return value.tolist()  # text, so the elements need no check
    if isinstance(value, np.generic):
        return to_tensors(np.array(value))
    if isinstance(value, Ragged) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [to_tensors(inner) for inner in value]
    if isinstance(value, np.ndarray) and is_bfloat16(value.dtype):
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return bytes(value) if isinstance(value, memoryview) else value


def examples_of(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The examples of a batch, as tensors: views of the batch's."""
    lists = _lists(columns)
    for place in range(_size(lists)):
        yield _pick(lists, place)


def _stack(values: list[Any], path: str) -> Any:
    """Values of one shape as a tensor; text and other objects as a list."""
    missing = next((place for place, value in enumerate(values) if value is None), None)
    if missing is not None:
        raise UsageError(
            f"{_name(path)} of example {missing} of this batch is None, which a tensor cannot represent",
            hint=f"Choose a value, reader.fill_missing({{{path!r}: 0}}), or keep a list, pad={{{path!r}: None}}.",
            details={"path": path},
        )
    if not isinstance(values[0], _NUMBERS):
        return [to_tensors(value) for value in values]
    if all(isinstance(value, bool | int | float | complex) for value in values):
        return default_collate(values)  # torch's dtypes for Python's numbers: int64, float64, bool
    found = [to_tensors(value) for value in values]
    rows = [item if isinstance(item, list | torch.Tensor) else torch.as_tensor(item) for item in found]
    if isinstance(rows[0], list):  # an array of objects, such as a Sequence of Text
        return rows
    for subject, read in (("shape", lambda row: tuple(row.shape)), ("dtype", lambda row: row.dtype)):
        first = read(rows[0])
        for row in rows:
            if not isinstance(row, torch.Tensor) or read(row) != first:
                other = read(row) if isinstance(row, torch.Tensor) else "a list"
                raise UsageError(
                    f"{_name(path)} differs in {subject} within a batch: {first} and {other}",
                    hint=f"Pad it, pad={{{path!r}: 0}}, or keep a list of tensors, pad={{{path!r}: None}}. "
                    f"Or give all values one {subject} in transform=.",
                    details={"path": path},
                )
    return default_collate(rows)  # stacks; in a worker process, straight into shared memory


def _pad_tensors(values: list[Any], filler: float, path: str) -> Padded:
    rows = [
        value if isinstance(value, torch.Tensor) or not isinstance(value, _NUMBERS) else torch.as_tensor(value)
        for value in values
    ]
    wrong = next((row for row in rows if not isinstance(row, torch.Tensor)), None)
    if wrong is not None or rows[0].ndim == 0 or len({(row.ndim, row.dtype) for row in rows}) > 1:
        subject = "is not a tensor in every example" if wrong is not None else (
            "has no dimension" if rows[0].ndim == 0 else "differs in dtype or number of dimensions"
        )  # fmt: skip
        raise UsageError(
            f"{_name(path)} cannot be padded: it {subject}",
            hint=f"Keep a list: pad={{{path!r}: None}}.",
            details={"path": path},
        )
    dtype = rows[0].dtype
    shapes = torch.tensor([row.shape for row in rows], dtype=torch.int64)
    values_shape = (len(rows), *shapes.max(dim=0).values.tolist())
    try:
        padded = torch.full(values_shape, filler, dtype=dtype)
        fits = dtype.is_floating_point or dtype.is_complex or torch.tensor(filler, dtype=dtype).item() == filler
    except (RuntimeError, TypeError, OverflowError, ValueError):
        fits = False
    if not fits:
        raise UsageError(
            f"{_name(path)} is {str(dtype).removeprefix('torch.')} and cannot be padded with {filler!r:.60}",
            hint=f"Pad with a number of that dtype, e.g. pad={{{path!r}: 0}}.",
            details={"path": path},
        )
    for place, row in enumerate(rows):
        padded[(place, *map(slice, row.shape))] = row
    return Padded(padded, shapes[:, 0] if shapes.shape[1] == 1 else shapes)


def _paths(value: Any, at: Path = ()) -> set[str]:
    """The names that ``pad`` may use for an example."""
    result = {"/".join(at)}
    if isinstance(value, NestedExamples):
        value = to_tensors(value)
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple) else ()
    return result.union(*(_paths(inner, (*at, str(name))) for name, inner in entries))


def _require(agree: bool, path: str, subject: str) -> None:
    if not agree:
        raise UsageError(
            f"{_name(path)}: the {subject} differ within a batch",
            hint="Return the same structure for every example from transform=.",
            details={"path": path},
        )


def _name(path: str) -> str:
    return repr(path) if path else "an example"


def _with_none(column: np.ma.MaskedArray[Any, Any]) -> list[Any]:
    tensors = to_tensors(column.data)
    rows = tensors if isinstance(tensors, list) else list(tensors.unbind())
    for place in np.flatnonzero(missing_rows(column)).tolist():
        rows[place] = None
    return rows


def _lists(columns: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, Mapping):
            result[name] = _lists(column)
        else:
            values = to_tensors(column)
            result[name] = values if isinstance(values, list) else values.unbind()
    return result


def _pick(lists: Mapping[str, Any], place: int) -> dict[str, Any]:
    return {name: _pick(column, place) if isinstance(column, dict) else column[place] for name, column in lists.items()}


def _size(lists: Mapping[str, Any]) -> int:
    return max((_size(column) if isinstance(column, dict) else len(column) for column in lists.values()), default=0)
