"""Plans how a source becomes a dataset before anything is written: its schema, keys, name and description.

    Source -> (all rows are read) -> Plan -> staging

While blocks of rows are read, the C library keeps the memory of freed arrays. It is returned to the system between the
steps of an addition; otherwise the next step, or its workers, would need additional memory.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from registry.engines.workers import keep_freed_memory
from registry.errors import SourceError, UnusableRowsError, UsageError, spell, suggest
from registry.features import FeaturesDict
from registry.intake.conversion import NO_BYTES, ColumnSchema
from registry.intake.csv_files import OPEN_QUOTE, TEXT_AFTER_QUOTE
from registry.intake.feature_text import Wish, is_type
from registry.intake.inference import Inference, check_wishes, declare_schema
from registry.intake.object_tables import TableFile
from registry.intake.options import AddOptions
from registry.intake.python_values import MIXED_LIST
from registry.intake.records import Holdout, KeyCandidates, KeyRule, stored_features
from registry.intake.schema import AS_BEFORE, Schema, describe_requests
from registry.intake.source import BadRow, Rows, Source, SourcePart, list_names, no_column, quote
from registry.intake.split_names import check_cases
from registry.intake.text_types import ANY_SEPARATOR, DECIMAL_COMMA, NULL_WORDS, spell_nulls
from registry.intake.value_types import is_nullable
from registry.model import DatasetMetadata, ProgressCallback, count_progress
from registry.shards.arrow_values import import_pyarrow
from registry.storage.temporary import check_free_space

KEPT_BYTES: Final = 2**30
"""Text is parsed only once if its rows have at most this number of bytes, an eighth of them in memory."""

_WORD: Final = re.compile(r'expected (?!bool).*, found "([^\W\d_]+)"')
"""A word in a column of numbers or times."""

_NULL_LIST: Final = re.compile(r"the type (\S+) reads it as an empty list")
_NULL: Final = re.compile("is null, but the type .+ does not allow nulls; (.+) does")
_READERS: Final = (
    (
        "csv",
        f"^({OPEN_QUOTE}|{TEXT_AFTER_QUOTE})$",
        "If a backslash escapes quotes",
        f"{ANY_SEPARATOR}, escapechar='\\\\'",
    ),
    (
        *("csv", rf'expected float\d+, found "{DECIMAL_COMMA}"$', "If the comma is the decimal mark"),
        f"{ANY_SEPARATOR}, decimal=','",
    ),
    (  # pandas also takes the points out of dates
        *("csv", r'expected float\d+, found "-?[0-9]{1,3}(\.[0-9]{3})+,[0-9]+"$', "If points separate thousands"),
        f"{ANY_SEPARATOR}, decimal=',', thousands='.'",
    ),
    (
        *("csv", r'expected u?int\d+, found "-?[0-9]{1,3}(,[0-9]{3})+"$', "If commas separate thousands"),
        f"{ANY_SEPARATOR}, thousands=','",
    ),
    ("json", "is not a number in JSON", "To read NaN and infinity", ""),
    ("json", "^expected an object, found a (text|number|bool|list)", "If the list is a table", ""),
)
"""Reasons that another reader resolves: its name in pandas, a pattern of the reason, when it applies, and options."""

MOST_NAMED: Final = 20
_MOST_LISTED: Final = 100
MOST_KEPT: Final = 10_000
"""The maximum number of bad rows that a version lists; of further bad rows, only the number is stored."""

_PARSED_KINDS: Final = ("csv", "json")  # Rows of other kinds may be views of files, which may change.

REQUESTED: Final = "as requested"
"""The reason of a rule that the caller chose."""

INTAKE: Final = "intake"
"""The entry of a version's custom metadata that says how it was added."""


@dataclass(slots=True, kw_only=True)
class BadRows:
    """The number of rows and files that cannot be used, and the first of them.

    Attributes:
        allowed: how many may be left out.
        nulls: the texts that mean null in the CSV files of the source; None if it has another kind.
        quoted_nulls: other such texts, which are in quotes in these files.
    """

    allowed: int = 0
    nulls: Sequence[str] | None = None
    quoted_nulls: Collection[str] = ()
    count: int = 0
    first: list[BadRow] = field(default_factory=list)

    @classmethod
    def of(cls, source: Source, options: AddOptions) -> BadRows:
        """No rows yet of ``source``."""
        nulls = options.nulls if source.kind == "csv" else None
        return cls(allowed=options.skip_bad, nulls=nulls, quoted_nulls=source.quoted_nulls)

    def add(self, rows: Sequence[BadRow]) -> None:
        """Count ``rows``, and keep them while the list is short."""
        self.count += len(rows)
        self.first += rows[: max(0, MOST_KEPT - len(self.first))]

    def require_few(self, num_usable: int, columns: Sequence[ColumnSchema] = ()) -> None:
        """Raise an UnusableRowsError that names the first rows, if there are more than allowed.

        Args:
            num_usable: the number of the other rows. If they are fewer, the source is probably misread, and the hint
                does not suggest leaving out rows.
            columns: the columns of the schema, whose types may be at fault.
        """
        if self.count <= self.allowed:
            return
        limit = f", and at most {self.allowed:,} may be skipped" if self.allowed else ""
        subject = "1 row or file" if self.count == 1 else f"{self.count:,} rows or files"
        ways = self._explain_nulls() + self._explain_retype(columns) + self._explain_reasons()
        ways += self._explain_row_names() if num_usable == 0 else ""
        hint = (
            f"Correct them, or leave them out: {spell('skip_bad', self.count)}{ways}"
            if num_usable >= self.count
            else self._explain_types(columns, ways, "No row fits" if num_usable == 0 else "Most rows do not fit")
        )
        raise unusable_rows(f"{subject} cannot be used{limit}", self.first, self.count, hint)

    def _reasons(self) -> dict[str | None, list[str]]:
        """The faults of each column."""
        reasons: dict[str | None, list[str]] = {}
        for row in self.first:
            for column, reason in ((row.column, row.reason), *row.also):
                reasons.setdefault(column, []).append(reason)
        return reasons

    def _explain_retype(self, columns: Sequence[ColumnSchema]) -> str:
        """Return a hint that changes the types of the columns at fault that come from the previous version."""
        reasons = self._reasons()
        before = [column for column in columns if column.name in reasons and AS_BEFORE in column.reason]
        if not before:
            return ""
        types = {one.name: word for one in before if is_type(word := _fitting_type(one, reasons[one.name]))}
        subject = "one type" if len(types) == 1 else "only the types of these columns"
        own = f". To change {subject}: {spell('features', types)}" if types else ""
        return f". To infer all types anew, not as in the previous version: {spell('retype', True)}{own}"

    def _explain_reasons(self) -> str:
        """Return hints for the first reasons that a type or another reader resolves."""
        ways = dict.fromkeys(way for row in self.first[:MOST_NAMED] for way in self._ways_out(row))
        return "".join(f". {way}" for way in list(ways)[:2])

    def _ways_out(self, row: BadRow) -> Iterator[str]:
        column = re.split(r"\[\]|/", row.column or "")[0]
        if column and (row.reason == MIXED_LIST or row.reason.endswith(" does not fit into 64 bits")):
            yield f"To keep the column as text: {spell('features', {column: 'Text'})}"
        if empty := _NULL_LIST.search(row.reason):
            yield f"To read null as an empty list: {spell('features', {column: empty[1]})}"
        is_csv = self.nulls is not None
        if is_csv and row.reason in (OPEN_QUOTE, TEXT_AFTER_QUOTE):
            yield f"If quotes are text: {spell('quotes', False)}"
        for function, pattern, when, options in _READERS:
            if (function == "csv") == is_csv and re.search(pattern, row.reason):
                lines = ", lines=True" if function == "json" and "jsonl" in row.file else ""
                yield f"{when}: registry.add(pandas.read_{function}({row.file!r}{options}{lines}), 'NAME')"

    def _explain_row_names(self) -> str:
        """Return a hint for a header without a name for the names of rows, as R writes it, if all rows are too long."""
        widths = re.fullmatch("expected ([0-9]+) values, found ([0-9]+)", self.first[0].reason)
        if widths is None or int(widths[2]) != int(widths[1]) + 1:
            return ""
        frame = f"pandas.read_csv({self.first[0].file!r}{ANY_SEPARATOR}).reset_index(names='row')"
        return f". If the first value of each row is its name: registry.add({frame}, 'NAME')"

    def _explain_nulls(self) -> str:
        """Return a hint that reads texts at fault as null, if they usually mean it."""
        if self.nulls is None:
            return ""
        reasons = [row.reason for row in self.first]
        words = [word for word in NULL_WORDS if any(reason.endswith(f", found {quote(word)}") for reason in reasons)]
        others = {match and match[1] for reason in reasons if "found" in reason for match in [_WORD.fullmatch(reason)]}
        if len(others - {*words}) == 1:
            words += [word for word in others - {*words} if word is not None]
        # The option replaces the words of the previous version
        return f". If it means null: {spell_nulls(self.nulls, words, self.quoted_nulls)}" if words else ""

    def _explain_types(self, columns: Sequence[ColumnSchema], others: str, subject: str) -> str:
        """What to do if no row fits: keep the columns at fault as text, or as the bytes of files, or ``others``."""
        types = import_pyarrow().types
        ways = []
        faults = self._reasons()
        for column in columns:
            reasons = [reason for reason in faults.get(column.name, ()) if not reason.startswith("is null, but")]
            kind = column.arrow_type.value_type if is_nullable(column.arrow_type) else column.arrow_type
            is_text = types.is_string(kind)
            # Which ``others`` name
            has_other_type = bool(reasons) and AS_BEFORE in column.reason and is_type(_fitting_type(column, reasons))
            if not reasons or has_other_type or (is_text and not any("UTF-8" in reason for reason in reasons)):
                continue
            if any(reason.startswith(("expected an array", "expected dtype")) for reason in reasons):
                ways.append(f"To keep the arrays of {quote(column.name)}, leave out its type")
                continue
            if any(reason.startswith(NO_BYTES) for reason in reasons):
                ways.append(
                    f"To read files by the paths in {quote(column.name)}: call it file_name in a metadata.csv beside "
                    "the files. In Python, pass their bytes"
                )
                continue
            if is_text or types.is_binary(kind):
                form, word = "bytes", "bytes"
            else:
                form, word = "JSON text" if types.is_nested(kind) else "text", "Text"
            ways.append(f"To keep the column as {form}: {spell('features', {column.name: word})}")
        if not ways and not others:
            place = ", and that its first line is neither a title nor a comment" if self.nulls is not None else ""
            return f"{subject}. Check how the source is written{place}."
        return ". ".join([subject, *ways[:3]]) + others


def unusable_rows(problem: str, first: Sequence[BadRow], count: int, hint: str) -> UnusableRowsError:
    """Make the error for ``count`` rows that cannot be used, which lists the ``first`` of them."""
    lines = [f"  {row}" for row in first[:MOST_NAMED]]
    if count > len(lines):
        lines.append(f"  and {count - len(lines):,} more")
    bad = [
        {"file": row.file, "line": row.line, "column": row.column, "reason": row.reason} for row in first[:_MOST_LISTED]
    ]
    return UnusableRowsError("\n".join([problem, *lines]), hint=hint, details={"num_bad": count, "bad": bad})


def _fitting_type(column: ColumnSchema, reasons: Sequence[str]) -> str:
    """The type that a column of the previous version needs because of ``reasons``; may be empty.

    Nulls alone make its type optional, whatever the other values look like.
    """
    optional = {null[1] if (null := _NULL.fullmatch(reason)) else "" for reason in reasons}
    if "" not in optional:
        return optional.pop()
    # A requested type was not inferred: text can hold what it cannot.
    types = import_pyarrow().types
    is_plain = types.is_string(column.arrow_type) or types.is_binary(column.arrow_type)
    anew = column.anew or ("bytes" if is_plain else "Text")
    may_be_null = column.null_as_empty or getattr(column.feature, "optional", False)
    return f"{anew}?" if may_be_null and not anew.endswith("?") else anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A dataset that will be written: its source, schema and keys.

    Attributes:
        source: where the rows come from.
        schema: the types of the columns.
        rule: where the keys come from.
        rule_reason: the reason for ``rule``, for messages.
        num_rows: the number of usable rows; None if they were not counted.
        split_by: the column with the names of splits, or None.
        renamed: new names for these splits.
        holdout: the split that is taken out of another split, or None.
        suggested_key: a unique column with a name like that of a key, if no key was chosen and all rows were compared.
        requests: the types that the caller requested, as ``remembered.describe_requests`` writes them.
        remembered: the options of the previous version that apply again.
        is_first: whether this is the first version.
        bad: the rows that cannot be used, and the number that may be left out.
    """

    source: Source
    schema: Schema
    rule: KeyRule
    rule_reason: str
    num_rows: int | None
    split_by: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    holdout: Holdout | None = None
    suggested_key: str | None = None
    requests: Mapping[str, Any] = field(default_factory=dict)
    remembered: Mapping[str, Any] = field(default_factory=dict)
    is_first: bool = True
    bad: BadRows

    def stored(self) -> FeaturesDict:
        """The features of a record."""
        return stored_features(self.schema, self.split_by)

    @property
    def path_column(self) -> str:
        """The column with the names of files; empty if it is not stored."""
        return self.source.path_column if self.source.path_column in self.stored() else ""

    @property
    def has_splits(self) -> bool:
        """Whether records may belong to several splits."""
        return self.split_by is not None or self.holdout is not None or len(self.source.splits) > 1

    @property
    def new_names(self) -> Mapping[str, str]:
        """The new names of splits in a column; each of these splits must occur."""
        return self.renamed if self.split_by is not None and "rename_splits" not in self.remembered else {}

    def shares_key(self, metadata: DatasetMetadata) -> bool:
        """Whether the version with this ``metadata`` has the same key column."""
        earlier = metadata.custom.get(INTAKE)
        before = KeyRule.from_json(earlier.get("key")) if isinstance(earlier, Mapping) else None
        return self.rule.kind == "column" and before is not None and before.columns == self.rule.columns

    def metadata(self) -> DatasetMetadata:
        """Return the description of the version, including the facts that exports and later versions need."""
        custom: dict[str, Any] = {
            **self.source.metadata.custom,
            INTAKE: {
                "kind": self.source.kind,
                "columns": [column.name for column in self.schema.columns],  # a schema sorts them by name
                "key": self.rule.to_json(),
                **self.requests,
            },
        }
        if nullable := self.schema.nullable_paths():
            custom[INTAKE]["nullable"] = nullable
        if types := self.schema.arrow_types():
            custom["arrow_types"] = types
        extra = dict(self.source.metadata.extra)
        if self.source.origins:
            extra["downloadChecksums"] = {
                origin.url: {"checksum": origin.sha256, "size": origin.num_bytes}
                for origin in sorted(self.source.origins, key=lambda origin: origin.url)
            }
        keys = self.source.metadata.supervised_keys
        stored = keys if keys and set(keys) <= set(self.stored()) else None
        return replace(self.source.metadata, custom=custom, extra=extra, supervised_keys=stored)


def plan_source(
    source: Source,
    options: AddOptions,
    *,
    earlier: Mapping[str, Any] | None = None,
    progress: ProgressCallback | None = None,
) -> Plan:
    """Decide the schema and the keys of ``source``. Reads every row, unless all types are already known.

    Args:
        source: what to read.
        options: the requested types, keys and splits, and the number of rows that may be left out.
        earlier: the entry ``intake`` in the metadata of the previous version, if any.
        progress: called with a ``Progress``: rows are ``reading``.

    Raises:
        SourceError: a part cannot be read, types contradict each other, or there are no rows.
        UnusableRowsError: more rows are unusable than ``options`` allow.
        UsageError: the key, the column of splits, or a column with a requested type does not exist, or an option is
            malformed.
    """
    wishes, key, split_by = options.wishes(), options.key, options.split_by or source.split_by or None
    holdout = None if not options.holdout else Holdout.parse(options.holdout, seed=options.seed)
    _check_key_by(key, options.key_by)
    if split_by is None:  # The splits in a column are known only when its rows have been read.
        check_cases([*source.splits, *([] if holdout is None else [holdout.split])])
    keep_freed_memory()
    first = source.first_rows()
    schema = None
    if first is not None:
        if not source.may_lack_columns and first.table.num_columns:  # check before a long read
            check_wishes(wishes, first.table.schema.names)
        schema = declare_schema(source, first, wishes)
    candidates = KeyCandidates([name for name, wish in wishes.items() if not wish.is_inferred])
    if schema is None or first is None:
        source, schema, num_rows, has_paths = _read_all(source, options, candidates, progress)
    else:  # All types are known, so one pass suffices. Rows that do not fit are unusable.
        num_rows, has_paths = None, first.keys is not None
    names = [column.name for column in schema.columns]
    for old, new in options.new_columns().items():
        if new not in (*names, *schema.skipped):
            raise no_column(old, names)
    if options.dates:  # These count as requested by --feature, so that the next version has them as well.
        is_time = import_pyarrow().types.is_temporal
        made = [timed for timed in schema.columns if timed.is_requested and is_time(timed.arrow_type)]
        times = {one.name: Wish(text=REQUESTED, feature=one.feature) for one in made}
        wishes = times | {name: wish for name, wish in wishes.items() if name not in times or not wish.is_inferred}
    for option, column in (("key", key), ("split_by", split_by)):
        if column is not None and column not in names:
            is_rule = option == "key" and column in ("path", "content")
            raise UsageError(
                f"{spell(option, column)}: there is no such column",
                hint=f"For keys that are not in a column: {spell('key_by', column)}"
                if is_rule
                else f"For another rule of splits: {spell('split_by=COLUMN')}, or {spell('split_by', '')} for none"
                if option == "split_by" and "split_by" in options.remembered
                else suggest(column, names, have="The columns are:"),
                details={"column": column},
            )
    if split_by is not None and len(names) == 1:
        raise UsageError(
            f"{spell('split_by', split_by)} leaves no column to store",
            hint="The column that decides the split is not stored.",
            details={"column": split_by},
        )
    stored = [name for name in names if name != split_by]
    rule, reason = _choose_rule(stored, names, options, earlier or {}, has_paths=has_paths)
    if rule.kind == "path" and source.path_column in stored:
        rule = replace(rule, columns=(source.path_column,))
    plan = Plan(
        source=source,
        schema=schema,
        rule=rule,
        rule_reason=reason,
        num_rows=num_rows,
        split_by=split_by,
        renamed=options.rename_splits or {},
        holdout=holdout,
        is_first=earlier is None,
        # The second pass would report the same rows again.
        bad=BadRows.of(source, options),
        requests=describe_requests(wishes, stored_features(schema, split_by), schema.without_values(num_rows))
        | ({"options": given} if (given := options.describe()) else {}),
        remembered={name: value for name, value in options.describe().items() if name in options.remembered},
    )
    is_default = rule.kind == "content" and reason != REQUESTED
    return replace(plan, suggested_key=candidates.find(stored)) if is_default else plan


def _read_all(
    source: Source,
    options: AddOptions,
    candidates: KeyCandidates,
    progress: ProgressCallback | None,
) -> tuple[Source, Schema, int, bool]:
    """Read every row.

    Returns:
        The source, which keeps its rows if they are few; the schema; the number of usable rows; and whether every
        record has a name in the source.
    """
    bad = BadRows.of(source, options)
    inference = Inference(source, options.wishes(), dates=options.dates, nulls=options.nulls)
    advance = count_progress(progress, "reading", source.kind, unit="rows", announce=True)
    num_rows, has_paths = 0, True
    kept = _KeptRows() if source.kind in _PARSED_KINDS else None
    for number, part in enumerate(source.parts):
        for rows in part.read():
            if kept is not None and not kept.add(number, rows):
                kept = None
            inference.update(part.name, rows)
            candidates.update(rows.table)
            bad.add(rows.bad)
            num_rows += rows.table.num_rows
            has_paths = has_paths and rows.keys is not None
            if advance is not None:
                advance(rows.table.num_rows)
    bad.require_few(num_rows)
    if num_rows == 0:
        raise SourceError(
            f"the source has no rows: {list_names([part.name for part in source.parts])}",
            hint="A version needs at least one record. Check the path and the skipped files.",
            details={"kind": source.kind},
        )
    if kept is not None:
        parts = [replace(part, read=partial(kept.read, number, part)) for number, part in enumerate(source.parts)]
        source = replace(source, parts=parts)
    return source, inference.schema(), num_rows, has_paths


class _KeptRows:
    """The rows of parts: the first in memory, the others in a temporary file.

    Parsing them again would take several times as long as reading the file. The memory is freed while the rows are read
    again, when sorting needs more and more.
    """

    def __init__(self) -> None:
        self._num_bytes = 0
        self._file: TableFile | None = None
        self._rows: dict[int, deque[Callable[[], Rows]]] = {}

    def add(self, number: int, rows: Rows) -> bool:
        """Keep the next rows of part ``number``.

        Returns False if the space is used up; all parts then have to be read again.
        """
        waiting = self._rows.setdefault(number, deque())
        self._num_bytes += rows.table.nbytes
        if not isinstance(rows.lines, range):  # a list of integers takes five times as much
            rows = replace(rows, lines=array("q", rows.lines))
            self._num_bytes += 8 * len(rows.lines)
        if self._num_bytes <= KEPT_BYTES // 8:
            waiting.append(lambda: rows)
            return True
        try:
            if self._file is None:
                check_free_space(tempfile.gettempdir(), KEPT_BYTES, "the rows of text")
                self._file = TableFile()
            self._file.write(rows)
        except OSError:
            return False
        waiting.append(partial(self._file.read, len(self._file) - 1))
        return self._num_bytes <= KEPT_BYTES

    def read(self, number: int, part: SourcePart) -> Iterator[Rows]:
        """Read a part, whose rows are forgotten meanwhile; read it from the source the next time."""
        waiting = self._rows.pop(number, None)
        if waiting is None:
            yield from part.read()
            return
        while waiting:
            if len(waiting) % 8 == 0:  # the memory pool of pyarrow keeps freed memory
                import_pyarrow().default_memory_pool().release_unused()
            yield waiting.popleft()()
        if not self._rows:
            self._file = None


def _check_key_by(key: str | None, key_by: str | None) -> None:
    if key_by is not None and key_by not in ("path", "content"):
        raise UsageError(
            f"key_by must be 'path' or 'content', not {key_by!r:.60}",
            hint=f"To take the keys from a column: {spell('key', key_by)}",
            details={"key_by": key_by[:200]},
        )
    if key is not None and key_by is not None:
        raise UsageError(
            f"{spell('key', key)} takes the keys from a column, and {spell('key_by', key_by)} does not",
            hint="Leave one of them out.",
            details={"key": key, "key_by": key_by},
        )


def _choose_rule(
    stored: Sequence[str], names: Sequence[str], options: AddOptions, before: Mapping[str, Any], *, has_paths: bool
) -> tuple[KeyRule, str]:
    earlier, columns = KeyRule.from_json(before.get("key")), before.get("columns")
    if options.key is not None:
        return KeyRule(kind="column", columns=(options.key,)), REQUESTED
    if options.key_by == "path" and not has_paths:
        raise UsageError(
            f"{spell('key_by', 'path')}: the records of this source have no paths",
            hint=f"Leave it out, or write {spell('key_by', 'content')}.",
            details={"key_by": "path"},
        )
    requested = REQUESTED
    if options.key_by is None:
        if earlier is not None and earlier.kind == "column":
            _require_key(earlier.columns[0], names)
            return earlier, "as in the previous version"
        requested = ""
    if has_paths and options.key_by != "content" and (options.key_by == "path" or not _is_content(earlier, stored)):
        return KeyRule(kind="path"), requested or "the path of a file, or the key in an archive"
    if earlier is not None and _is_content(earlier, stored):
        # Also if content keys are requested: the same command then gives the same keys each time.
        known = [column for column in columns if column in stored] if isinstance(columns, list) else []
        return earlier.with_more_columns(known, stored), requested or "the same columns as in the previous version"
    return KeyRule(kind="content", columns=tuple(sorted(stored))), requested or "there is no key column"


def _require_key(key: str, names: Sequence[str]) -> None:
    """Raise SourceError if the key column of the previous version is missing: other keys would move every record."""
    if key not in names:
        raise SourceError(
            f"the source has no column {key!r}, whose values are the keys of the previous version; its columns are "
            f"{list_names(names)}",
            hint=f"If it has another name now: {spell('rename_columns', {'NAME': key})}. "
            f"To take other keys, which moves every record: {spell('key', 'COLUMN')} or {spell('key_by', 'content')}",
            details={"key": key, "columns": list(names[:100])},
        )


def _is_content(rule: KeyRule | None, stored: Sequence[str]) -> bool:
    """Whether ``rule`` hashes columns that all still exist."""
    return rule is not None and rule.kind == "content" and bool(rule.columns) and set(rule.columns) <= set(stored)


def return_freed_memory() -> None:
    """Return the freed memory of pyarrow and glibc, often more than 100 MB, to the system. Takes a few milliseconds.

    glibc keeps freed memory for each thread that has ever allocated any, including readers and writers.
    """
    import_pyarrow().default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries lack this function
    if trim is not None:
        trim(0)
