"""What does a pin say, in words? For somebody who has the file and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from registry.pins.pin import Pin
from registry.splits import counted, print_ranges


def explain_pin(pin: Pin) -> tuple[str, ...]:
    """A pin in sentences: what was asked for, what that gave and why, which records, where, and how to prove them."""
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
    yield _order(pin)
    if entry.provenance.builder is not None:
        builder = entry.provenance.builder
        yield f"It can be built with {builder.code} of {builder.package} {builder.version}."
    for source in entry.provenance.sources:
        yield f"It was made of {source.url}{f' ({source.sha256})' if source.sha256 else ''}."
    if entry.license:
        yield f"Licence: {entry.license}"


def _order(pin: Pin) -> str:
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
