"""Converts the values of columns to the types of a schema, and reports the rows whose values do not fit.

    Arrow array -> convert_values -> array of the requested type, and the fault of each row that does not fit

A conversion never changes a value. A number that does not fit, text that is not a number, and a null that the feature
does not allow are faults. Floats are rounded only if the caller requests a narrower float type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import FeatureError, suggest
from registry.features import Audio, BBox, ClassLabel, Feature, FeaturesDict, Image, Leaf, Tensor
from registry.features import Sequence as SequenceFeature
from registry.features.limits import show_outside
from registry.images.pictures import read_picture
from registry.intake.feature_text import as_optional, type_word
from registry.intake.media_bytes import is_file_feature, picture_fault
from registry.intake.source import NAN_WORDS, quote, show_value
from registry.intake.text_types import parse_texts
from registry.intake.value_types import (
    Converted,
    Faults,
    as_integers,
    count_type,
    in_halves,
    inexact_integers,
    is_list,
    is_nullable,
    make_lists,
    python_value,
    python_values,
    struct_of_map,
)
from registry.shards.arrow_values import (
    as_mask,
    as_numbers,
    from_numbers,
    from_texts,
    import_pyarrow,
    plain_array,
    plain_type,
)

if TYPE_CHECKING:
    import pyarrow as pa

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types
compute: Any = arrow.compute

NO_BYTES: Final = "expected the bytes of a file"
"""The reason for a text in a column of images or sounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """The name, feature and Arrow type of a column, and the reason for the feature.

    Attributes:
        name: its name.
        feature: its feature.
        arrow_type: the type of its values after ``Schema.convert``.
        num_nulls: the number of rows in which it is null; None if they were not counted.
        example: a value as text for messages, shortened and escaped.
        reason: why it has this feature, for messages; may be empty.
        is_requested: whether the user or the source decided on the feature. Text is then parsed as numbers are usually
            written, such as ``007`` and ``1e5``; see ``text_types``.
        is_text: whether all values of the source are text, so that numbers are parsed.
        anew: if values must have the type of the previous version, the type that would be inferred without it.
        checks_files: whether the bytes of images and sounds are checked. Readers of folders have checked them already.
        null_as_empty: whether a null is read as an empty list.
        decimals: the paths of texts that were decimals in the source, and their Arrow types.
    """

    name: str
    feature: Feature
    arrow_type: pa.DataType
    num_nulls: int | None = None
    example: str = ""
    reason: str = ""
    is_requested: bool = False
    is_text: bool = False
    anew: str = ""
    checks_files: bool = False
    null_as_empty: bool = False
    decimals: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The target type of a conversion.

    Attributes:
        column: the column of the values.
        feature: the feature; for elements of a tensor with a shape, the tensor.
        kind: the Arrow type.
        is_element: whether the values are elements of lists, which cannot be null.
        is_column: whether the values are those of the column, and not of a field or of elements.
    """

    column: ColumnSchema
    feature: Feature
    kind: Any
    is_element: bool = False
    is_column: bool = True

    def inside(self, feature: Feature, kind: Any, *, is_element: bool) -> _Target:
        """Return the target of fields, or of elements."""
        return _Target(column=self.column, feature=feature, kind=kind, is_element=is_element, is_column=False)


def convert_values(array: Any, column: ColumnSchema) -> Converted:
    """Convert ``array`` to the type of ``column``. Returns an array of the same length, and the faults by index.

    A null struct becomes a struct of nulls. The value at the index of a fault is undefined.
    """
    return _convert(array, _Target(column=column, feature=column.feature, kind=column.arrow_type))


def _convert(array: Any, target: _Target) -> Converted:
    if array.null_count == len(array) and _allows_null(target):  # most fields of objects with keys of their own
        return arrow.nulls(len(array), target.kind), {}
    array = plain_array(array)
    if types.is_map(array.type):
        array = array.cast(arrow.list_(struct_of_map(array.type)))
    if is_nullable(target.kind):
        return _convert_nullable(array, target)
    if isinstance(target.feature, FeaturesDict):
        return _convert_structs(array, target)
    if is_list(target.kind):
        converted, faults = _convert_lists(array, target)
        if isinstance(target.feature, BBox) and not is_list(target.kind.value_type):
            faults = _find_outside(converted, target.feature) | faults
        return converted, faults
    converted, faults = in_halves(
        array, lambda part: _convert_leaves(part, target), lambda part: _refuse_type(part, target)
    )
    leaf = target.feature
    if isinstance(leaf, Tensor) and leaf.dtype == np.float64 and leaf.encoding == "none":  # stored as float32
        faults |= _convert_numbers(converted, converted.type, replace(target, kind=arrow.float32()))[1]
    # The numbers of labels are compared elsewhere
    if isinstance(leaf, Tensor) and not isinstance(leaf, BBox | ClassLabel):
        faults = _find_outside(converted, leaf) | faults
    if target.column.checks_files and is_file_feature(target.feature):
        faults |= _check_files(converted, target.feature)
    if converted.null_count and not _allows_null(target):
        for index in places_of(converted.is_null()):
            faults.setdefault(index, _explain_null(target))
    return converted, faults


def _find_outside(converted: Any, leaf: Tensor) -> Faults:
    """Return the faults of values that ``leaf`` does not allow. ``converted`` has numbers, texts or boxes."""
    if not leaf.limits or not len(converted):
        return {}
    present = converted.drop_null()
    if isinstance(leaf, BBox):
        values = as_numbers(present.flatten()).reshape(-1, 4)
    elif types.is_temporal(converted.type):
        values = as_numbers(as_integers(present))
    elif _is_number(converted.type):
        values = (as_mask if types.is_boolean(converted.type) else as_numbers)(present)
    else:
        values = present.cast(arrow.binary()).to_numpy(zero_copy_only=False)
    outside = np.flatnonzero(leaf.outside(values))
    if not len(outside):
        return {}
    places = np.flatnonzero(as_mask(converted.is_valid()))
    return {int(places[row]): f"must be {leaf.limits}, found {show_outside(values[row])}" for row in outside.tolist()}


def _allows_null(target: _Target) -> bool:
    if target.is_element or not isinstance(target.feature, Leaf):
        return False
    return target.feature.may_be_absent or isinstance(target.feature, ClassLabel)


def _explain_null(target: _Target) -> str:
    """Explain why a null is a fault, and which type would allow it."""
    if is_list(target.kind):
        word = type_word(target.kind)
        if target.is_column and word.endswith("[]") and "struct" not in word:
            return f"is null, but a list cannot be null; the type {word}? reads it as an empty list"
        return "is null, but a list cannot be null"
    if target.is_element or as_optional(target.feature) is target.feature:
        return "is null, which is not allowed here"
    word = type_word(target.kind)
    return f"is null, but the type {word} does not allow nulls; {word}? does"


def _convert_nullable(array: Any, target: _Target) -> Converted:
    """Convert values to lists of zero or one element; a null becomes an empty list."""
    valid = as_mask(array.is_valid())
    feature = target.feature.feature  # type: ignore[attr-defined]  # a Sequence, or a tensor of one unknown dimension
    inner = target.inside(feature, target.kind.value_type, is_element=True)
    values, problems = _convert(array.drop_null(), inner)
    places = np.flatnonzero(valid)
    starts = np.concatenate([np.zeros(1, np.int32), np.cumsum(valid, dtype=np.int32)])
    lists = arrow.ListArray.from_arrays(from_numbers(starts), values)
    return lists.cast(target.kind), {int(places[index]): problem for index, problem in problems.items()}


def _convert_structs(array: Any, target: _Target) -> Converted:
    faults: Faults = {}
    if types.is_null(array.type):
        found = {}
    elif types.is_struct(array.type):
        found = {field.name: values for field, values in zip(array.type, array.flatten(), strict=True)}
    elif types.is_string(plain_type(array.type)):
        return _convert_json(array, target)
    else:
        return _refuse_type(array, target)
    children = []
    for field in target.kind:
        values = found.pop(field.name) if field.name in found else arrow.nulls(len(array))
        feature = target.feature[field.name]  # type: ignore[index]  # the caller checked that it is a FeaturesDict
        inner = target.inside(feature, field.type, is_element=target.is_element)
        child, problems = _convert(values, inner)
        children.append(child)
        for index, problem in problems.items():
            faults.setdefault(index, f"field {quote(field.name)}: {problem}")
    for name, values in found.items():  # a schema from a file may lack a field
        for index in places_of(values.is_valid()):
            faults.setdefault(index, f"the schema has no field {quote(name)}")
    return arrow.StructArray.from_arrays(children, fields=list(target.kind)), faults


def _convert_lists(array: Any, target: _Target) -> Converted:
    is_empty = target.is_column and target.column.null_as_empty and not types.is_fixed_size_list(target.kind)
    if array.null_count == len(array):
        if is_empty:
            return arrow.array([[]] * len(array), target.kind), {}
        return arrow.nulls(len(array), target.kind), dict.fromkeys(range(len(array)), _explain_null(target))
    if types.is_string(plain_type(array.type)):
        return _convert_json(array, target)
    if not is_list(array.type):
        return _refuse_type(array, target)
    size = target.kind.list_size if types.is_fixed_size_list(target.kind) else None
    lengths = compute.list_value_length(array)
    if is_empty:
        lengths = lengths.fill_null(0)
    faults: Faults = dict.fromkeys(places_of(lengths.is_null()), _explain_null(target))
    if size is not None:
        for index in places_of(compute.not_equal(lengths, size)):
            faults[index] = f"expected {size} values, found {lengths[index].as_py()}"
    is_fault = np.isin(np.arange(len(array)), list(faults))
    if faults:
        array = array.take(from_numbers(np.arange(len(array)), is_fault))
    feature = target.feature.feature if isinstance(target.feature, SequenceFeature) else target.feature
    inner = target.inside(feature, target.kind.value_type, is_element=True)
    child, problems = _convert(array.flatten(), inner)
    sizes = np.where(is_fault, 0, as_numbers(lengths))
    stops = np.cumsum(sizes, dtype=np.int64)
    for place, problem in problems.items():
        row = int(np.searchsorted(stops, place, side="right"))
        faults.setdefault(row, f"element {place - int(stops[row] - sizes[row]) + 1}: {problem}")
    return make_lists(sizes, child, is_fault).cast(target.kind), faults


def _convert_json(array: Any, target: _Target) -> Converted:
    """Parse texts that hold a list or an object as JSON."""
    faults: Faults = {}
    word = "list" if is_list(target.kind) else "object"
    converted = []
    for index in range(len(array)):
        text = python_value(array, index)
        made = arrow.nulls(1)
        if text is not None:
            try:
                value = json.loads(text)
                if not isinstance(value, list if word == "list" else dict):
                    raise ValueError
                made = _one_value(value, target.kind)
            except (ValueError, RecursionError, OverflowError, arrow.ArrowException):
                faults[index] = f"expected a JSON {word} of {type_word(target.kind)}, found {show_value(text)}"
        values, problems = _convert(made, target)
        converted.append(values)
        for problem in problems.values():
            faults.setdefault(index, problem)
    return arrow.concat_arrays(converted or [arrow.nulls(0, target.kind)]), faults


def _one_value(value: Any, kind: Any) -> Any:
    """An Arrow array of one JSON value."""
    try:
        return arrow.array([value])
    except OverflowError:  # a number above those of int64; uint64 may hold it
        return arrow.array([value], kind)


def _convert_leaves(array: Any, target: _Target) -> Converted:
    kind = target.kind
    result = plain_type(array.type)
    if array.null_count == len(array):
        return arrow.nulls(len(array), kind), {}
    if isinstance(target.feature, ClassLabel):
        return _convert_labels(array, result, target)
    if result == kind:
        return array.cast(kind), {}
    if target.column.anew and types.is_string(result) and types.is_floating(kind) and not target.column.is_text:
        return _read_special(array.cast(arrow.string()), target)
    if target.column.anew and not _is_form(result, kind, is_text=target.column.is_text):
        return _refuse_type(array, target)
    if types.is_struct(result) and types.is_binary(kind) and array.type.get_field_index("bytes") >= 0:
        return _take_files(array, target)
    if is_list(array.type) and isinstance(target.feature, Image):
        return _encode_pictures(array, target.feature)
    if types.is_string(result) and isinstance(target.feature, (Image, Audio)):
        return _refuse_type(array, target, NO_BYTES)
    if types.is_string(kind):
        return _write_texts(array, result)
    if types.is_string(result):
        texts = array.cast(arrow.string())
        return parse_texts(texts, kind, is_requested=target.column.is_requested, is_exact=bool(target.column.anew))
    if types.is_decimal(result):
        return parse_texts(array.cast(arrow.string()), kind, is_requested=True)
    if _is_number(result) and _is_number(kind):
        return _convert_numbers(array, result, target)
    if types.is_integer(result) and types.is_temporal(kind):  # counts of the unit
        return _convert_each(array, lambda part: part.cast(count_type(kind)).view(kind), kind)
    if types.is_temporal(result) and types.is_temporal(kind) and _is_same_family(result, kind):
        return _convert_each(array, lambda part: _exact_cast(part, kind), kind)
    return _refuse_type(array, target)


def _encode_pictures(array: Any, feature: Image) -> Converted:
    """Encode arrays of pixels (height, width) or (height, width, channels) as the feature stores images."""
    files: list[bytes | None] = [None] * len(array)
    faults: Faults = {}
    for index in places_of(array.is_valid()):
        try:
            pixels = _pixels_of(array[index].values)
            if pixels is None:
                faults[index] = f"expected an array of pixels, found {show_value(python_value(array, index))}"
            else:
                ((files[index],),) = feature.flatten(pixels[..., None] if pixels.ndim == 2 else pixels, "")
        except FeatureError as error:
            faults[index] = error.message
    return arrow.array(files, arrow.binary()), faults


def _pixels_of(values: Any) -> npt.NDArray[Any] | None:
    """The nested lists of an image as an array; None if their lengths or types differ from those of an array."""
    shape = [len(values)]
    while is_list(values.type):
        lengths = compute.unique(compute.list_value_length(values)).to_pylist()
        if len(lengths) != 1 or lengths[0] is None:
            return None
        shape.append(lengths[0])
        values = values.flatten()
    is_image = len(shape) in (2, 3) and types.is_integer(values.type) and not values.null_count
    return as_numbers(values).reshape(shape) if is_image else None


def _convert_labels(array: Any, found: Any, target: _Target) -> Converted:
    label = target.feature
    if not isinstance(label, ClassLabel) or not (
        types.is_string(found) or types.is_integer(found) or types.is_boolean(found)
    ):
        return _refuse_type(array, target)
    if types.is_string(found):
        numbers, faults = _parse_labels(array, label)
    else:
        numbers, faults = _convert_each(array, lambda part: part.cast(arrow.int64()), arrow.int64())
    values = as_numbers(numbers)
    outside = as_mask(numbers.is_valid()) & ((values < -1) | (values >= (label.num_classes or 0)))
    for index in np.flatnonzero(outside).tolist():
        faults[index] = f"class number {numbers[index].as_py()} is out of range for {label.num_classes} classes"
    return numbers, faults


def _parse_labels(array: Any, label: ClassLabel) -> Converted:
    """Convert names of classes to their numbers. Numbers are also accepted if no class name looks like a number."""
    names = from_texts(label.names or ())
    numbers = compute.index_in(array.cast(arrow.string()), value_set=names).cast(arrow.int64())
    unknown = np.flatnonzero(as_mask(compute.and_(array.is_valid(), numbers.is_null())))
    if not len(unknown):
        return numbers, {}
    texts = array.take(from_numbers(unknown)).cast(arrow.string())
    parsed, problems = parse_texts(texts, arrow.int64(), is_requested=False)
    if any(name.lstrip("-").isdigit() for name in label.names or ()):
        problems = dict.fromkeys(range(len(texts)), "")
    nearest = {
        index: suggest(texts[index].as_py()[:80], label.names or (), have="Classes:") for index in list(problems)[:100]
    }
    faults = {
        int(unknown[index]): f"unknown label {quote(texts[index].as_py())}. {nearest.get(index) or ''}".rstrip(". ")
        for index in problems
    }
    mask = as_mask(numbers.is_valid())
    values = as_numbers(numbers).copy()
    values[unknown] = np.where(as_mask(parsed.is_valid()), as_numbers(parsed), -1)
    mask[unknown] = True
    return from_numbers(values, ~mask), faults


def _take_files(array: Any, target: _Target) -> Converted:
    """Extract the bytes of files from structs of bytes and path, in which Hugging Face stores images."""
    index = array.type.get_field_index("bytes")
    files, faults = _convert(array.flatten()[index], target)
    for row in places_of(files.is_null()):
        if array[row].is_valid:
            faults[row] = "has the path of a file, but not its bytes"
    return files, faults


def _write_texts(array: Any, found: Any) -> Converted:
    """Convert values to text: numbers and nested values as in JSON, times in ISO 8601."""
    text = arrow.string()
    if types.is_binary(found):
        return _convert_each(array.cast(arrow.binary()), lambda part: part.cast(text), text, "expected UTF-8")
    if types.is_floating(found):
        written = array.cast(text)
        is_whole = compute.match_substring_regex(written, "^-?[0-9]+$")
        return compute.if_else(
            is_whole, compute.binary_join_element_wise(written, *from_texts([".0", ""])), written
        ), {}
    if types.is_duration(found):  # a number and its unit, such as "90 s"
        return compute.binary_join_element_wise(
            array.view(arrow.int64()).cast(text), *from_texts([found.unit, " "])
        ), {}
    if types.is_nested(found):
        return _convert_each(array, lambda part: arrow.array(map(_as_json, python_values(part)), text), text)
    written = array.cast(text)
    if not types.is_temporal(found):
        return written, {}
    # Arrow writes "<value out of range: ...>" for a time in the year 40000.
    places = places_of(compute.starts_with(written, "<"))
    return written, {index: f"{python_value(array, index)} of {found} is out of range" for index in places}


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=_as_plain)


def _as_plain(value: Any) -> Any:
    """Convert a value that JSON cannot represent to text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _convert_numbers(array: Any, found: Any, target: _Target) -> Converted:
    kind = target.kind
    if types.is_boolean(found):
        array = array.cast(arrow.uint8())
    valid = as_mask(array.is_valid())
    values = as_numbers(array)
    dtype = np.dtype(kind.to_pandas_dtype())
    if types.is_boolean(kind):
        bad = (values != 0) & (values != 1)
    elif types.is_floating(kind):
        with np.errstate(over="ignore"):
            bad = np.isinf(values.astype(dtype)) & np.isfinite(values)
            if target.column.anew:
                bad |= (values.astype(dtype) != values) & ~np.isnan(values)
        if values.dtype.kind != "f" and not target.column.is_requested:
            bad |= inexact_integers(array)
    else:
        bounds = np.iinfo(dtype)
        if values.dtype.kind == "f":
            wide = values.astype(np.float64)
            bad = ~((wide >= bounds.min) & (wide < float(bounds.max) + 1) & (np.trunc(wide) == wide))
        else:
            bad = (values < bounds.min) | (values > bounds.max)
    bad &= valid
    faults = {
        index: f"expected {type_word(kind)}, found {show_value(python_value(array, index))}"
        for index in np.flatnonzero(bad).tolist()
    }
    with np.errstate(over="ignore", invalid="ignore"):
        converted = np.where(bad, 0, values).astype(dtype)
    return from_numbers(converted, ~valid), faults


def _exact_cast(array: Any, kind: Any) -> Any:
    """Cast times. Raises ArrowInvalid if a value loses precision: Arrow checks it for units, but not for dates."""
    converted = array.cast(kind)
    if not converted.cast(array.type).equals(array):
        raise arrow.ArrowInvalid
    return converted


def _is_same_family(found: Any, kind: Any) -> bool:
    """Whether times of type ``found`` may be converted to type ``kind``."""
    for is_family in (types.is_time, types.is_duration):
        if is_family(found) or is_family(kind):
            return bool(is_family(found) and is_family(kind))
    return (getattr(found, "tz", None) is None) == (getattr(kind, "tz", None) is None)


def _convert_each(array: Any, convert: Callable[[Any], Any], kind: Any, expected: str | None = None) -> Converted:
    """Convert the whole array; if that fails, convert its halves to find the values at fault."""

    def refuse(value: Any) -> Converted:
        fault = f"{expected or 'expected ' + type_word(kind)}, found {show_value(python_value(value, 0))}"
        return arrow.nulls(1, kind), {0: fault}

    return in_halves(array, lambda part: (convert(part), {}), refuse)


def _check_files(files: Any, feature: Feature) -> Faults:
    """Return the faults of bytes that are not images or sounds of this feature."""
    faults: Faults = {}
    for index, data in enumerate(files.to_pylist()):
        if data is not None:
            try:
                feature.flatten(data, "")  # type: ignore[attr-defined]  # a Leaf
            except FeatureError as error:
                faults[index] = error.message
                continue
            if isinstance(feature, Image) and (fault := picture_fault(feature, read_picture(data))):
                faults[index] = fault
    return faults


def _refuse_type(array: Any, target: _Target, expected: str | None = None) -> Converted:
    """Return a fault for each value, because their type cannot be converted."""
    word = expected or f"expected {type_word(target.kind)}"
    faults = {index: f"{word}, found {show_value(python_value(array, index))}" for index in places_of(array.is_valid())}
    if not _allows_null(target):
        faults |= dict.fromkeys(places_of(array.is_null()), _explain_null(target))
    return arrow.nulls(len(array), target.kind), faults


def _read_special(texts: Any, target: _Target) -> Converted:
    """Read the words for NaN and the infinities, which exports to JSON write, as numbers. Other texts are faults."""
    is_word = compute.is_in(texts, value_set=from_texts(NAN_WORDS))
    values = compute.if_else(is_word, texts, arrow.nulls(len(texts), arrow.string())).cast(target.kind)
    words = as_mask(is_word)
    return values, {index: fault for index, fault in _refuse_type(texts, target)[1].items() if not words[index]}


def _is_form(found: Any, kind: Any, *, is_text: bool) -> bool:
    """Whether values of type ``found`` are converted to ``kind`` without a request."""
    if types.is_string(found):
        return is_text or types.is_temporal(kind)
    if types.is_string(kind):
        return bool(types.is_decimal(found))
    if types.is_boolean(found) or types.is_boolean(kind) or types.is_decimal(found):
        return False
    return bool(types.is_temporal(found) == types.is_temporal(kind))


def _is_number(kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def places_of(mask: Any) -> list[int]:
    """Return the indices at which an Arrow array of booleans is true. A null counts as false."""
    return np.flatnonzero(as_mask(mask)).tolist()
