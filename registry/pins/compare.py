"""Describes a pin in sentences, and the differences between the pins of two files: their records and other fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from registry.pins.document import PinEntry
from registry.pins.layout import reference_of
from registry.pins.pin import Pin
from registry.pins.pin_file import PinFile
from registry.splits import counted, print_ranges
from registry.splits.layout import common, without


@dataclass(frozen=True, slots=True, kw_only=True)
class PinDifference:
    """One pin in two files.

    Attributes:
        name: the name of the pin.
        kind: ``added``, ``removed``, ``changed``, or ``same`` if all its fields are equal.
        records: ``same``; ``reordered``, the same in another order; ``other``; or ``""`` if only one file has the pin.
        lines: the differences, in words.
    """

    name: str
    kind: Literal["added", "removed", "changed", "same"]
    records: Literal["same", "reordered", "other", ""] = ""
    lines: tuple[str, ...] = ()


def compare_pins(old: PinFile, new: PinFile) -> tuple[PinDifference, ...]:
    """One difference for each pin of ``old``, then one for each pin that only ``new`` has."""
    before, after = dict(old), dict(new)  # plain dicts, since a PinFile also finds a pin by its expression
    result = []
    for name in {**before, **after}:
        if name in before and name in after:
            result.append(_compare(before[name], after[name]))
        elif name in before:
            result.append(PinDifference(name=name, kind="removed", lines=(_describe(before[name]),)))
        else:
            result.append(PinDifference(name=name, kind="added", lines=(_describe(after[name]),)))
    return tuple(result)


def _describe(pin: Pin) -> str:
    return f"{pin.reference} {pin.split}, {counted(pin.num_examples, 'record')}"


def _compare(old: Pin, new: Pin) -> PinDifference:
    before, after = old.entry, new.entry
    records: Literal["same", "reordered", "other"] = "other"
    if before.records.ordered == after.records.ordered:
        records = "same"
    elif before.records.unordered == after.records.unordered:
        records = "reordered"
    lines = tuple(_lines(old, new))
    return PinDifference(name=old.name, kind="changed" if lines else "same", records=records, lines=lines)


def _lines(old: Pin, new: Pin) -> Iterator[str]:
    before, after = old.entry, new.entry
    for subject, feature, other in (
        ("version", str(reference_of(before)), str(reference_of(after))),
        ("request", before.request, after.request),
        ("status when pinned", before.status, after.status),
        ("expression", before.split, after.split),
        ("slicing rule", before.slicing, after.slicing),
        ("rounding of percents", before.rounding or "closest", after.rounding or "closest"),
        ("number of records", f"{before.num_examples:,}", f"{after.num_examples:,}"),
    ):
        if feature != other:
            yield f"{subject}: {feature} -> {other}"
    yield from _range_lines(old, new)
    if before.records.ordered != after.records.ordered:
        yield f"records: {before.records.ordered} -> {after.records.ordered}"
        features = sorted({*before.records.features, *after.records.features})
        differing = [
            feature
            for feature in features
            if before.records.features.get(feature) != after.records.features.get(feature)
        ]
        if differing:
            yield f"values of {', '.join(differing)}"
    yield from _other_lines(before, after)


def _range_lines(old: Pin, new: Pin) -> Iterator[str]:
    """How the positions of the records differ. Shared records can be counted only within one version."""
    before, after = old.plan.ranges, new.plan.ranges
    if before == after:
        return
    yield f"ranges: {print_ranges(before)} -> {print_ranges(after)}"
    if old.reference == new.reference:
        shared = sum(span.num_examples for span in common(before, after))
        gone = sum(span.num_examples for span in without(before, after))
        fresh = sum(span.num_examples for span in without(after, before))
        yield f"{shared:,} records are in both, {gone:,} were removed, {fresh:,} were added"


def _other_lines(before: PinEntry, after: PinEntry) -> Iterator[str]:
    if before.order != after.order:
        yield f"reading order: {_describe_order(before)} -> {_describe_order(after)}"
    if before.features.digest != after.features.digest:
        yield "the schema, or the names of its labels"
    if before.files != after.files:
        kept = len({file.sha256 for file in before.files} & {file.sha256 for file in after.files})
        yield f"files: {len(before.files)} -> {len(after.files)}; {kept} are in both"
    for subject, old, other in (
        ("locations", before.locations, after.locations),
        ("licence", before.license, after.license),
        ("citation", before.citation, after.citation),
        ("provenance", before.provenance, after.provenance),
        ("experiments", before.experiments, after.experiments),
        ("alias", before.alias, after.alias),
    ):
        if old != other:
            yield subject


def _describe_order(entry: PinEntry) -> str:
    order = entry.order
    seed = "" if order.shuffle == "none" else f", seed {order.seed if order.seed is not None else order.global_seed}"
    return f"shuffle {order.shuffle}{seed}, {order.cycle_length} files by {order.block_length}"


def explain_pin(pin: Pin) -> tuple[str, ...]:
    """A pin in sentences: the request and its resolution, the records, their files and their digests."""
    return tuple(_sentences(pin))


def _sentences(pin: Pin) -> Iterator[str]:
    entry = pin.entry
    yield f"The request {entry.request} resolved to {pin.reference}, which was {entry.status} when it was pinned."
    yield from entry.why
    if entry.alias is not None:
        alias, reason = entry.alias, f": {entry.alias.message}" if entry.alias.message else ""
        yield f"The alias {alias.name} was set to this version on {alias.set_at} by {alias.set_by}{reason}."
    if entry.status_message:
        yield f"Message of its publisher: {entry.status_message}"
    for flag, value in entry.experiments.items():
        yield f"The version switches the experiment {flag} {'on' if value else 'off'}."
    rounding = f", percents rounded by {entry.rounding}" if entry.rounding else ""
    yield f"Under the slicing rule {entry.slicing}{rounding}, {entry.split} is {print_ranges(pin.plan.ranges)}."
    totals = ", ".join(f"{split.name} has {split.num_examples:,}" for split in entry.splits)
    yield f"The slice has {counted(entry.num_examples, 'record')}; {totals}."
    num_bytes = sum(file.num_bytes for file in entry.files)
    files = counted(len(entry.files), "file")
    yield f"They are stored in {files} of {counted(num_bytes, 'byte')}; the pin contains the sha256 of each file."
    if entry.records.first and entry.records.last:
        yield f"The first is {entry.records.first.id}, the last {entry.records.last.id}."
    yield f"The sha256 over the sha256 of every record, in order, is {entry.records.ordered[7:]}."
    unordered = entry.records.unordered[7:]
    yield f"The sha256 over the sorted digests, which does not depend on shards or order, is {unordered}."
    yield _explain_order(pin)
    if entry.provenance.builder is not None:
        builder = entry.provenance.builder
        yield f"It can be built with {builder.code} of {builder.package} {builder.version}."
    for source in entry.provenance.sources:
        yield f"It was built from {source.url}{f' ({source.sha256})' if source.sha256 else ''}."
    if entry.license:
        yield f"Licence: {entry.license}"


def _explain_order(pin: Pin) -> str:
    order = pin.entry.order
    turns = f"{order.cycle_length} files are interleaved, {order.block_length} records at a time"
    if order.cycle_length == 1:
        turns = "one file after the other"
    match order.shuffle:
        case "none":
            return f"They are read in the order of TFDS: {turns}."
        case "files":
            seed = f"seed {order.seed}" if order.seed is not None else f"global seed {order.global_seed}"
            return f"They are read with files shuffled ({order.generator}; {seed}), {turns}."
        case _:
            return f"They are read in a permutation of all records ({order.generator}; seed {order.seed})."
