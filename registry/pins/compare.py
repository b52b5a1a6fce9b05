"""Describes one pin in sentences, and how the pins of two files differ: in their records, and in what else they say."""

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
        name: of the pin.
        kind: ``added``, ``removed``, ``changed``, or ``same`` if both files say the same about it.
        records: ``same``; ``reordered``, the same in another order; ``other``; or ``""`` if only one file has it.
        lines: the differences, in words.
    """

    name: str
    kind: Literal["added", "removed", "changed", "same"]
    records: Literal["same", "reordered", "other", ""] = ""
    lines: tuple[str, ...] = ()


def compare_pins(old: PinFile, new: PinFile) -> tuple[PinDifference, ...]:
    """The pins of ``old``, compared with those of ``new``; then the pins that only ``new`` has."""
    before, after = dict(old), dict(new)  # by name only: in a file, an expression may name a pin too
    found = []
    for name in {**before, **after}:
        if name in before and name in after:
            found.append(_compare(before[name], after[name]))
        elif name in before:
            found.append(PinDifference(name=name, kind="removed", lines=(_describe(before[name]),)))
        else:
            found.append(PinDifference(name=name, kind="added", lines=(_describe(after[name]),)))
    return tuple(found)


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
    for what, one, other in (
        ("version", str(reference_of(before)), str(reference_of(after))),
        ("request", before.request, after.request),
        ("status when pinned", before.status, after.status),
        ("expression", before.split, after.split),
        ("slicing rule", before.slicing, after.slicing),
        ("rounding of percents", before.rounding or "closest", after.rounding or "closest"),
        ("number of records", f"{before.num_examples:,}", f"{after.num_examples:,}"),
    ):
        if one != other:
            yield f"{what}: {one} -> {other}"
    yield from _range_lines(old, new)
    if before.records.ordered != after.records.ordered:
        yield f"records: {before.records.ordered} -> {after.records.ordered}"
        features = sorted({*before.records.features, *after.records.features})
        differing = [one for one in features if before.records.features.get(one) != after.records.features.get(one)]
        if differing:
            yield f"values of {', '.join(differing)}"
    yield from _other_lines(before, after)


def _range_lines(old: Pin, new: Pin) -> Iterator[str]:
    """How the positions of the records differ; counts are only comparable within one version."""
    before, after = old.plan.ranges, new.plan.ranges
    if before == after:
        return
    yield f"ranges: {print_ranges(before)} -> {print_ranges(after)}"
    if old.reference == new.reference:
        shared = sum(one.num_examples for one in common(before, after))
        gone = sum(one.num_examples for one in without(before, after))
        fresh = sum(one.num_examples for one in without(after, before))
        yield f"of the records, {shared:,} are in both, {gone:,} are gone, {fresh:,} are new"


def _other_lines(before: PinEntry, after: PinEntry) -> Iterator[str]:
    if before.order != after.order:
        yield f"reading order: {_describe_order(before)} -> {_describe_order(after)}"
    if before.features.digest != after.features.digest:
        yield "the schema, or the names of its labels"
    if before.files != after.files:
        kept = len({file.sha256 for file in before.files} & {file.sha256 for file in after.files})
        yield f"files: {len(before.files)} -> {len(after.files)}, of which {kept} are the same"
    for what, one, other in (
        ("locations", before.locations, after.locations),
        ("licence", before.license, after.license),
        ("citation", before.citation, after.citation),
        ("provenance", before.provenance, after.provenance),
        ("experiments", before.experiments, after.experiments),
        ("alias", before.alias, after.alias),
    ):
        if one != other:
            yield what


def _describe_order(entry: PinEntry) -> str:
    order = entry.order
    seed = "" if order.shuffle == "none" else f", seed {order.seed if order.seed is not None else order.global_seed}"
    return f"shuffle {order.shuffle}{seed}, {order.cycle_length} files by {order.block_length}"


def explain_pin(pin: Pin) -> tuple[str, ...]:
    """A pin in sentences: the request, the version and why, which records, where they are, and how to prove them."""
    return tuple(_sentences(pin))


def _sentences(pin: Pin) -> Iterator[str]:
    entry = pin.entry
    yield f"{entry.request} was requested, and gave {pin.reference}, which was {entry.status} when it was pinned."
    yield from entry.why
    if entry.alias is not None:
        reason = f": {entry.alias.message}" if entry.alias.message else ""
        yield f"The alias {entry.alias.name} was set to it on {entry.alias.set_at} by {entry.alias.set_by}{reason}."
    if entry.status_message:
        yield f"Its publisher said: {entry.status_message}"
    for flag, value in entry.experiments.items():
        yield f"The version switches the experiment {flag} {'on' if value else 'off'}."
    rounding = f", percents rounded by {entry.rounding}" if entry.rounding else ""
    yield f"Under the slicing rule {entry.slicing}{rounding}, {entry.split} is {print_ranges(pin.plan.ranges)}."
    totals = ", ".join(f"{one.name} has {one.num_examples:,}" for one in entry.splits)
    yield f"The slice has {counted(entry.num_examples, 'record')}; {totals}."
    num_bytes = sum(file.num_bytes for file in entry.files)
    files = counted(len(entry.files), "file")
    yield f"They lie in {files} of {counted(num_bytes, 'byte')}, whose sha256 are in the pin."
    if entry.records.first and entry.records.last:
        yield f"The first is {entry.records.first.id}, the last {entry.records.last.id}."
    yield f"The sha256 over the sha256 of every record, in order, is {entry.records.ordered[7:]}."
    unordered = entry.records.unordered[7:]
    yield f"The same over the sorted digests, which does not depend on shards or order, is {unordered}."
    yield _explain_order(pin)
    if entry.provenance.builder is not None:
        builder = entry.provenance.builder
        yield f"It can be built with {builder.code} of {builder.package} {builder.version}."
    for source in entry.provenance.sources:
        yield f"It was made of {source.url}{f' ({source.sha256})' if source.sha256 else ''}."
    if entry.license:
        yield f"Licence: {entry.license}"


def _explain_order(pin: Pin) -> str:
    order = pin.entry.order
    turns = f"{order.cycle_length} files in turns, {order.block_length} records of each"
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
