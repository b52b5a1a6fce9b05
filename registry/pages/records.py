"""The records of a version: pages of rows that are filtered, searched and sorted by the address, and single records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from registry.api import Dataset
from registry.display import time_types
from registry.envelope import fields_of
from registry.errors import CatalogPermissionError, NotFoundError, RegistryError, StorageError, UsageError, suggest
from registry.features.containers import columns_of
from registry.pages.cells import STORED_ORDER, Cells, address_names, cut
from registry.pages.dataset import opened_by, version_values
from registry.pages.other_versions import digest_of, other_versions
from registry.pages.page import Page, Visit
from registry.pages.previews import first_split
from registry.pages.rendering import error_values, status_of
from registry.pages.selection import Question, fill, filling_values, select, sort_paths
from registry.reading import Reader
from registry.reading.conditions import column_text, is_comparable, text_literal
from registry.shards import open_shard
from registry.splits import Plan
from registry.tfrecord.framing import HEADER_BYTES
from registry.tfrecord.shard import MappedShard

_ROWS: Final = 50
_PAGE_BYTES: Final = 2**26
_COLUMNS: Final = 30
_MOST_ADDRESS: Final = 2000
_MOST_EXAMPLE: Final = 40
_EXAMPLES: Final = {"object": "== 'a word'", "bool": "== True"}
"""By dtype; numbers have another one."""


def records(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Page:
    """The records of a split or of an expression, 50 to a page; or one record of a split."""
    if len(rest) == 2 and rest[1].isdecimal():
        return record(visit, dataset, rest[0], int(rest[1][:18]))
    match = re.fullmatch(r"from-(\d{1,18})", rest[1]) if len(rest) == 2 else None
    if len(rest) > 2 or (len(rest) == 2 and match is None) or (rest and rest[0] not in dataset.splits):
        raise NotFoundError(f"{dataset.reference} has no records {'/'.join(rest)!r:.80}", hint=_splits_of(dataset))
    query = {name: value for name, value in visit.query.items() if visit.is_live and value.strip()}
    split = query.get("split") or (rest[0] if rest else first_split(tuple(dataset.splits)))
    question = Question(**{name: query.get(name, "") for name in ("where", "q", "sort")})
    names = address_names(dataset.metadata.in_source_order(list(dataset.features)))
    values: dict[str, Any] = {
        **version_values(dataset),
        "splits": [fields_of(it, "name", "num_examples") for it in dataset.facts.splits],
        "split": split or "",
        **fields_of(question, "where", "q", "sort"),
        "example_conditions": _example_conditions(dataset),
        "sortable": _listed(sort_paths(dataset.features), 200),
        "all_columns": _listed(names, 1000),
        "is_plain": split in dataset.splits,
        **dict.fromkeys(("columns", "rows"), ()),
        **dict.fromkeys(("problem", "previous", "next", "last", "filling", "refresh", "num_matches")),
        **dict.fromkeys(("num_examples", "total"), 0),
        "first": int(match[1]) if match else 0,
        "columns_query": query.get("columns"),
    }
    title = f"Records of {dataset.reference}"
    if split is None:
        return Page(name="records", title=title, values=values)
    try:
        status = _fill(values, visit, dataset, question, names)
    except (RegistryError, OSError) as error:
        fault = error if isinstance(error, RegistryError) else StorageError(str(error))
        values["problem"] = error_values(fault, visit)
        status = status_of(fault)
    filling = values["filling"]
    refresh = 2 if filling is not None and filling["is_running"] else None
    return Page(name="records", title=title, values={**values, "refresh": refresh}, status=status)


def _fill(values: dict[str, Any], visit: Visit, dataset: Dataset, question: Question, names: Mapping[str, str]) -> int:
    """Add the rows to the values of a page; returns the HTTP status."""
    if any(len(value) > _MOST_ADDRESS for value in visit.query.values()):
        raise UsageError(f"a value of the address has more than {_MOST_ADDRESS:,} characters", hint="Use Python.")
    chosen = _columns(values["columns_query"], names)
    after, before = (_position(visit, name) for name in ("after", "before"))
    if after is not None and before is not None:
        raise UsageError("an address must not have both the record before a page and the record after it")
    plan = dataset.resolve(values["split"])
    end = _num_pages(visit, plan.num_examples)
    sorts = {path: address for address, path in sort_paths(dataset.features).items()}
    columns = [{"name": cut(name), "sorts": sorts.get(name, "")} for name in chosen]
    values |= {"columns": columns, "num_examples": plan.num_examples}
    most = _page_rows(dataset, plan)
    start = values["first"] - 1 if after is None else after
    found = select(dataset, plan, question, start, most, before=before, stop=end)
    values |= {"filling": filling_values(found), **fields_of(found, "first", "total", "num_matches")}
    if found.missing:
        return 200
    if not found.positions and (start, before) != (-1, None):
        place = f"before {before}" if before is not None else f"behind {start}"
        raise NotFoundError(
            f"there are no records {place}", hint=f"There are {found.total:,}. Begin at the first page."
        )
    reader = dataset.read(plan.instruction, STORED_ORDER, keep=None).select(chosen).files_as_bytes()
    rows = _read(reader, found.positions)
    cells = Cells(dataset, reader, num_rows=len(rows), most_media=4, is_whole=False)
    values["rows"] = [
        _row(visit, cells, row, plan, position) for row, position in zip(rows, found.positions, strict=True)
    ]
    if found.first:
        values["previous"] = found.positions[0] if visit.is_live else max(0, found.first - most)
    if found.follows:
        values["next"] = found.positions[-1] if visit.is_live else found.first + most
        values["last"] = plan.num_examples if visit.is_live else (end - 1) // most * most
    faults = [row for row in rows if isinstance(row, RegistryError)]
    return status_of(faults[0]) if faults and len(faults) == len(rows) else 200


def _position(visit: Visit, name: str) -> int | None:
    """The number of a record in an address."""
    text = visit.query.get(name) if visit.is_live else None
    if text is not None and not re.fullmatch("[0-9]{1,18}", text):
        raise UsageError(f"{name} is not the number of a record: {text!r:.40}", hint=f"Write e.g. {name}=50.")
    return None if text is None else int(text)


def _num_pages(visit: Visit, num_examples: int) -> int:
    """How many records have a page: in a site of files, the first ones."""
    return num_examples if visit.is_live or visit.most_records is None else min(num_examples, visit.most_records)


def _row(visit: Visit, cells: Cells, row: Any, plan: Plan, position: int) -> dict[str, Any]:
    split, index = place_of(plan, position)
    values: dict[str, Any] = {"position": position, "split": split, "index": index, "cells": (), "problem": None}
    if isinstance(row, RegistryError):
        return {**values, "problem": error_values(row, visit)}
    return {**values, "cells": cells.row(row, split, index)}


def _read(reader: Reader, positions: Sequence[int]) -> list[Any]:
    """The examples at some positions; the error of each one that is damaged."""
    try:
        return list(reader.examples_at(positions))
    except RegistryError:
        rows: list[Any] = []
        for position in positions:
            try:
                rows.append(reader[position])
            except RegistryError as error:
                rows.append(error)
        return rows


def _page_rows(dataset: Dataset, plan: Plan) -> int:
    """The rows of a page: 50, or fewer if records are large."""
    splits = [dataset.facts.split(part.split) for part in plan.ranges]
    mean = max((split.num_bytes / max(1, split.num_examples) for split in splits), default=1)
    return max(1, min(_ROWS, int(_PAGE_BYTES / max(1, mean))))


def place_of(plan: Plan, position: int) -> tuple[str, int]:
    """The split of a position of a plan in stored order, and the number of its record."""
    for part in plan.ranges:
        if position < part.stop - part.start:
            return part.split, part.start + position
        position -= part.stop - part.start
    raise AssertionError("a position outside of its plan")


def _columns(text: str | None, names: Mapping[str, str]) -> list[str]:
    """The features that an address chooses, or the first ones; at most 30."""
    chosen = list(dict.fromkeys(text.split(","))) if text else list(names)
    for name in chosen:
        if name not in names:
            raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, names))
    return [names[name] for name in chosen[:_COLUMNS]]


def _example_conditions(dataset: Dataset) -> list[str]:
    """Three conditions on the first classes, numbers, bools or texts that one can compare; none if there are none."""
    times = time_types(dataset.features, dataset.metadata)
    order = dataset.metadata.in_source_order(list(dataset.features))
    pairs: list[tuple[str, str]] = []
    for column in (it for key in order for it in columns_of(dataset.features[key], (key,))):
        name = column_text(column.path) if is_comparable(column) and column.path not in times else None
        if name is not None and len(name) <= _MOST_EXAMPLE and len(pairs) < 2:
            rest = _EXAMPLES.get(str(column.leaf.dtype), "> 0")
            if classes := getattr(column.leaf, "names", None):  # a name that is long or odd would be cut
                rest = f"== {text_literal(classes[0]) if cut(classes[0]) == classes[0] else 0}"
            pairs.append((name, f"{name} {rest}"))
    if not pairs:
        return []
    (name, first), (_, last) = pairs[0], pairs[-1]
    return [first, last if len(pairs) > 1 else f"{name} is not None", f"{last} and not {first}"]


def _listed(names: Mapping[str, str], most: int) -> list[dict[str, str]]:
    return [{"address": address, "name": cut(name)} for address, name in islice(names.items(), most)]


def _splits_of(dataset: Dataset) -> str:
    return f"The splits are: {', '.join(dataset.splits) or 'none'}."[:500]


def build(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> None:
    """Begin to keep the columns that the page of this address needs."""
    if not visit.may_read_much:
        raise CatalogPermissionError("only publishers and admins may keep columns on the disk of the server")
    split = visit.query.get("split") or (rest[0] if rest else first_split(tuple(dataset.splits)))
    question = Question(**{name: visit.query.get(name, "") for name in ("where", "q", "sort")})
    fill(select(dataset, dataset.resolve(split or ""), question, -1, 1))


def record(visit: Visit, dataset: Dataset, split: str, index: int) -> Page:
    """One record: its values, its place and its digest, its neighbours, and where other versions have it."""
    num_examples = dataset.splits[split].num_examples if split in dataset.splits else 0
    if index >= num_examples:
        raise NotFoundError(
            f"{dataset.reference} has no record {index:,} of {split!r:.80}",
            hint=f"It has {num_examples:,} records." if num_examples else _splits_of(dataset),
        )
    expression = f"{split}[{index}:{index + 1}]"
    most = _num_pages(visit, num_examples)
    values: dict[str, Any] = {
        **version_values(dataset),
        **dict.fromkeys(("problem", "digest", "asked", "place")),
        **{name: [] for name in ("cells_of_record", "others")},
        "split": split,
        "index": index,
        "num_examples": num_examples,
        "previous": index - 1 if index else None,
        "next": index + 1 if index + 1 < most else None,
        "code": f'import registry\n\ndataset = registry.connect({opened_by(visit)[0]}).dataset("{dataset.reference}")\n'
        f'example = dataset.read("{expression}")[0]',
    }
    status = 200
    try:
        reader = dataset.read(expression, STORED_ORDER, keep=None)
        values["digest"] = digest_of(next(reader.records()))
        values["place"] = _place(reader)
        files = reader.files_as_bytes()
        cells = Cells(dataset, files, num_rows=1, most_media=60, is_whole=True)
        example = files[0]
        values["cells_of_record"] = cells.row(example, split, index)
        values["others"] = other_versions(visit, dataset, split, index, values["digest"], example)
    except RegistryError as error:
        values["problem"], status = error_values(error, visit), status_of(error)
    if visit.is_live and (asked := visit.query.get("sha256")) and values["digest"]:
        values["asked"] = {"digest": asked[:64], "is_equal": asked == values["digest"]}
    return Page(name="record", title=f"Record {index:,} of {dataset.reference} {split}", values=values, status=status)


def _place(reader: Reader) -> dict[str, Any]:
    """The file of a record, and its place there: the bytes of its frame, if the file is a TFRecord on this machine."""
    (part,), readable = reader.plan, reader.readable
    place: dict[str, Any] = {"file": part.filename, "record": part.skip, "offset": None, "length": None, "crc": None}
    if readable.file_format == "tfrecord":
        num_records = part.examples_in_shard
        shard = open_shard(reader.store, part.filename, num_records=num_records, indexes=readable.indexes)
        if isinstance(shard, MappedShard):
            block = shard.read(part.skip, 1)
            start, length = int(block.offsets[0]), int(block.lengths[0])
            crc = int.from_bytes(block.data[start + length : start + length + 4].tobytes(), "little")
            place |= {"offset": start - HEADER_BYTES, "length": length, "crc": f"{crc:08x}"}
    return place
