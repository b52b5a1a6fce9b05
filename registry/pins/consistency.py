"""Checks that the fields of a pin file agree with each other. Each fault has its key path.

``PinFile`` calls it after the types of the fields were checked (``document``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from registry.errors import RegistryError
from registry.features import features_from_json
from registry.model import (
    Reference,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    Version,
    check_config,
    check_name,
    tfds_id,
)
from registry.pins.document import FileEntry, PinDocument, PinEntry, SplitEntry, canonical_json, digest_text
from registry.pins.layout import GENERATORS, config_of, plan_ranges, resolve_again, splits_of
from registry.pins.measure import NO_RECORDS, locate_records, spot_places
from registry.pins.record_digests import RecordSums
from registry.storage.store import check_relative_name

Fault: TypeAlias = tuple[str, str]
"""A key path, and the problem there."""

_MOST_SHARDS: Final = 2**24
"""At most this many shards in all splits of a pin file together."""

_FEWEST_BYTES: Final = 16
"""The size of an empty record with its framing."""

_MOST_INFLATED: Final = 1032
"""The most bytes that one byte of gzip inflates to."""


def find_faults(document: PinDocument) -> list[Fault]:
    """All contradictions in a pin file."""
    faults: list[Fault] = []
    num_shards = 0
    for place, entry in enumerate(document.pins):
        for number, split in enumerate(entry.splits):
            num_shards += split.num_shards
            if num_shards > _MOST_SHARDS:  # a list of their lengths is created: a short file could fill the memory
                key = f"pins[{place}].splits[{number}].num_shards"
                return [(key, f"expected at most {_MOST_SHARDS} shards in all splits")]
    names = Counter(entry.name for entry in document.pins)
    for place, entry in enumerate(document.pins):
        path = f"pins[{place}]"
        if names[entry.name] > 1:
            faults.append((f"{path}.name", f"two pins have the name {entry.name!r}"))
        faults += [(f"{path}.{key}", problem) for key, problem in _entry_faults(entry)]
    return faults


def _entry_faults(entry: PinEntry) -> list[Fault]:
    faults = list(_form_faults(entry)) + list(_file_faults(entry)) + list(_location_faults(entry))
    # The records are checked only if everything else is right, so that each fault is reported once.
    return faults or list(_record_faults(entry))


def _form_faults(entry: PinEntry) -> Iterator[Fault]:
    texts: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("request", lambda: Reference.parse(entry.request)),
        ("dataset", lambda: check_name(entry.dataset)),
        ("config", lambda: entry.config is None or check_config(entry.config)),
        ("version", lambda: Version.parse(entry.version)),
        ("order", lambda: config_of(entry.order)),
        ("features.json", lambda: features_from_json(entry.features.json_)),
    )
    wrong = False
    for key, read in texts:
        try:
            read()
        except RegistryError as error:
            wrong = True
            yield key, error.message
    if wrong:
        return
    request = Reference.parse(entry.request)
    if request.name != entry.dataset or request.config not in (None, entry.config):
        yield "request", f"the request {entry.request} is not for {entry.dataset}"
    elif request.request is not None and not request.request.allows(Version.parse(entry.version)):
        yield "version", f"the request {entry.request} does not allow {entry.version}"
    if (request.alias or None) != (entry.alias.name if entry.alias else None):
        yield "alias", f"the alias differs from the one in the request {entry.request}"
    if str(Version.parse(entry.version)) != entry.version:
        yield "version", f"expected {Version.parse(entry.version)}"
    if entry.order.generator != GENERATORS.get(entry.order.shuffle):
        yield "order.generator", f"expected {GENERATORS.get(entry.order.shuffle)!r} for shuffle {entry.order.shuffle}"
    if entry.order.shuffle == "none" and entry.order.seed is not None:
        yield "order.seed", "a seed without a shuffle"
    if entry.order.shuffle == "none" and entry.order.global_seed is not None:
        yield "order.global_seed", "a seed without a shuffle"
    if config_of(entry.order).needs_seed:
        yield "order.seed", "a shuffle without a seed cannot be repeated"
    try:
        features_from_json(entry.features.json_).with_labels(entry.features.labels)
    except RegistryError as error:
        yield "features.labels", error.message
    if features_digest(entry.features.json_, entry.features.labels) != entry.features.digest:
        yield "features.digest", "does not match the schema and its labels"


def features_digest(features_json: str, labels: Any) -> str:
    """The digest over a schema and the names of its labels."""
    told = {"features": features_json, "labels": {stem: list(names) for stem, names in labels.items()}}
    return digest_text(canonical_json(told))


def _file_faults(entry: PinEntry) -> Iterator[Fault]:
    templates = {}
    for place, split in enumerate(entry.splits):
        path = f"splits[{place}]"
        if split.name in templates:
            yield f"{path}.name", f"the split {split.name!r} is given twice"
        try:
            templates[split.name] = ShardedFileTemplate(
                dataset=entry.dataset, template=split.template, file_format=entry.file_format
            )
            Split(name=split.name, shard_lengths=ShardLengths([]), files=templates[split.name])
        except RegistryError as error:
            yield f"{path}.template", error.message
    ends: dict[str, tuple[int, int]] = dict.fromkeys(templates, (-1, 0))
    splits = {split.name: split for split in entry.splits}
    before = ""
    names: set[str] = set()
    for place, file in enumerate(entry.files):
        path = f"files[{place}]"
        if file.split not in templates:
            yield f"{path}.split", f"the pin has no split {file.split!r}"
            continue
        if file.split != before and ends[file.split] != (-1, 0):
            yield f"{path}.split", "the files of a split must be listed together"
        before = file.split
        fault = _file_fault(file, splits[file.split], templates[file.split], ends[file.split])
        if fault is not None:
            yield f"{path}.{fault[0]}", fault[1]
        elif file.name in names:  # a template without SPLIT
            yield f"{path}.name", f"two splits have the file {file.name}"
        names.add(file.name)
        ends[file.split] = file.index, file.first_example + file.num_examples
    for place, split in enumerate(entry.splits):
        index, end = ends.get(split.name, (-1, 0))
        if index == split.num_shards - 1 and end != split.num_examples:
            yield f"splits[{place}].num_examples", f"its last shard ends at {end}"


def _file_fault(
    file: FileEntry, split: SplitEntry, template: ShardedFileTemplate, before: tuple[int, int]
) -> Fault | None:
    """The fault of a file, or None. ``before`` is the index of the preceding file and the record at which it ends."""
    index, end = before
    if not index < file.index < split.num_shards:
        return "index", f"expected ascending indexes below {split.num_shards}"
    if file.first_example < end or (file.index == index + 1 and file.first_example != end):
        return "first_example", f"the preceding file ends at {end}"
    if file.first_example + file.num_examples > split.num_examples:
        return "num_examples", f"the split has {split.num_examples} records"
    is_framed = template.file_format == "tfrecord"  # other formats can store a record that repeats in less than a byte
    if is_framed and file.num_examples * _FEWEST_BYTES > file.num_bytes * _MOST_INFLATED:
        return "num_examples", f"a file of {file.num_bytes} bytes cannot contain {file.num_examples} records"
    if file.name != template.filename(file.split, file.index, split.num_shards):
        return "name", "not the name of this shard"
    try:
        check_relative_name(file.name)
    except RegistryError as error:
        return "name", error.message
    return None


def _location_faults(entry: PinEntry) -> Iterator[Fault]:
    places = [(f"locations[{place}]", text) for place, text in enumerate(entry.locations)]
    for number, file in enumerate(entry.files):
        places += [(f"files[{number}].locations[{place}]", text) for place, text in enumerate(file.locations)]
    for path, text in places:
        problem = location_problem(text)
        if problem is not None:
            yield path, problem


def location_problem(text: str) -> str | None:
    """The problem of ``text`` as a location of pinned files; None for a URL, an absolute path, or a relative path."""
    if "://" in text:
        try:
            parts = urlsplit(text)
        except ValueError as error:
            return f"not a URL: {error}"
        return "it contains a user name or password" if parts.username or parts.password else None
    if text.startswith("/"):
        return None
    try:
        check_relative_name(text)
    except RegistryError as error:
        return error.message
    return None


def _record_faults(entry: PinEntry) -> Iterator[Fault]:
    splits = {split.name: split for split in splits_of(entry)}
    for place, span in enumerate(entry.ranges):
        if span.split not in splits:
            yield f"ranges[{place}].split", f"the pin has no split {span.split!r}"
        elif not span.start <= span.stop <= splits[span.split].num_examples:
            yield f"ranges[{place}]", f"the split has the records 0..{splits[span.split].num_examples}"
        else:
            continue
        return
    try:
        again = resolve_again(entry, splits)
        plan = plan_ranges(entry, splits)
    except RegistryError as error:
        yield "split", error.message
        return
    if again is not None and again != plan.ranges:
        yield "ranges", f"{entry.split} gives {' '.join(f'{span.split} {span.start}..{span.stop}' for span in again)}"
        return
    if plan.num_examples != entry.num_examples:
        yield "num_examples", f"expected {plan.num_examples}, the number of records in the ranges"
        return
    named = {file.name: file.num_examples for file in entry.files}
    touched = {file.filename: file.examples_in_shard for file in plan}
    for name in touched:
        if name not in named:
            yield "files", f"the ranges contain records of {name}, which is not listed"
            return
    for place, file in enumerate(entry.files):
        if file.name not in touched:
            yield f"files[{place}]", "the ranges contain no record of this file"
            return
    yield from _spot_faults(entry, plan)


def _spot_faults(entry: PinEntry, plan: Any) -> Iterator[Fault]:
    records = entry.records
    if not entry.num_examples:
        for name, found in (("ordered", records.ordered), ("unordered", records.unordered)):
            if found != NO_RECORDS:
                yield f"records.{name}", "does not match a slice without records"
        if records.finder != str(RecordSums()):
            yield "records.finder", "does not match a slice without records"
        for name, told in (("features", records.features), *records.spots):
            if told:
                yield f"records.{name}", "must be empty"
        return
    digests: dict[str, str] = {}
    located = locate_records(plan, spot_places(entry.num_examples))
    for (name, spot), (filename, record) in zip(records.spots, located, strict=True):
        if spot is None:
            yield f"records.{name}", "missing, although the slice has records"
        elif spot.id != tfds_id(filename, record):
            yield f"records.{name}.id", f"expected {tfds_id(filename, record)}"
        elif digests.setdefault(spot.id, spot.sha256) != spot.sha256:
            yield f"records.{name}.sha256", f"expected {digests[spot.id]}, as for the same record above"
