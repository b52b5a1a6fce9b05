"""Values of examples for people: class names, dates and times, and descriptions of files.

    reader of stored files (``file_features``) --example--> ``converter_of`` --texts in place of numbers--> ``text_of``

``registry head``, ``diff``, ``stats`` and notebooks use the same functions, so a value looks the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from registry.errors import CorruptExampleError
from registry.escaping import printable, size
from registry.features import Audio, ClassLabel, Dataset, Feature, FeaturesDict, Image, Sequence, Tensor, Text
from registry.features.containers import columns_of
from registry.features.feature import TEXT, Leaf
from registry.features.nested import NestedExamples
from registry.lazy import np
from registry.model import DatasetMetadata

Convert: TypeAlias = Callable[[Any], Any]

_ARROW_TYPES: Final = "arrow_types"
"""The key of the custom metadata that holds types that features do not tell, by path.

They are those of times, of decimals, which are stored as text, and of bytes with nulls.
"""

_DESCRIBED: Final = re.compile(r"(\S.*?): (?:days|seconds|(?:milli|micro|nano)seconds)(?: since [^.]*)?\.")
"""The description of a feature of an import that holds dates, times or durations, see ``shards.arrow_schema``."""

_DESCRIBED_FILES: Final[dict[str, Literal["image", "audio"]]] = {
    "The bytes of an image file.": "image",
    "The bytes of an audio file.": "audio",
}
"""The descriptions of files that an import keeps as bytes, see ``shards.arrow_schema``."""

_Lists: TypeAlias = tuple[bool, ...]

_DAY: Final = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_MOST_ITEMS: Final = 6
_MOST_LETTERS: Final = 200


class TimeType(NamedTuple):
    """What the integers of a feature count: days, or units since 1970, since midnight, or of a duration."""

    kind: str
    unit: str
    zone: str | None = None

    def __str__(self) -> str:
        bits = ("32" if self.is_short else "64") if self.kind in ("date", "time") else ""
        unit = self.unit if self.zone is None else f"{self.unit}, tz={self.zone}"
        return f"{self.kind}{bits}" if self.kind == "date" else f"{self.kind}{bits}[{unit}]"

    @property
    def is_short(self) -> bool:
        """Whether Arrow stores it in 32 bits."""
        return self in _SHORT


_SHORT: Final = (TimeType("date", "D"), TimeType("time", "s"), TimeType("time", "ms"))
_TIME_TYPES: Final = {
    **{f"{kind}[{unit}]": TimeType(kind, unit) for kind in ("timestamp", "duration") for unit in _DAY},
    **{f"time{bits}[{unit}]": TimeType("time", unit) for bits, unit in ((32, "s"), (32, "ms"), (64, "us"), (64, "ns"))},
    **dict.fromkeys(("date32", "date32[day]"), TimeType("date", "D")),
    **dict.fromkeys(("date64", "date64[ms]"), TimeType("date", "ms")),
}

Times: TypeAlias = Mapping[str, TimeType]
"""The features that hold dates, times and durations, by path."""


def parse_time_type(text: str) -> TimeType | None:
    """The type of dates, times or durations that Arrow writes as ``text``, or None for any other text.

    >>> parse_time_type("timestamp[us, tz=Europe/Berlin]"), parse_time_type("int64")
    (TimeType(kind='timestamp', unit='us', zone='Europe/Berlin'), None)
    """
    match = re.fullmatch(r"(timestamp\[..?), tz=([^\]]+)\]", text)
    time = _TIME_TYPES.get(f"{match[1]}]" if match else text)
    return time._replace(zone=match[2]) if time and match else time


def named_types(metadata: DatasetMetadata | None) -> Mapping[str, Any]:
    """The types that the custom metadata of a version that was added names, by path. A pin records no metadata."""
    named = None if metadata is None else metadata.custom.get(_ARROW_TYPES)
    return named if isinstance(named, Mapping) else {}


def time_types(features: FeaturesDict, metadata: DatasetMetadata | None = None) -> Times:
    """The features that hold dates, times and durations, by path.

    The custom metadata of a version that was added names their types, and so do the descriptions of an import's
    features. A type that is malformed, or has other integers than the feature, is ignored: its values are numbers.
    """
    named = named_types(metadata)
    result = {column.path: time_type_of(column.leaf, named.get(column.path)) for column in columns_of(features)}
    return {path: time for path, time in result.items() if time is not None}


def time_type_of(leaf: Leaf, name: Any = None) -> TimeType | None:
    """The type of dates, times or durations in a leaf of a schema: ``name``, else the type in its description."""
    described = _DESCRIBED.fullmatch(leaf.description)
    text = described[1] if name is None and described else name
    time = parse_time_type(text) if isinstance(text, str) else None
    return time if time is not None and leaf.dtype == (np.int32 if time.is_short else np.int64) else None


def moment_text(value: int, time: TimeType, *, iso: bool = False) -> str | None:
    """A date, time or duration as text; None if the value is outside the type.

    >>> moment_text(19730, TimeType("date", "D")), moment_text(1704715380120, TimeType("timestamp", "ms", "UTC"))
    ('2024-01-08', '2024-01-08 12:03:00.12Z')
    >>> moment_text(90, TimeType("time", "s")), moment_text(90_061_000, TimeType("duration", "ms"))
    ('00:01:30', '1 day 01:01:01')
    """
    if not -(2**63) < value < 2**63:
        return None
    if time.kind == "duration" and iso:
        seconds, rest = divmod(abs(value), _DAY[time.unit] // 86_400)
        digits = len(str(_DAY[time.unit] // 86_400)) - 1
        return f"{'-' * (value < 0)}PT{_without_zeros(f'{seconds}.{rest:0{digits}}')}S"
    if time.kind == "duration":
        days, rest = divmod(abs(value), _DAY[time.unit])
        text = f"{days:,} day{'s' * (days != 1)} " if days else ""
        return f"{'-' * (value < 0)}{text}{_clock(rest, time.unit)}"
    if time.kind == "time":
        return _clock(value, time.unit) if 0 <= value < _DAY[time.unit] else None
    instant = _instant(value, time.unit)
    if time.kind == "date":
        return str(instant.astype("M8[D]"))
    text = _without_zeros(str(instant))
    return (text if iso else text.replace("T", " ")) + "Z" * (time.zone is not None)


_MOMENT: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)?(?:(?<=\d)[T ](?=\d))?(?P<time>\d\d:\d\d(?::\d\d(?:\.(?P<fraction>\d{1,9}))?)?)?Z?"
)


def parse_moment_text(text: str, time: TimeType) -> int | None:
    """The number of a date or a time of day as ``moment_text`` writes it; None if it is malformed or too precise.

    >>> parse_moment_text("2024-01-08 12:03:00.12Z", TimeType("timestamp", "ms", "UTC"))
    1704715380120
    >>> parse_moment_text("2024-01-08", TimeType("date", "D")), parse_moment_text("00:01:30", TimeType("time", "s"))
    (19730, 90)
    """
    match = _MOMENT.fullmatch(text)
    kinds = {"date": ("date",), "time": ("time",)}.get(time.kind, ("date", "time"))
    if match is None or time.kind == "duration" or not match[kinds[0]] or (match["time"] and "time" not in kinds):
        return None
    if match["date"] and "date" not in kinds:
        return None
    try:
        moment = np.datetime64(
            f"{match['date'] or '1970-01-01'}T{(match['time'] or '00:00:00').partition('.')[0]}", "s"
        )
    except ValueError:  # the 31st of April
        return None
    per_second = Fraction(1, 86_400) if time.unit == "D" else Fraction(_DAY[time.unit], 86_400)
    value = (int(moment.astype(np.int64)) + Fraction(f"0.{match['fraction'] or 0}")) * per_second
    return int(value) if value.denominator == 1 else None


def _clock(value: int, unit: str) -> str:
    return _without_zeros(str(_instant(value, unit))[11:])


def _instant(value: int, unit: str) -> Any:
    return np.array(value).astype(f"M8[{unit}]")


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def file_features(feature: Any) -> Any:
    """``feature`` in a form that reads the files of images and sounds as bytes, and everything else as before."""
    if isinstance(feature, FeaturesDict):
        return FeaturesDict({name: file_features(inner) for name, inner in feature.items()})
    if isinstance(feature, Sequence):
        inner = file_features(feature.feature)
        kind = Dataset if isinstance(feature, Dataset) else Sequence
        return feature if inner is feature.feature else kind(inner, length=feature.length)
    is_decoded = isinstance(feature, Image) or (isinstance(feature, Audio) and feature.lazy_decode)
    return Tensor(shape=(), dtype=bytes) if is_decoded else feature


def media_kind(feature: Feature) -> Literal["image", "audio"] | None:
    """The kind of files that a feature stores, or None if it does not store files.

    An import stores an image that is not PNG or JPEG, and a sound that it cannot decode, as bytes with a description.
    """
    if isinstance(feature, Image):
        return "image"
    if isinstance(feature, Audio):
        return "audio" if feature.lazy_decode else None
    if not isinstance(feature, Tensor) or isinstance(feature, Text) or feature.shape or feature.dtype != TEXT:
        return None
    return _DESCRIBED_FILES.get(feature.description)


def describe_file(data: bytes) -> str:
    """Describe a stored image or sound from its header: ``32x24 px`` is the width and the height of an image.

    >>> describe_file(b"RIFF....")
    'file, 8 B'
    """
    num_bytes = size(len(data))
    from registry.statistics.media import read_image_header, read_sound_header

    if image := read_image_header(data):
        mode = "grey" if image.mode == "L" else image.mode
        return f"{image.width}x{image.height} px {mode} {image.format}, {num_bytes}"
    sound = read_sound_header(data)
    if sound is None:
        return f"file, {num_bytes}"
    seconds = None if sound.length is None or not sound.sample_rate else sound.length / sound.sample_rate
    rate = f"{sound.sample_rate:,} Hz " if sound.sample_rate else ""
    return f"{_sound_text(seconds)}{rate}{sound.format}, {num_bytes}"


def _sound_text(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3g} s, " if seconds < 100 else f"{seconds:,.0f} s, "


def converter_of(
    feature: Feature,
    times: Times,
    *,
    nullable: frozenset[str] = frozenset(),
    names: bool = True,
    files: bool = True,
    iso: bool = False,
    objects: bool = False,
    path: str = "",
    lists: _Lists = (),
) -> Convert | None:
    """A function from a value to the same value with texts in place of numbers and files; None if nothing changes.

    Args:
        feature: the schema of the value.
        times: see ``time_types``.
        nullable: see ``DatasetMetadata.nullable_paths``; their lists become null or the value.
        names: write classes by name, and dates, times and durations as text.
        files: describe files, which the value has as bytes (it was read with ``file_features``), and samples of sounds.
        iso: write times in ISO 8601, and leave samples as they are, for programs.
        objects: make a list of dicts from the dict of lists that a list of dicts is read as.
        path: the path of the feature, with ``[]`` for each list around it.
        lists: whether each of these lists is a value that may be null, outermost first.
    """
    options: dict[str, Any] = {"names": names, "files": files, "iso": iso, "objects": objects, "lists": lists}
    again: Callable[..., Convert | None] = partial(converter_of, times=times, nullable=nullable, **options)
    if isinstance(feature, FeaturesDict):
        pairs = {name: again(inner, path=f"{path}/{name}" if path else name) for name, inner in feature.items()}
        changed = {name: convert for name, convert in pairs.items() if convert is not None}
        return partial(_convert_dict, changed) if changed else None
    if isinstance(feature, Sequence):  # of a dict, it is a dict of columns
        is_value = path in nullable
        place = path if is_value else f"{path}[]"
        if objects and _holds_dicts(feature):
            return partial(_convert_examples, again(feature.feature, path=place, nullable=nullable - {path}), is_value)
        return again(feature.feature, path=place, nullable=nullable - {path}, lists=(*lists, is_value))
    convert = _leaf_converter(feature, times.get(path.replace("[]", "")), names=names, files=files, iso=iso)
    return partial(_restore_nulls, lists, convert) if any(lists) else convert


def _leaf_converter(feature: Feature, time: TimeType | None, *, names: bool, files: bool, iso: bool) -> Convert | None:
    is_file = media_kind(feature) is not None
    if is_file and files:
        return partial(_convert_each, describe_file, 0)
    if names and isinstance(feature, ClassLabel) and feature.names is not None:
        return partial(_convert_each, partial(_class_name, feature.names), 0)
    if names and files and not iso and isinstance(feature, Audio) and feature.sample_rate and not is_file:
        return partial(_convert_each, partial(_describe_samples, feature.sample_rate), len(feature.shape))
    return (
        None
        if time is None or not names
        else partial(_convert_each, lambda value: moment_text(int(value), time, iso=iso), 0)
    )


def _convert_dict(converters: Mapping[str, Convert], value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):  # the examples of a Dataset
        return [_convert_dict(converters, item) for item in value]
    return {name: converters[name](item) if name in converters else item for name, item in value.items()}


def _holds_dicts(feature: Any) -> bool:
    while isinstance(feature, Sequence):
        if isinstance(feature, Dataset):  # its examples are dicts already
            return False
        feature = feature.feature
    return isinstance(feature, FeaturesDict)


@dataclass(frozen=True, slots=True)
class _Examples:
    """Examples that are converted when they are requested, because most are cut off."""

    convert: Convert
    examples: NestedExamples

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Any]:
        return map(self.convert, self.examples)


def _convert_examples(convert: Convert | None, is_value: bool, columns: Any) -> Any:
    """The examples in a dict of lists; if they are a value that may be null, the value or None."""
    if columns is None:
        return None
    examples = _Examples(convert or (lambda example: example), NestedExamples(columns, columns, ""))
    try:
        len(examples)
    except CorruptExampleError:  # lists of different lengths
        return columns
    return next(iter(examples), None) if is_value else examples


def _restore_nulls(lists: _Lists, convert: Convert | None, value: Any) -> Any:
    """``value`` in as many lists, in which those that are a value that may be null become null or the value."""
    if not lists:
        return value if convert is None else convert(value)
    if lists[0]:
        return _restore_nulls(lists[1:], convert, value[0]) if len(value) else None
    return [_restore_nulls(lists[1:], convert, item) for item in value]


def _convert_each(convert: Convert, num_dimensions: int, value: Any) -> Any:
    """``convert`` of each value with ``num_dimensions`` in nested rows; None for a missing one."""
    if value is None:
        return None
    depth = 0 if isinstance(value, bytes | int) else getattr(value, "ndim", None)
    if depth == num_dimensions and not (depth and value.dtype == object):
        return convert(value)
    return [_convert_each(convert, num_dimensions, item) for item in value]


def _describe_samples(rate: int, samples: Any) -> str:
    return f"{_sound_text(len(samples) / rate)}{rate:,} Hz, {len(samples):,} samples"


def _class_name(names: Any, value: Any) -> Any:
    return names[int(value)] if 0 <= int(value) < len(names) else value


def text_of(value: Any, *, most: int = _MOST_LETTERS) -> str:
    r"""A value as one line for people, cut to about ``most`` letters. Arrays and lists show their first items.

    >>> text_of(b"two\nlines"), text_of(None), text_of(np.float32(0.1)), text_of(np.zeros((28, 28), np.uint8))
    ('two\\nlines', 'null', '0.1', '28x28 uint8')
    >>> text_of({"box": [1, 2], "names": list(range(100))})
    '{box: [1, 2], names: [0, 1, 2, 3, 4, 5, … 100 in all]}'
    """
    text = _text(value, most)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(value: Any, most: int) -> str:
    if isinstance(value, bytes):
        piece = value[: 4 * most]
        try:  # a character may be cut, so only the rest is checked
            text = (piece if len(piece) == len(value) else piece[: _whole(piece)]).decode()
        except UnicodeDecodeError:
            return f"bytes, {size(len(value))}"
        return _text(text, most)
    if isinstance(value, str):
        return printable(value[: 2 * most].replace("\r", r"\r").replace("\n", r"\n").replace("\t", r"\t"))
    if value is None or isinstance(value, bool | np.bool_):
        return "null" if value is None else str(bool(value)).lower()
    if isinstance(value, timedelta):
        return moment_text(value // timedelta(microseconds=1), TimeType("duration", "us")) or ""
    if isinstance(value, Mapping):
        pairs = islice(value.items(), _MOST_ITEMS)
        items = [f"{_text(name, most)}: {_text(item, most)}" for name, item in pairs]
        return f"{{{_join(items, len(value))}}}"
    if isinstance(value, np.ndarray) and value.ndim > 1 and value.dtype != object:
        return f"{'x'.join(map(str, value.shape))} {value.dtype}"
    if not hasattr(value, "__len__") or getattr(value, "shape", None) == ():
        return str(value)[: 2 * most]
    some = list(islice(iter(value), _MOST_ITEMS))
    is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    items = [f"{item:.4g}" if is_float else _text(item, most // _MOST_ITEMS + 8) for item in some]
    return f"[{_join(items, len(value))}]"


def _whole(piece: bytes) -> int:
    """The length of ``piece`` without the beginning of a UTF-8 character at its end."""
    stop = len(piece)
    while stop and stop > len(piece) - 4 and piece[stop - 1] & 0xC0 == 0x80:
        stop -= 1
    return max(0, stop - 1)


def _join(items: list[str], count: int) -> str:
    return ", ".join(items if len(items) == count else [*items, f"… {count:,} in all"])
