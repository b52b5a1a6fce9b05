"""Pins slices of one dataset: ``Dataset.pin`` calls ``pin_dataset``. ``registry.pins`` measures the records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from registry.api.provenance import software
from registry.api.sliced_version import SlicedVersion
from registry.errors import UsageError
from registry.model import ProgressCallback, Reference, SlicingRule, count_progress
from registry.pins import PinFile, PinSource, choose_names, make_entry
from registry.pins.create import check_locations, check_names
from registry.pins.pin_file import name_taken
from registry.splits import ReadInstruction

if TYPE_CHECKING:
    from registry.order import ReadConfig
    from registry.splits import Plan


SplitLike: TypeAlias = str | ReadInstruction


def pin_dataset(
    dataset: SlicedVersion,
    splits: Sequence[SplitLike | Mapping[str, SplitLike]],
    *,
    into: PinFile | None,
    slicing: SlicingRule | str | None,
    rounding: str | None,
    read_config: ReadConfig | None,
    locations: Sequence[str],
    processes: int | None,
    progress: ProgressCallback | None,
) -> PinFile:
    """The pin file of some slices of ``dataset``; see ``Dataset.pin``."""
    check_locations(locations)
    named: dict[str, SplitLike] = {}
    texts: list[SplitLike] = []
    plans: dict[str, Plan] = {}
    for argument in splits:
        if isinstance(argument, Mapping):
            check_names(argument)
            if twice := [name for name in argument if name in named and str(named[name]) != str(argument[name])]:
                raise UsageError(
                    f"two slices have the name {twice[0]!r}: {named[twice[0]]} and {argument[twice[0]]}",
                    hint="Give each slice a name of its own, e.g. train='train[:80%]' test='train[80%:]'.",
                )
            named |= argument
        else:
            texts.append(argument)
        for split in argument.values() if isinstance(argument, Mapping) else [argument]:
            plan = dataset.resolve(split, slicing=slicing, rounding=rounding)
            if plans.setdefault(str(split), plan).instruction != plan.instruction:
                raise UsageError(
                    f"two slices have the text {split}, and round percentages in different ways",
                    hint="Pin them one after the other, with into=.",
                )
    if not named and not texts:
        raise UsageError("no slice to pin was given", hint='Name split expressions: pin("train[:80%]", "test").')

    chosen = choose_names(
        {name: str(expression) for name, expression in named.items()},
        [str(expression) for expression in texts],
        lambda text: "+".join(plans[text].instruction.names),
        _taken_names(into, dataset.reference, set(plans)),
        str(dataset.reference),
    )
    if into is not None:  # hashing may take an hour: check this first
        for name, text in chosen.items():
            if name in {*into} and (into[name].reference, into[name].split) != (dataset.reference, text):
                raise name_taken(into[name], text)
    total = None if progress is None else _num_bytes(dataset, [plans[text] for text in chosen.values()])
    advance = count_progress(progress, "hashing", str(dataset.reference), total=total, unit="bytes")
    entries = [
        make_entry(
            pin_source_of(dataset, plans[text], read_config),
            name,
            plans[text],
            read_config=read_config,
            locations=locations,
            processes=processes,
            advance=advance,
        )
        for name, text in sorted(chosen.items(), key=lambda pair: list(plans).index(pair[1]))
    ]
    places = dataset.provenance.source.pin_places()
    result = PinFile.of(entries, created_by=software(), places=places)
    if into is None:
        return result
    return into.merged(result).with_places(replace(into.places, folders={**into.places.folders, **places.folders}))


def _num_bytes(dataset: SlicedVersion, plans: Sequence[Plan]) -> int:
    """The number of bytes to hash: whole files, and then the records of the plans."""
    total = 0
    for plan in plans:
        touched = {file.filename for file in plan}
        for split in plan.splits:
            found = dataset.splits[split.name]
            sizes = [shard.num_bytes for shard in dataset.shards(split.name) if found.filename(shard.index) in touched]
            taken = sum(span.num_examples for span in plan.ranges if span.split == split.name)
            total += sum(sizes) + found.num_bytes * taken // max(found.num_examples, 1)
    return total


def pin_source_of(dataset: SlicedVersion, plan: Plan, config: ReadConfig | None) -> PinSource:
    """What a pin records of the version and of where it was found, with the features that were read."""
    provenance = dataset.provenance
    return provenance.source.pin_source(provenance, provenance.source.readable(dataset.features, plan, config))


def _taken_names(into: PinFile | None, reference: Reference, texts: Collection[str]) -> set[str]:
    """The names of pins in a file that pin another version or another expression."""
    if into is None:
        return set()
    return {pin.name for pin in into.values() if pin.reference != reference or pin.split not in texts}
