"""Parses the types that users request for columns, such as ``int32``, ``ClassLabel(cat, dog)`` or ``float32[3]``.

    text -> parse_feature -> Wish -> Inference -> ColumnSchema

A ``Wish`` comes from ``--feature NAME=TYPE``, from a schema file, or from a ``Feature`` that a caller passes.
``arrow_type_of`` returns the Arrow type in which the writers of records receive the values of a feature.

    wish  = type ["?"] | "?"                                 "?": the column may hold nulls, or be missing in some files
    type  = "skip" | word | label | time | type "[" [size {"," size}] "]"
    label = "ClassLabel" ["(" name {"," name} ")"]           a name may be in double quotes, as in JSON
    time  = ("timestamp" | "time32" | "time64" | "duration") "[" unit ["," "tz=" zone] "]" | "date32" | "date64"
    size  = number | "None"                                  "None": a size of an Image that differs
    word  = "Text" | "bytes" | "Image" | "bool" | "int8" ... "uint64" | "float16" | "float32" | "float64"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import numpy as np

from registry.errors import FeatureError, PreparedFormatError, SourceError, UsageError, suggest
from registry.escaping import point_at
from registry.features import Audio, ClassLabel, Feature, FeaturesDict, Image, Scalar, Sequence, Tensor, Text
from registry.features.feature import TEXT
from registry.intake.value_types import is_list, is_nullable, name_type
from registry.shards.arrow_schema import features_of_schema
from registry.shards.arrow_values import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types

_UNITS: Final = ("s", "ms", "us", "ns")
_TIMES: Final = {"timestamp": _UNITS, "time32": _UNITS[:2], "time64": _UNITS[2:], "duration": _UNITS}
_NUMBERS: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_ALIASES: Final = {
    "str": "text",
    "string": "text",
    "int": "int64",
    "float": "float64",
    "double": "float64",
    "binary": "bytes",
    "date": "date32",
}
ACCEPTED: Final = (
    f"Text, bytes, {', '.join(_NUMBERS)}, ClassLabel, ClassLabel(cat, dog), Image, Image[28, 28, 3], date32, date64, "
    "timestamp[us], timestamp[us, tz=UTC], time32[s], time64[us], duration[ms], skip; "
    "add [3] or [28, 28] for a shape, [] for a list, and ? if values may be null"
)
"""The types that ``parse_feature`` accepts, for messages and help texts."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE = re.compile(r"\s*")
_SIZE = re.compile(r"[0-9]{1,10}")
_PLAIN_NAME = re.compile(r'[^",()\s][^",()]*')
_ZONE = re.compile(r"[A-Za-z0-9_+:/-]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The type that a user requests for a column.

    Attributes:
        text: the request as text, for messages.
        action: ``convert`` to the feature; ``skip`` the column; ``classes``: a ClassLabel of the classes in the data.
        feature: the requested feature; None unless ``action`` is ``convert``.
        arrow_type: the Arrow type of the converted column; None if it depends on the data.
        optional: whether the column may contain nulls; None to allow them if the data has nulls.
        classes: with the action ``classes``, the label of the previous version, whose classes keep their numbers.
        is_remembered: whether the type comes from the previous version. The column may then be missing.
        is_inferred: whether the previous addition inferred the type; values must then have it without a conversion.
    """

    text: str
    action: Literal["convert", "skip", "classes"] = "convert"
    feature: Feature | None = None
    arrow_type: pa.DataType | None = None
    optional: bool | None = None
    classes: ClassLabel | None = None
    is_remembered: bool = False
    is_inferred: bool = False

    @property
    def may_lack(self) -> bool:
        """Whether some files may lack the column: it may be null, has -1 for null, or is left out."""
        is_optional = self.optional or (self.arrow_type is not None and is_nullable(self.arrow_type))
        return is_optional or self.feature is None or _may_be_null(self.feature)


def _may_be_null(feature: Feature) -> bool:
    """Whether every leaf of ``feature`` may be null, as in a null object."""
    if isinstance(feature, FeaturesDict):
        return all(map(_may_be_null, feature.values()))
    return isinstance(feature, ClassLabel) or bool(getattr(feature, "optional", False))


def parse_feature(text: str) -> Wish:
    """Parse the type of a column.

    >>> parse_feature("float32[3]").feature
    Tensor(shape=(3,), dtype=float32)
    >>> parse_feature("ClassLabel(cat, dog)").feature
    ClassLabel(num_classes=2, names=('cat', 'dog'))
    >>> parse_feature("ClassLabel").action, parse_feature("skip").action, parse_feature("int8?").optional
    ('classes', 'skip', True)

    Raises:
        UsageError: ``text`` is not a type; the message points at the place, and the hint lists what is accepted.
        MissingExtraError: pyarrow is not installed.
    """
    return _FeatureParser(text).parse()


def is_type(text: str) -> bool:
    """Whether ``parse_feature`` reads ``text``."""
    try:
        return bool(parse_feature(text))
    except UsageError:
        return False


def feature_of_type(arrow_type: Any, name: str = "") -> Feature:
    """Return the feature of an Arrow type.

    Raises:
        PreparedFormatError: the type is not supported.
    """
    return features_of_schema(arrow.schema([(name or "x", arrow_type)]))[name or "x"]


class _FeatureParser:
    """Reads a type from left to right; ``_at`` is the position of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse(self) -> Wish:
        self._skip_space()
        if self._question():  # of the inferred type
            self._end()
            return Wish(text="?", optional=True, is_inferred=True)
        start = self._at
        word = self._word()
        if word == "skip":
            self._end()
            return Wish(text="skip", action="skip")
        if word == "classlabel" and self._peek("["):
            self._fail("expected the names of the classes of a list here", self._at, "Write ClassLabel(cat, dog)[]")
        if word == "classlabel" and not self._peek("("):
            optional = self._question()
            self._end()
            return Wish(text=self._text.strip(), action="classes", optional=optional)
        feature, arrow_type = self._type(word, start)
        while self._take("["):
            feature, arrow_type = self._shape(feature, arrow_type, start)
        optional = self._question()
        self._end()
        return Wish(text=self._text.strip(), feature=feature, arrow_type=arrow_type, optional=optional)

    def _type(self, word: str, start: int) -> tuple[Feature, Any]:
        if word in _TIMES:
            return self._with_feature(self._time(word, start))
        if word == "classlabel":
            return self._label(), arrow.int64()
        if word == "image":
            return Image(shape=(None, None, None)), arrow.binary()
        if word in _NUMBERS:
            return self._with_feature(arrow.type_for_alias({"float16": "halffloat"}.get(word, word)))
        plain = {"text": arrow.string(), "bytes": arrow.binary(), "date32": arrow.date32(), "date64": arrow.date64()}
        if word not in plain:
            known = ("text", "bytes", *_NUMBERS, "ClassLabel", "Image", *_TIMES, "date32", "date64", "skip")
            text = self._text[start : self._at].strip()
            self._fail(f"unknown type {text[:60]!r}", start, suggest(text, known, most=len(known)))
        return self._with_feature(plain[word])

    @staticmethod
    def _with_feature(arrow_type: Any) -> tuple[Feature, Any]:
        return feature_of_type(arrow_type), arrow_type

    def _time(self, word: str, start: int) -> Any:
        units = _TIMES[word]
        if not self._take("["):
            self._fail(f"{word} requires a unit", start, f"Write {word}[{units[0]}], with one of: {', '.join(units)}.")
        begin = self._at
        unit = self._match(_WORD)
        if unit not in units:
            self._fail(f"expected a unit of {word} here", begin, f"Units of {word}: {', '.join(units)}.")
        zone = None
        if self._take(","):
            self._expect("tz", "expected tz=ZONE here")
            self._expect("=", "expected = here")
            zone = self._match(_ZONE)
            if not zone or word != "timestamp":
                self._fail("expected a time zone here" if not zone else f"{word} has no time zone", self._at)
        self._expect("]", "expected ] here")
        return arrow.timestamp(unit, tz=zone) if word == "timestamp" else getattr(arrow, word)(unit)

    def _label(self) -> Feature:
        start = self._at
        self._expect("(", "expected ( here")
        names: list[str] = []
        while not self._take(")"):
            if names:
                self._expect(",", "expected , or ) here")
            self._skip_space()
            if quoted := _QUOTED.match(self._text, self._at):
                try:
                    names.append(json.loads(quoted[0]))
                except ValueError:
                    self._fail("invalid text in quotes", self._at)
                self._at = quoted.end()
            elif plain := _PLAIN_NAME.match(self._text, self._at):
                names.append(plain[0].rstrip())
                self._at = plain.end()
            else:
                self._fail("expected the name of a class here", self._at)
        try:
            return ClassLabel(names=names) if names else self._fail("expected the names of classes here", start)
        except FeatureError as error:
            self._fail(error.message, start, error.hint)

    def _shape(self, feature: Feature, arrow_type: Any, start: int) -> tuple[Feature, Any]:
        sizes: list[Any] = []
        while not self._take("]"):
            if sizes:
                self._expect(",", "expected , or ] here")
            begin = self._at
            if isinstance(feature, Image) and self._take("None"):
                sizes.append(None)
                continue
            digits = self._match(_SIZE)
            if not digits or not 0 < int(digits) < 2**31:
                self._fail("expected a size of 1 or more here", begin)
            sizes.append(int(digits))
        if isinstance(feature, Image) and (len(sizes) == 3 or None in sizes):
            try:
                return replace(feature, shape=tuple(sizes)), arrow_type
            except FeatureError as error:
                self._fail(error.message, start, error.hint)
        whole = arrow_type
        for size in reversed(sizes):
            whole = arrow.list_(whole, size)
        whole = whole if sizes else arrow.list_(whole)
        if isinstance(feature, (ClassLabel, Image, Sequence)):
            for size in reversed(sizes):
                feature = Sequence(feature, length=size)
            return feature if sizes else Sequence(feature), whole
        try:
            return self._with_feature(whole)
        except (PreparedFormatError, FeatureError) as error:
            self._fail(error.message, start)

    def _question(self) -> bool | None:
        return True if self._take("?") else None

    def _word(self) -> str:
        word = (self._match(_WORD) or "").lower()
        if not word:
            self._fail("expected a type here", self._at)
        return _ALIASES.get(word, word)

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._skip_space()
        if match := pattern.match(self._text, self._at):
            self._at = match.end()
            return match[0]
        return None

    def _peek(self, token: str) -> bool:
        self._skip_space()
        return self._text.startswith(token, self._at)

    def _take(self, token: str) -> bool:
        if self._peek(token):
            self._at += len(token)
            return True
        return False

    def _expect(self, token: str, problem: str) -> None:
        if not self._take(token):
            self._fail(problem, self._at)

    def _end(self) -> None:
        self._skip_space()
        if self._at < len(self._text):
            self._fail("expected the end of the type here", self._at)

    def _skip_space(self) -> None:
        if match := _SPACE.match(self._text, self._at):
            self._at = match.end()

    def _fail(self, problem: str, at: int, hint: str | None = None) -> NoReturn:
        raise UsageError(
            f"{problem}\n{point_at(self._text, at, at + 1)}",
            hint=hint or f"Accepted: {ACCEPTED}.",
            details={"type": self._text, "at": at},
        )


_OTHER_TYPE: Final = "Choose another type for the column, such as float64, Text or bytes."


def arrow_type_of(feature: Feature, found: Any = None) -> Any:
    """Return the Arrow type of the values of ``feature``.

    Args:
        feature: a feature.
        found: the type of the values in the source, or None. It decides between text and bytes, and provides the unit
            and zone of times, which a feature has only in its description.

    Raises:
        SourceError: columns cannot have this feature.
    """
    if isinstance(feature, FeaturesDict):
        is_struct = found is not None and types.is_struct(found)
        inside = {field.name: field.type for field in found} if is_struct else {}
        return arrow.struct([(name, arrow_type_of(inner, inside.get(name))) for name, inner in feature.items()])
    if isinstance(feature, Sequence):
        inner = arrow_type_of(feature.feature, getattr(found, "value_type", None))
        return arrow.list_(inner) if feature.length is None else arrow.list_(inner, feature.length)
    if isinstance(feature, Image) or (isinstance(feature, Audio) and feature.lazy_decode):
        return arrow.binary()
    if isinstance(feature, Text):
        return arrow.string()
    if isinstance(feature, ClassLabel):
        return arrow.int64()
    if not isinstance(feature, Tensor):
        name = type(feature).__name__
        raise SourceError(f"a column cannot have the feature {name}", hint=_OTHER_TYPE, details={"feature": name})
    value = found
    for _ in feature.shape:
        value = getattr(value, "value_type", None)
    kind = _type_of_dtype(feature.dtype, value)
    for size in reversed(feature.shape):
        kind = arrow.list_(kind) if size is None else arrow.list_(kind, size)
    return kind


def leaf_types(path: str, feature: Feature, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the Arrow types of leaves that ``feature`` does not show, by path: times, and some bytes."""
    if types.is_null(kind):  # the columns of such a source are not converted
        return
    if isinstance(feature, FeaturesDict):
        for name, inner in feature.items():
            yield from leaf_types(f"{path}/{name}", inner, kind.field(name).type)
        return
    while is_list(kind):
        kind = kind.value_type
        if isinstance(feature, Sequence):
            feature = feature.feature
            if isinstance(feature, FeaturesDict):
                yield from leaf_types(path, feature, kind)
                return
    is_bytes = isinstance(feature, Scalar) and feature.dtype == TEXT and types.is_binary(kind)
    if types.is_temporal(kind) or is_bytes:
        yield path, kind


def type_word(kind: Any) -> str:
    """Return the word that ``parse_feature`` reads as an Arrow type, if there is one.

    >>> import pyarrow as pa
    >>> type_word(pa.timestamp("us", tz="UTC")), type_word(pa.float64()), type_word(pa.date32())
    ('timestamp[us, tz=UTC]', 'float64', 'date32')
    >>> type_word(pa.list_(pa.list_(pa.string(), 2))), type_word(pa.struct([("a", pa.string())]))
    ('Text[2][]', 'struct')
    """
    if is_list(kind):
        size = kind.list_size if types.is_fixed_size_list(kind) else ""
        return f"{type_word(kind.value_type)}[{size}]"
    word = "struct" if types.is_struct(kind) else name_type(str(kind))
    return "Text" if word == "text" else word


def as_optional(feature: Feature) -> Feature:
    """Return the form of ``feature`` for values that may be null, or ``feature`` itself if there is no such form."""
    if type(feature) not in (Text, Tensor, Scalar) or not isinstance(feature, Tensor) or feature.shape:
        return feature
    return Scalar(
        feature.dtype,
        encoding=feature.encoding,
        minimum=feature.minimum,
        maximum=feature.maximum,
        description=feature.description,
        value_range=feature.value_range,
        optional=True,
    )


def _type_of_dtype(dtype: np.dtype[Any], found: Any) -> Any:
    if dtype == TEXT:
        return arrow.binary() if found is not None and types.is_binary(found) else arrow.string()
    is_time = found is not None and types.is_temporal(found) and found.bit_width in (32, 64)
    if is_time and dtype == np.dtype(f"int{found.bit_width}"):
        return found
    try:
        return arrow.from_numpy_dtype(dtype)
    except (arrow.ArrowNotImplementedError, ValueError) as error:
        raise SourceError(
            f"a column cannot have the dtype {dtype}", hint=_OTHER_TYPE, details={"dtype": str(dtype)}
        ) from error
