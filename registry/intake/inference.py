"""Infers the schema of a source from all of its rows, which one process reads before any row is written.

    Rows -> update -> schema -> Schema

Memory does not grow with the number of rows: inference keeps counts, types and the first decisive values per column.
``ClassValues`` collects the values of a column that becomes a ClassLabel on request, and decides the order of its
classes. Classes of the previous version keep their numbers, and new classes follow them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from registry.errors import FeatureError, PreparedFormatError, SourceError, UsageError, spell, suggest
from registry.features import ClassLabel, Feature, Image, Text
from registry.features import Sequence as SequenceFeature
from registry.intake.conversion import ColumnSchema
from registry.intake.feature_text import Wish, arrow_type_of, as_optional, feature_of_type, type_word
from registry.intake.media_bytes import (
    common_picture,
    describe_other,
    files_of,
    is_file_feature,
    other_files,
    widen_picture,
    without_decoding,
)
from registry.intake.schema import AS_BEFORE, Schema, describe_type, keep_types
from registry.intake.source import Place, Rows, Source, list_names, quote, show_place, show_value
from registry.intake.text_types import TextTypes, spell_nulls
from registry.intake.value_types import (
    TypeConflictError,
    United,
    ValueTypes,
    column_array,
    column_errors,
    conflict,
    first_of,
    is_list,
    is_nullable,
    name_type,
    nullable_paths,
    nullable_type,
    python_value,
    without_nulls,
)
from registry.shards.arrow_schema import features_of_schema
from registry.shards.arrow_values import as_numbers, import_pyarrow, plain_type

arrow: Any = import_pyarrow("adding data")

MAX_CLASSES: Final = 10_000
"""The maximum number of classes. More distinct values are hardly classes, and all names are kept in memory."""

_MOST_REASONS: Final = 4

_MOST_PARTS: Final = 100
"""With more files, the reason of a column does not say which of them have it."""

MAX_NAME: Final = 1_000
"""The maximum number of characters in the name of a class."""

_NULL_AS_EMPTY: Final = "null is read as an empty list"

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


class Inference:
    """Collects the types of each column from rows, in bounded memory.

    Args:
        source: the source, which may define features itself, and whose values may all be text.
        wishes: types that the user requests, and those of the previous version, by column.
        dates: whether a column of text becomes a column of times if every value is a time in ISO 8601.
        nulls: the texts that mean null in CSV files.
    """

    def __init__(
        self, source: Source, wishes: Mapping[str, Wish], *, dates: bool = False, nulls: Collection[str] = ()
    ) -> None:
        self._dates = dates
        self._nulls = nulls
        self._quoted_nulls = source.quoted_nulls
        self._is_text = source.is_text
        self._is_csv = source.kind == "csv"
        self._hints = source.hints
        self._wishes = {name: wish for name, wish in wishes.items() if not wish.is_inferred}
        self._before = {name: wish for name, wish in wishes.items() if wish.is_inferred}
        types = {name: wish.arrow_type for name, wish in wishes.items() if wish.is_remembered}
        self._nullable = {
            path for name, kind in types.items() if kind is not None for path in nullable_paths(name, kind)
        }
        self._columns: dict[str, _Column] = {}
        self._parts: set[str] = set()
        self._num_rows = 0

    def update(self, part_name: str, rows: Rows) -> None:
        """Take rows of a part into account, in any order of parts and rows.

        Raises:
            SourceError: the structs of a column have too many fields.
        """
        table, lines = rows.table, rows.lines
        self._num_rows += table.num_rows
        if table.num_rows and len(self._parts) <= _MOST_PARTS:
            self._parts.add(part_name)
        names = table.schema.names
        start: Place = (part_name, int(lines[0])) if table.num_rows else (part_name, 2**63)
        for index, name in enumerate(names):
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column((start, index))
            column.order = min(column.order, (start, index))
            if part_name in self._parts:
                column.parts.add(part_name)
            with column_errors(name, table.schema.field(index).type):
                self._update_column(name, column, part_name, column_array(table, name), lines)

    def schema(self) -> Schema:
        """Return the schema of all rows.

        Raises:
            SourceError: values of a column contradict each other, or a request cannot be fulfilled; the message names
                the file and line of the values.
            UsageError: a requested column does not exist.
        """
        ordered = sorted(self._columns, key=lambda name: (self._columns[name].order, name))
        check_wishes(self._before | self._wishes, ordered)
        skipped = tuple(name for name in ordered if name in self._wishes and self._wishes[name].action == "skip")
        for name in ordered:
            if name not in skipped:
                _check_name(name, self._columns[name].order[0])
        columns = tuple(self._describe(name, self._columns[name]) for name in ordered if name not in skipped)
        return _checked(Schema(columns, skipped))

    def _update_column(self, name: str, column: _Column, part_name: str, array: Any, lines: Sequence[int]) -> None:
        def place_of(index: int) -> Place:
            return part_name, int(lines[index])

        column.update(array, place_of)
        wish = self._wishes.get(name)
        if wish is not None and wish.action != "classes":
            return
        if wish is not None:
            column.classes.update(array, place_of)
        elif name in self._hints:
            column.update_files(self._hints[name], array, place_of)
            before = self._before[name].feature if name in self._before else None
            if isinstance(before, Image) and self._hints[name] == Image(shape=(None, None, None), dtype=before.dtype):
                for _, _, files, _ in files_of(before, array, np.arange(len(array))):
                    column.picture = widen_picture(column.picture or before, files)
            return
        try:
            column.types.update(array, place_of)
        except TypeConflictError as conflict:
            raise _unfit(name, conflict.problem) from conflict
        if wish is None and plain_type(array.type) == arrow.string():
            column.texts.update(array.cast(arrow.string()), place_of, is_text=self._is_text)

    def _describe(self, name: str, column: _Column) -> ColumnSchema:
        num_nulls = column.num_nulls + self._num_rows - column.num_values
        plain = ColumnSchema(
            name=name,
            feature=Text(),
            arrow_type=arrow.string(),
            num_nulls=num_nulls,
            example=column.example or "null",
            is_text=self._is_text,
        )
        before = self._before.get(name)
        if before is None:
            return self._describe_anew(plain, column)
        plain = replace(plain, null_as_empty=bool(before.optional))
        try:
            described = self._describe_anew(plain, column)
        except SourceError:  # The values have no common type, but most may have the type of the previous version.
            if before.feature is None:
                raise
            described = plain
        if not (self._dates and described.is_requested and arrow.types.is_temporal(described.arrow_type)):
            described = _keep(described, before, column.kind)
        return _allow_null(described) if before.optional else described

    def _describe_anew(self, plain: ColumnSchema, column: _Column) -> ColumnSchema:
        """Describe the type that a column would have without the previous version."""
        name = plain.name
        wish, hint = self._wishes.get(name), self._hints.get(name)
        if wish is not None and wish.feature is not None:
            return _request(plain, wish, column.kind)
        if wish is not None and not isinstance(hint, ClassLabel):
            feature, reason = column.classes.decide(name, column.types, is_text=self._is_text, before=wish.classes)
            return _decide(plain, feature, reason, arrow_type_of(feature), wish.optional)
        if hint is not None:
            defined, reason = column.picture or hint, _describe_hint(hint)
            if column.other_files:
                defined = without_decoding(hint, column.other_files)
                place, told = min(column.other_files.values())
                reason = f"the bytes of the files, because {show_place(place)} is {told}"
            kind = arrow_type_of(defined, column.kind)
            is_optional = name in self._nullable or plain.null_as_empty
            optional = True if is_optional else None if wish is None else wish.optional
            return replace(_decide(plain, defined, reason, kind, optional), checks_files=True)
        try:
            return self._infer(plain, column, column.types.unite(name, self._num_rows, nullable=self._nullable))
        except TypeConflictError as conflict:
            raise _unfit(name, conflict.problem, path=conflict.path) from conflict

    def _infer(self, plain: ColumnSchema, column: _Column, united: United) -> ColumnSchema:
        name, kind, reasons = plain.name, united.kind, list(united.notes)
        if self._is_text and arrow.types.is_string(kind):
            word, reason = column.texts.decide()
            kind, reasons = arrow.type_for_alias(word), [reason]
            if column.texts.may_be_numbers:
                reasons.append(f"to read numbers: {_option(name, 'float64')}")
            if self._is_csv and (way := column.texts.explain_comma()):
                reasons.append(way)
            if self._is_csv and (nulls := column.texts.disguised_nulls):
                reasons.append(f"if it means null: {spell_nulls(self._nulls, nulls, self._quoted_nulls)}")
            if word != "string":
                plain = replace(plain, example=plain.example.strip('"'))
        elif arrow.types.is_nested(kind) and plain.num_nulls and not is_nullable(kind):
            is_empty = plain.null_as_empty and is_list(kind)
            reasons.append(_NULL_AS_EMPTY if is_empty else _explain_nulls(name, kind))
        if len(column.parts) < len(self._parts) <= _MOST_PARTS:
            reasons.append(f"only in {list_names(sorted(column.parts))}")
        if arrow.types.is_string(kind) and column.texts.time is not None:
            time = column.texts.time
            if self._dates:
                feature = feature_of_type(time, name)
                return _decide(plain, feature, "every value is an ISO date or time", time)
            offer = f"ISO dates or times; to convert them: {_option(name, type_word(time))}, or {spell('dates', True)}"
            reasons = [*(text for text in reasons if text != "the values are text"), offer]
        try:
            feature = features_of_schema(arrow.schema([(name, kind)]), optional=united.nulls)[name]
        except (FeatureError, PreparedFormatError) as error:
            problem = error.message.removeprefix(f"column {name!r}: ")
            raise _unfit(name, problem, place=f"{show_place(column.order[0])}: ") from error
        more = [f"and {len(reasons) - _MOST_REASONS} more"] if len(reasons) > _MOST_REASONS + 1 else []
        reasons = [*reasons[:_MOST_REASONS], *more] if more else reasons
        reason = "; ".join(filter(None, reasons)) or "as in the source"
        return replace(plain, feature=feature, arrow_type=kind, reason=reason, decimals=tuple(united.decimals))


def declare_schema(source: Source, first: Rows, wishes: Mapping[str, Wish]) -> Schema | None:
    """Return the schema of a source if it is known without reading all rows, else None.

    A schema file that lists every column is sufficient, because it also states which columns may be null. Rows that
    contradict it are unusable.

    Args:
        source: the source.
        first: its first rows: their columns, and an example of each.
        wishes: types that the user requests, by column.

    Raises:
        UsageError: a requested column does not exist.
        SourceError: the columns cannot become features.
    """
    names = first.table.schema.names
    if not names:  # none of the first rows can be used
        return None
    if source.may_lack_columns:
        is_table = source.kind in ("csv", "parquet", "arrow")  # a type may name a column that no file has
        if any((wish.is_remembered or is_table) and name not in names for name, wish in wishes.items()):
            return None
        names = [*names, *(name for name in wishes if name not in names)]
    described: list[ColumnSchema] = []
    skipped: list[str] = []
    for name in names:
        wish, hint = wishes.get(name), source.hints.get(name)
        column = _Column((("", 0), 0))
        column.update(column_array(first.table, name), lambda index: ("", index))
        plain = ColumnSchema(name=name, feature=Text(), arrow_type=None, example=column.example)
        if wish is not None and wish.action == "skip":
            skipped.append(name)
        elif wish is not None and wish.feature is not None and wish.optional is not None and not wish.is_inferred:
            described.append(_request(plain, wish, column.kind))
        elif (wish is None or wish.is_inferred) and hint is not None and source.is_typed:
            decided = _decide(plain, hint, _describe_hint(hint), arrow_type_of(hint, column.kind))
            described.append(decided if wish is None else _keep(decided, wish, column.kind))
        else:
            return None
    check_wishes(wishes, names)
    return _checked(Schema(tuple(described), tuple(skipped)))


def check_wishes(wishes: Mapping[str, Wish], columns: Sequence[str]) -> None:
    """Check that every requested column exists. Raises UsageError if not."""
    for name, wish in wishes.items():
        if name not in columns and not wish.is_remembered:
            hint = suggest(name, columns, have="The columns are:", most=20)
            raise UsageError(
                f"a type is requested for {quote(name)}, but there is no such column",
                hint=hint,
                details={"column": name},
            )


def _check_name(name: str, place: Place) -> None:
    if name and "\0" not in name:
        return
    part, line = place
    raise SourceError(
        f"{part}:{line}: a column has no name" if not name else f"{part}:{line}: the name {quote(name)} has a NUL",
        hint="Rename the column in the source."
        if name
        else f"Rename it: {spell('rename_columns', {'': 'NAME'})}. Or leave it out: {_option(name, 'skip')}",
        details={"column": name},
    )


def _checked(schema: Schema) -> Schema:
    """Return ``schema``. Raises SourceError if its columns cannot be the features of an example."""
    if not schema.columns:
        raise SourceError(
            "the source has no columns",
            hint="Request a type other than `skip` for one of them.",
            details={"skipped": list(schema.skipped)},
        )
    try:
        schema.features()
    except FeatureError as error:
        raise SourceError(
            f"the columns cannot become features: {error.message}",
            hint=error.hint or f"Rename a column in the source, or leave it out: {_option('NAME', 'skip')}",
        ) from error
    return schema


def _keep(column: ColumnSchema, wish: Wish, found: Any) -> ColumnSchema:
    """Give ``column`` the type of the previous version. Rows whose values do not have this type are unusable."""
    before, feature = wish.feature, column.feature
    if before is None or (before == feature and column.is_requested):
        return column
    if isinstance(before, ClassLabel) and isinstance(feature, ClassLabel):
        is_by_name = arrow.types.is_string(found)
        label, reason = continue_classes(column.name, before, feature, column.reason, is_by_name=is_by_name)
        return replace(column, feature=label, reason=reason)
    if isinstance(before, Image) and isinstance(feature, Image) and before.dtype == feature.dtype:
        common = common_picture(before, feature)
        is_wider = f"other sizes than {before.shape} of the previous version"
        return replace(column, feature=common, reason=column.reason if common == before else is_wider)
    feature, kind = keep_types(before, wish.arrow_type, feature, column.arrow_type)
    if (feature, kind) == (column.feature, column.arrow_type):
        return column
    anew = describe_type(column)
    reason = f"{AS_BEFORE}, else {anew}"
    result = replace(column, feature=feature, arrow_type=kind, reason=reason, decimals=())
    return replace(result, is_requested=False, anew=anew, checks_files=True)


def _allow_null(column: ColumnSchema) -> ColumnSchema:
    """Let a column of an inferred type be null."""
    is_empty = is_list(column.arrow_type) and not is_nullable(column.arrow_type)
    return replace(column, feature=as_optional(column.feature), null_as_empty=is_empty)


def _request(plain: ColumnSchema, wish: Wish, found: Any) -> ColumnSchema:
    """Describe a column whose feature the user requests."""
    if wish.feature is None:
        raise AssertionError(wish)
    reason = AS_BEFORE if wish.is_remembered else "as requested"
    kind = arrow_type_of(wish.feature, found) if wish.arrow_type is None else wish.arrow_type
    return replace(_decide(plain, wish.feature, reason, kind, wish.optional), checks_files=True)


def _rank(kind: Any) -> tuple[bool, str]:
    """Return the key by which types of nulls are ordered. The null type is last."""
    return bool(arrow.types.is_null(kind)), str(kind)


def _decide(
    plain: ColumnSchema, feature: Feature, reason: str, kind: Any, optional: bool | None = None
) -> ColumnSchema:
    """Describe a column whose feature the source or the user decides."""
    if isinstance(feature, ClassLabel):
        if plain.num_nulls:
            reason += "; null is stored as -1, which means no label"
    elif is_list(kind) and not is_nullable(kind):
        if optional:
            reason += f"; {_NULL_AS_EMPTY}"
        elif plain.num_nulls:
            reason = f"{reason}; {_explain_nulls(plain.name, kind)}"
        plain = replace(plain, null_as_empty=bool(optional))
    elif optional or (optional is None and plain.num_nulls):
        if is_file_feature(feature):
            feature, kind = SequenceFeature(feature), nullable_type(kind)
            reason += "; null is stored as an empty list"
        else:
            feature = as_optional(feature)
    return replace(plain, feature=feature, arrow_type=kind, reason=reason, is_requested=True)


def _describe_hint(hint: Feature) -> str:
    """Explain why a column has a feature of the source, and in which order its classes are."""
    if not isinstance(hint, ClassLabel) or hint.names is None:
        return "defined by the source"
    order = "sorted by name" if list(hint.names) == sorted(hint.names) else "in the order of the source"
    return f"{len(hint.names):,} class{'es' if len(hint.names) != 1 else ''} of the source, {order}"


def _explain_nulls(name: str, kind: Any) -> str:
    """Explain how nulls are stored in a column of nested values."""
    if arrow.types.is_struct(kind):
        return "in a null struct, every field is null"
    return f"a list cannot be null; to read null as an empty list: {_option(name, f'{type_word(kind.value_type)}[]?')}"


def _option(name: str, word: str) -> str:
    """Return the option that requests a type for a column."""
    return spell("features", {name: word})


def _unfit(name: str, problem: str, *, path: str = "", place: str = "") -> SourceError:
    """Make the error for a column whose values have no type in common, or one that cannot be stored or be classes."""
    return SourceError(
        f"{place}column {quote(path or name)}: {problem}",
        hint=f"To store it as text: {_option(name, 'Text')}. To leave it out: {_option(name, 'skip')}",
        details={"column": name},
    )


@dataclass(slots=True)
class ClassValues:
    """The distinct texts of a column.

    Attributes:
        names: the first place of each text, for at most ``MAX_CLASSES + 1`` texts.
        not_utf8: the place of the first block with text that is not UTF-8.
    """

    names: dict[str, Place] = field(default_factory=dict)
    not_utf8: Place | None = None

    def update(self, array: Any, place_of: Callable[[int], Place]) -> None:
        """Add the values of an array."""
        is_text = arrow.types.is_string(plain_type(array.type))
        if not is_text or array.null_count == len(array) or len(self.names) > MAX_CLASSES:
            return
        start = place_of(0)
        array, place_of = without_nulls(array, place_of)
        encoded = array.dictionary_encode()
        _, indices = np.unique(as_numbers(encoded.indices), return_index=True)
        try:
            texts = encoded.dictionary.to_pylist()
        except UnicodeDecodeError:
            self.not_utf8 = min(self.not_utf8 or start, start)
            return
        for text, index in zip(texts, indices.tolist(), strict=True):
            name = text[: MAX_NAME + 1]
            if len(self.names) <= MAX_CLASSES or name in self.names:
                place = place_of(index)
                self.names[name] = min(self.names.get(name, place), place)

    def decide(
        self, column: str, types: ValueTypes, *, is_text: bool, before: ClassLabel | None = None
    ) -> tuple[ClassLabel, str]:
        """Return the label, and the reason for the order of its classes.

        Args:
            column: the name of the column, for errors.
            types: the types of its values.
            is_text: whether texts of integers are the numbers of classes.
            before: the label of the previous version, whose classes keep their numbers.

        Raises:
            SourceError: the values cannot be classes.
        """
        if before is not None:
            return self._continue(column, types, before, is_text=is_text)
        kinds = {name: seen for name, seen in types.seen.items() if seen.has_values}
        if not kinds:
            raise _unfit(column, "every value is null, so it has no classes")
        if len(kinds) > 1 and not kinds.keys().isdisjoint(("string", "bool")):
            raise _unfit(column, conflict(column, kinds).problem)
        if "bool" in kinds:
            return ClassLabel(names=("false", "true")), "classes false and true, as requested"
        is_integer = arrow.types.is_integer
        integers = [seen for seen in kinds.values() if seen.kind is not None and is_integer(seen.kind)]
        if integers:
            bounds = [bound for seen in integers for bound in (seen.low, seen.high) if bound is not None]
            return self._decide_numbers(column, min(bounds), max(bounds))
        if self.not_utf8 is not None:
            raise _unfit(column, f"text that is not UTF-8 at {show_place(self.not_utf8)} cannot be a class")
        if not self.names:
            name, seen = max(kinds.items())
            raise _unfit(column, f"{name_type(name)} at {show_place(seen.first)} cannot be a class")
        if len(self.names) > MAX_CLASSES:
            raise _unfit(column, f"it has more than {MAX_CLASSES:,} different values, which is too many for classes")
        if is_text and all(map(_INTEGER.fullmatch, self.names)) and "-0" not in self.names:
            numbers = list(map(int, self.names))
            return self._decide_numbers(column, min(numbers), max(numbers))
        return self._decide_names(column)

    def _continue(self, column: str, types: ValueTypes, before: ClassLabel, *, is_text: bool) -> tuple[ClassLabel, str]:
        """Return the label of the previous version, extended by the new classes."""
        kinds = {name for name, seen in types.seen.items() if seen.has_values}
        if not kinds:
            return before, AS_BEFORE
        are_few = 0 < len(self.names) <= MAX_CLASSES and self.not_utf8 is None
        are_names = before.names is not None and are_few and kinds == {"string"}
        try:
            label, reason = self._decide_names(column) if are_names else self.decide(column, types, is_text=is_text)
        except SourceError as error:
            more = f"{error.hint}. To infer all types anew, not as in the previous version: {spell('retype', True)}"
            raise SourceError(error.message, hint=more, details=error.details) from error
        return continue_classes(column, before, label, reason, is_by_name=True)

    def _decide_names(self, column: str) -> tuple[ClassLabel, str]:
        names = sorted(self.names)
        for name in names:
            try:
                if len(name) > MAX_NAME:
                    raise _unfit(column, f"{quote(name)} at {show_place(self.names[name])} is too long for a class")
                ClassLabel(names=[name])
            except FeatureError as error:
                raise _unfit(column, f"{error.message} at {show_place(self.names[name])}") from error
        return ClassLabel(names=names), f"{_count(len(names))} as requested, sorted by name"

    @staticmethod
    def _decide_numbers(column: str, low: int, high: int) -> tuple[ClassLabel, str]:
        if low < -1:
            raise _unfit(column, f"the number {low} cannot be a class")
        if high >= MAX_CLASSES:
            raise _unfit(column, f"the number {high} is too large: a ClassLabel has at most {MAX_CLASSES:,} classes")
        note = ", and -1 for no label" if low < 0 else ""
        label = ClassLabel(num_classes=high + 1)
        return label, f"{_count(high + 1)} as requested, numbered from 0 as in the data{note}"


def continue_classes(
    column: str, before: ClassLabel, label: ClassLabel, reason: str, *, is_by_name: bool
) -> tuple[ClassLabel, str]:
    """Append the new classes of ``label`` to those of the previous version.

    Returns them, and the reason for their order.

    Args:
        column: the name of the column, for errors.
        before: the label of the previous version.
        label: the label of the values.
        reason: the reason for the order of ``label``.
        is_by_name: whether the values are the names of classes, and not their numbers in ``label``.

    Raises:
        SourceError: classes of the previous version have other numbers in ``label``.
    """
    if before.names is not None and label.names is not None:
        known = set(before.names)
        more = [name for name in label.names if name not in known]
        names = [*before.names, *more]
        if is_by_name or names[: len(label.names)] == list(label.names):
            new = f"; new: {', '.join(map(quote, more[:5]))}" + (f" and {len(more) - 5:,} more" if more[5:] else "")
            return ClassLabel(names=names), f"{_count(len(names))}, {AS_BEFORE}{new if more else ''}"
    num_before = before.num_classes or 0
    if label.names is None and (label.num_classes or 0) <= num_before:
        return before, AS_BEFORE
    if before.names is None and label.names is None:
        return label, f"{reason}; {num_before:,} in the previous version"
    raise SourceError(
        f"column {quote(column)}: its classes were {_show_classes(before)} in the previous version, and are "
        f"{_show_classes(label)} now",
        hint=f"To number the classes anew: {spell('retype', True)}",
        details={"column": column},
    )


def _show_classes(label: ClassLabel) -> str:
    if label.names is None:
        return "numbers"
    return f"the names {', '.join(map(quote, label.names[:5]))}{' ...' if label.names[5:] else ''}"


def _count(number: int) -> str:
    return f"{number:,} class{'es' if number != 1 else ''}"


@dataclass(slots=True)
class _Column:
    """The counts, types and first values of a column.

    Attributes:
        order: the place where the column first occurs, by which columns are ordered.
        num_values: the number of rows that have the column.
        num_nulls: the number of these in which it is null.
        parts: the parts that have the column, if there are not too many.
        first: the place of the first value, whose text is ``example`` and whose type is ``kind``.
        types: the types of all values, unless the type is decided by the source or the user.
        texts: the types that text may have.
        classes: the distinct values of a column that becomes a ClassLabel.
        other_files: for the path of images or sounds that the source defines, the place of the first file that cannot
            be decoded as one, and why.
        picture: the Image of the previous version, without sizes that some pictures do not have, if the source defines
            no sizes.
    """

    order: tuple[Place, int]
    num_values: int = 0
    num_nulls: int = 0
    parts: set[str] = field(default_factory=set)
    first: Place | None = None
    example: str = ""
    kind: Any = None
    types: ValueTypes = field(default_factory=ValueTypes)
    texts: TextTypes = field(default_factory=TextTypes)
    classes: ClassValues = field(default_factory=ClassValues)
    other_files: dict[str, tuple[Place, str]] = field(default_factory=dict)
    picture: Image | None = None

    def update(self, array: Any, place_of: Callable[[int], Place]) -> None:
        """Count the values, and keep the first."""
        self.num_values += len(array)
        self.num_nulls += array.null_count
        if self.first is None:  # without values, the type of the nulls decides
            kind = plain_type(array.type)
            self.kind = kind if self.kind is None else min(self.kind, kind, key=_rank)
        if array.null_count == len(array) or (self.first is not None and self.first <= place_of(0)):
            return
        index = first_of(array.is_valid(), value=True) or 0
        if self.first is None or place_of(index) < self.first:
            self.first, self.kind = place_of(index), plain_type(array.type)
            self.example = show_value(python_value(array, index))

    def update_files(self, feature: Feature, array: Any, place_of: Callable[[int], Place]) -> None:
        """Find files that ``feature``, which the source defines, cannot decode, such as a GIF among images."""
        for path, leaf, files, rows in files_of(feature, array, np.arange(len(array))):
            index = next(other_files(leaf, files), None)
            if index is not None:
                place = place_of(int(rows[index])), describe_other(leaf)
                self.other_files[path] = min(place, self.other_files.get(path, place))
