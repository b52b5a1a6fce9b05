"""Schemas of every kind of leaf with a thousand examples or more each, the same for the same number on every machine.

``case(number)`` makes one, and ``Generated`` is a builder of it whose pieces workers can import. Values have the form
in which they are stored, so that ``statistics_brute_force`` can describe them without decoding a record.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import cycle
from typing import Any, Final, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

import registry
from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    Dataset,
    Feature,
    FeaturesDict,
    Image,
    Scalar,
    Sequence,
    Tensor,
    Text,
    Video,
)
from support.feature_strategies import wave_file

NUM_CASES: Final = 40
NUM_FILES: Final = 3
ORDERS: Final = ((0, 1, 2), (2, 1, 0), (1, 2, 0))
"""The orders in which the three files of a case are read."""

_LARGE: Final = 4200
"""More than 4,096 examples, so that the fold over stored records is divided, too."""

_SMALL: Final = 1100
"""More than 1,024 examples, which is the size of a leaf of digests."""

Chance: TypeAlias = np.random.Generator
Examples: TypeAlias = list[dict[str, Any]]


class Field(NamedTuple):
    """A feature, and a function that draws a number of its values."""

    feature: Feature
    draw: Callable[[Chance, int], list[Any]]


class Case(NamedTuple):
    """A schema and the examples of each split, one of which is empty."""

    features: FeaturesDict
    splits: Mapping[str, Examples]


@lru_cache(2)
def case(number: int) -> Case:
    """The case of a number. Together, the first 40 have every kind of leaf; every fourth is large."""
    chance = np.random.default_rng(number)
    leaves = [LEAVES[(5 * number + place) % len(LEAVES)](chance) for place in range(int(chance.integers(3, 6)))]
    wrap = cycle(CONTAINERS[number % len(CONTAINERS) :] + CONTAINERS[: number % len(CONTAINERS)])
    names = chance.permutation(["z", "é", "a-b", "a/b", "B", "y"]).tolist()
    fields = {name: next(wrap)(leaf, chance) for name, leaf in zip(names, leaves, strict=False)}
    sizes = {"train": _SMALL if number % 4 else _LARGE, "test": 37, "none": 0}
    return Case(
        FeaturesDict({name: field.feature for name, field in fields.items()}),
        {split: examples_of(fields, chance, size) for split, size in sizes.items()},
    )


def examples_of(fields: Mapping[str, Field], chance: Chance, count: int) -> Examples:
    """Draw ``count`` dicts with a value of each field."""
    columns = [field.draw(chance, count) for field in fields.values()]
    return [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]


def plain(field: Field, _: Chance) -> Field:
    return field


def in_a_dict(field: Field, _: Chance) -> Field:
    fields = {"z": field, "a": Field(Scalar("int8"), lambda chance, n: chance.integers(-3, 3, n).tolist())}
    features = FeaturesDict({name: inner.feature for name, inner in fields.items()})
    return Field(features, lambda chance, n: examples_of(fields, chance, n))


def in_a_sequence(field: Field, _: Chance) -> Field:
    return _listed(field, Sequence, lambda chance, n: chance.integers(0, 4, n))


def in_rows_of_three(field: Field, _: Chance) -> Field:
    return _listed(field, Sequence, lambda _, n: np.full(n, 3), length=3)


def in_sequences(field: Field, chance: Chance) -> Field:
    return in_a_sequence(in_a_sequence(field, chance), chance)


def in_a_sequence_of_dicts(field: Field, chance: Chance) -> Field:
    return in_a_sequence(in_a_dict(field, chance), chance) if _may_be_listed(field) else in_a_dict(field, chance)


def in_a_dataset(field: Field, chance: Chance) -> Field:
    if not _may_be_listed(field):
        return field
    return _listed(in_a_dict(field, chance), Dataset, lambda chance, n: chance.integers(0, 3, n))


CONTAINERS: Final = (
    plain,
    in_a_sequence,
    in_a_dict,
    plain,
    in_sequences,
    in_a_sequence_of_dicts,
    plain,
    in_rows_of_three,
    in_a_dataset,
)


def _may_be_listed(field: Field) -> bool:
    """Whether its values may be in a Sequence: not None, nor of a size that only their number tells; zlib is slow."""
    leaf = field.feature
    if isinstance(leaf, FeaturesDict | Sequence):
        return not isinstance(leaf, Video)
    if not isinstance(leaf, Tensor):
        return True
    return not (leaf.optional or leaf.parts[0].size is None or leaf.encoding == "zlib")


def _listed(
    field: Field, kind: type[Sequence], lengths_of: Callable[[Chance, int], Any], length: int | None = None
) -> Field:
    if not _may_be_listed(field):
        return field

    def draw(chance: Chance, count: int) -> list[Any]:
        ends = np.cumsum(lengths_of(chance, count))
        values = field.draw(chance, int(ends[-1]) if count else 0)
        return [values[start:end] for start, end in zip([0, *ends.tolist()], ends.tolist(), strict=False)]

    return Field(kind(field.feature, length), draw)


def numbers_of(chance: Chance, dtype: Any, style: str, count: int, *, is_exact: bool = True) -> npt.NDArray[Any]:
    """Draw numbers: ``same``, ``few``, ``odd`` (the ends of the range, and what is not finite), or ``many``.

    Without ``is_exact``, they are float64 values that float32 has, too.
    """
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return chance.random(count) < {"same": 1.0, "few": 0.0}.get(style, 0.3)
    if dtype.kind in "iu":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        ends = [low, low + 1, 0, 1, high - 1, high, *(2**53 + odd for odd in (1, 3) if high > 2**53)]
        match style:
            case "same":
                return np.full(count, high - 1, dtype)
            case "few":
                return chance.integers(0, 30, count).astype(dtype)
            case "odd":
                return chance.choice(np.array(ends, dtype), count)
        return chance.integers(low, high, count, dtype, endpoint=True)
    form = dtype if is_exact else np.dtype(np.float32)
    limits = ml_dtypes.finfo(form)
    tiny, largest = float(limits.smallest_subnormal), float(limits.max)
    odd = [0.0, -0.0, np.nan, np.inf, -np.inf, largest, -largest, tiny, -3 * tiny, 0.1]
    match style:
        case "same":
            values = np.full(count, chance.choice([3 * tiny, 0.1, -0.0, np.nan]))
        case "few":
            values = chance.choice([-0.0, 0.0, 5 * tiny, tiny, 1.5, -7.25], count)
        case "odd":
            values = chance.choice(np.array(odd), count)
        case _:
            values = chance.normal(size=count) * 10.0 ** chance.integers(-3, 3, count)
    return values.astype(form).astype(dtype)


def tensors(dtype: str, style: str, shape: tuple[int | None, ...] = (), encoding: str = "none") -> Any:
    """Leaves of numbers; some values of those of a known shape are missing, if chance wants it."""

    def make(chance: Chance) -> Field:
        kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
        is_exact = encoding != "none" or kind != np.float64
        is_optional = None not in shape and chance.random() < 0.3
        options: dict[str, Any] = {"dtype": kind, "encoding": encoding, "optional": is_optional}

        def draw(chance: Chance, count: int) -> list[Any]:
            sizes = [np.full(count, size) if size is not None else chance.integers(0, 4, count) for size in shape]
            shapes = np.stack(sizes, axis=1) if shape else np.empty((count, 0), np.int64)
            ends = shapes.prod(axis=1).astype(np.int64).cumsum()
            flat = numbers_of(chance, kind, style, int(ends[-1]) if count else 0, is_exact=is_exact)
            parts = np.split(flat, ends[:-1]) if count else []
            values = [part.reshape(form) if shape else part[0] for part, form in zip(parts, shapes, strict=True)]
            if is_optional:
                values = [None if chance.random() < 0.2 else value for value in values]
            return values

        return Field(Tensor(shape=shape, **options) if shape else Scalar(**options), draw)

    return make


TEXTS: Final = (
    b"",
    b"north",
    b"gr\xc3\xbcn",
    b"\xff\xfe",
    b"ab\xc3",
    b"\x80\x80",
    "😀".encode(),
    ("x" * 79 + "ü" + "y" * 300).encode(),
    b"\xff" + b"z" * 120,
)


def texts(style: str, shape: tuple[int | None, ...] = ()) -> Any:
    """Leaves of texts: ``same``, ``few``, or ``many``, most of which differ. Some are not UTF-8."""

    def make(chance: Chance) -> Field:
        same = chance.integers(len(TEXTS))

        def some(chance: Chance, count: int) -> list[bytes]:
            places = chance.integers(0, len(TEXTS), count).tolist()
            if style == "many":
                return [TEXTS[place] + b"%d" % number for number, place in enumerate(places)]
            return [TEXTS[same if style == "same" else place] for place in places]

        def draw(chance: Chance, count: int) -> list[Any]:
            if not shape:
                return some(chance, count)
            sizes = chance.integers(0, 4, count) if None in shape else np.full(count, shape[0])
            ends = sizes.cumsum()
            flat = some(chance, int(ends[-1]) if count else 0)
            return [flat[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]

        return Field(Tensor(shape=shape, dtype=bytes) if shape else Text(), draw)

    return make


def labels(*, has_names: bool) -> Any:
    """Leaves of classes, some of which never occur; -1 is no label."""

    def make(_: Chance) -> Field:
        label = ClassLabel(names=[f"class {place}" for place in range(9)]) if has_names else ClassLabel(num_classes=5)
        return Field(label, lambda chance, n: chance.integers(-1, 4, n).tolist())

    return make


@cache
def picture_files() -> tuple[bytes, ...]:
    """Images of every mode and of several sizes."""
    files = []
    kinds = [*[(mode, "PNG") for mode in ("L", "LA", "RGB", "RGBA", "I;16", "P")], ("L", "JPEG"), ("RGB", "JPEG")]
    for place, (mode, kind) in enumerate(kinds):
        file = io.BytesIO()
        Pillow.new(mode, (3 + place % 3, 2 + place)).save(file, kind)
        files.append(file.getvalue())
    return tuple(files)


def pictures(_: Chance) -> Field:
    files = [file for file in picture_files() if file[:1] == b"\x89"]
    return Field(Image(shape=(None, None, None)), lambda chance, n: [files[at] for at in chance.integers(0, 4, n)])


def photographs(_: Chance) -> Field:
    image = Image(shape=(None, None, 3), encoding_format="jpeg")
    return Field(image, lambda _, n: [picture_files()[-1]] * n)


def grey_pictures(_: Chance) -> Field:
    image = Image(shape=(None, None, 1), dtype="uint16", encoding_format="png")
    return Field(image, lambda _, n: [picture_files()[4]] * n)


def videos(_: Chance) -> Field:
    frame = picture_files()[2]
    return Field(
        Video(shape=(None, None, None, 3)), lambda chance, n: [[frame] * size for size in chance.integers(0, 3, n)]
    )


@cache
def sound_files() -> tuple[bytes, ...]:
    """WAV files of 0 to 8,000 samples."""
    return tuple(wave_file(np.zeros((length, 1), np.int16)) for length in (0, 1, 100, 100, 8000, 77))


def sounds(_: Chance) -> Field:
    audio = Audio(shape=(None,), dtype="int16", lazy_decode=True, file_format="wav")
    return Field(audio, lambda chance, n: [sound_files()[at] for at in chance.integers(0, 6, n)])


def samples(_: Chance) -> Field:
    lengths, audio = (0, 7, 40), Audio(shape=(None,), dtype="int16", sample_rate=8000)
    return Field(
        audio, lambda chance, n: [chance.integers(-9, 9, lengths[at], np.int16) for at in chance.integers(0, 3, n)]
    )


def boxes(_: Chance) -> Field:
    def draw(chance: Chance, count: int) -> list[Any]:
        corners = np.sort(chance.integers(0, 9, (count, 2, 2)) / np.float32(8), axis=1).astype(np.float32)
        return list(corners.reshape(count, 4))

    return Field(BBox(), draw)


LEAVES: Final[tuple[Callable[[Chance], Field], ...]] = (
    tensors("int64", "many", (3,)),
    texts("few"),
    tensors("float32", "odd", (None,)),
    tensors("bool", "odd"),
    tensors("uint64", "odd"),
    labels(has_names=True),
    tensors("float64", "many", (2, None), "bytes"),
    tensors("bfloat16", "odd", (2,), "bytes"),
    texts("many"),
    tensors("int8", "many", (None, 2)),
    pictures,
    tensors("uint64", "many", (None,)),
    tensors("float16", "odd"),
    tensors("float32", "many", (4,)),
    tensors("float64", "odd", (), "bytes"),
    sounds,
    tensors("int16", "many", (2, 2)),
    texts("few", (None,)),
    tensors("float64", "few", (None, None), "zlib"),
    tensors("int32", "many", (3,), "bytes"),
    labels(has_names=False),
    tensors("float64", "same", (), "zlib"),
    tensors("uint8", "few", (None, None, 2), "bytes"),
    videos,
    tensors("uint16", "odd"),
    texts("same"),
    tensors("bfloat16", "many", (None, None), "bytes"),
    tensors("float64", "many"),
    tensors("uint32", "many", (3,)),
    samples,
    tensors("float16", "many", (3,), "zlib"),
    tensors("int64", "odd", (None,)),
    tensors("bool", "same", (2, None)),
    texts("many", (3,)),
    photographs,
    tensors("float32", "same"),
    tensors("int64", "few", (None, None), "bytes"),
    boxes,
    tensors("float32", "few", (None, 3)),
    grey_pictures,
    tensors("uint8", "same"),
    tensors("bfloat16", "few", (), "bytes"),
    tensors("float64", "many", (3,), "bytes"),
)
"""Each kind of leaf; some of them have more than 10,000 distinct values."""


class Piece(NamedTuple):
    """The examples of one file of a case, in one order of the files. They are stored in another order for each."""

    number: int
    split: str
    order: int
    file: int


def generate(piece: Piece) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the examples of a file, with keys."""
    for place in rows_of(piece.file, len(examples := case(piece.number).splits[piece.split])):
        yield f"{piece.order} {place}", examples[place]


def rows_of(file: int, num_examples: int) -> range:
    """The examples that a file has."""
    return range(file, num_examples, NUM_FILES)


class Generated(registry.DatasetBuilder):
    """A case, from files in one of ``ORDERS``; see ``builder_of``."""

    VERSION = "1.0.0"
    NUMBER = 0
    ORDER = 0

    def features(self) -> FeaturesDict:
        return case(self.NUMBER).features

    def splits(self) -> dict[str, Any]:
        return {
            split: registry.Pieces(
                [Piece(self.NUMBER, split, self.ORDER, file) for file in ORDERS[self.ORDER]],
                generate,
            )
            for split, examples in case(self.NUMBER).splits.items()
            if examples  # a build refuses a split without examples
        }


def builder_of(name: str, number: int, order: int) -> Generated:
    """The builder of a case, as the dataset ``name``."""
    values = {"NUMBER": number, "ORDER": order, "name": name, "__module__": __name__}
    kind: type[Generated] = type(Generated)(name.title().replace("_", ""), (Generated,), values)
    return kind()
