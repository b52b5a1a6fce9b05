"""Pins slices of one dataset: ``Dataset.pin`` calls ``pin_dataset``. ``registry.pins`` measures the records."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from registry.errors import (
    BuildError,
    NotFoundError,
    UsageError,
)
from registry.escaping import printable
from registry.model import DatasetVersion, ProgressCallback, Reference, SlicingRule, count_progress
from registry.pins import AliasEntry, BuilderEntry, PinFile, PinSource, choose_names, make_entry
from registry.pins.create import check_locations, check_names
from registry.pins.pin_file import name_taken
from registry.splits import ReadInstruction

if TYPE_CHECKING:
    from registry.api.catalog import Catalog
    from registry.api.dataset import Dataset
    from registry.api.provenance import FoundNow
    from registry.order import ReadConfig
    from registry.reading import ReadableVersion
    from registry.splits import Plan


SplitLike: TypeAlias = str | ReadInstruction


def software() -> str:
    """The name and version of this software, as pin files record it."""
    from importlib.metadata import version

    return f"shardbook {version('shardbook')}"


def pin_dataset(
    dataset: Dataset,
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
    for one in splits:
        if isinstance(one, Mapping):
            check_names(one)
            if twice := [name for name in one if name in named and str(named[name]) != str(one[name])]:
                raise UsageError(
                    f"two slices have the name {twice[0]!r}: {named[twice[0]]} and {one[twice[0]]}",
                    hint="Give each slice a name of its own, e.g. train='train[:80%]' test='train[80%:]'.",
                )
            named |= one
        else:
            texts.append(one)
        for split in one.values() if isinstance(one, Mapping) else [one]:
            plan = dataset.resolve(split, slicing=slicing, rounding=rounding)
            if plans.setdefault(str(split), plan).instruction != plan.instruction:
                raise UsageError(
                    f"two slices have the text {split}, and round percentages in different ways",
                    hint="Pin them one after the other, with into=.",
                )
    if not named and not texts:
        raise UsageError("no slice to pin was given", hint='Name split expressions: pin("train[:80%]", "test").')

    chosen = choose_names(
        {name: str(one) for name, one in named.items()},
        [str(one) for one in texts],
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
        for name, text in sorted(chosen.items(), key=lambda one: list(plans).index(one[1]))
    ]
    places = dataset.provenance.pin_places()
    made = PinFile.of(entries, created_by=software(), places=places)
    if into is None:
        return made
    return into.merged(made).with_places(replace(into.places, folders={**into.places.folders, **places.folders}))


def _num_bytes(dataset: Dataset, plans: Sequence[Plan]) -> int:
    """The number of bytes to hash: whole files, and then the records of the plans."""
    total = 0
    for plan in plans:
        touched = {file.filename for file in plan}
        for split in plan.splits:
            found = dataset.splits[split.name]
            sizes = [shard.num_bytes for shard in dataset.shards(split.name) if found.filename(shard.index) in touched]
            taken = sum(one.num_examples for one in plan.ranges if one.split == split.name)
            total += sum(sizes) + found.num_bytes * taken // max(found.num_examples, 1)
    return total


def pin_source_of(dataset: Dataset, plan: Plan, config: ReadConfig | None) -> PinSource:
    """What a pin records of the version and of where it was found, with the features that were read."""
    found = dataset.provenance
    return found.pin_source(found.readable_for(plan, dataset.features, config))


def _taken_names(into: PinFile | None, reference: Reference, texts: Collection[str]) -> set[str]:
    """The names of pins in a file that pin another version or another expression."""
    if into is None:
        return set()
    return {pin.name for pin in into.values() if pin.reference != reference or pin.split not in texts}


def catalog_pin_source(found: FoundNow, readable: ReadableVersion) -> PinSource:
    """What a pin records of a version in a catalog."""
    facts, wanted = found.facts, found.wanted
    builder = None if facts.version_to_prepare else _find_builder(facts.reference)
    packages = dict([software().split()])
    if builder is not None:
        packages[builder.package] = builder.version
    return PinSource(
        readable=readable,
        request=wanted,
        why=found.why,
        shards=found.all_shards,
        alias=None if wanted.alias is None else _alias_entry(found.catalog, wanted, facts, found.moment),
        builder=builder,
        packages=packages,
    )


def _alias_entry(
    catalog: Catalog, wanted: Reference, version: DatasetVersion, moment: datetime | None
) -> AliasEntry | None:
    """The alias in the reference, and when it was last set to this version, up to ``moment``."""
    moves = [
        move
        for move in catalog.aliases.history(wanted)
        if move.after == version.version and (moment is None or move.at <= moment)
    ]
    if not moves or wanted.alias is None:
        return None
    move = moves[-1]
    # In a pin file an actor is one line of text. In the log it is any text that REGISTRY_ACTOR held.
    actor = " ".join(printable(move.actor).split())[:1000] or "unknown"
    return AliasEntry(name=wanted.alias, set_at=move.at.isoformat(), set_by=actor, message=move.message)


def _find_builder(reference: Reference) -> BuilderEntry | None:
    """The installed code that can build exactly this version, or None."""
    from registry.building import find_builder

    try:
        builder = find_builder(reference.name)
        builder.pick(reference)
    except (NotFoundError, BuildError, UsageError):
        return None
    package, version = _package_of(reference.name)
    return BuilderEntry(
        code=f"{builder.__module__}:{builder.__qualname__}",
        package=package,
        version=version,
        sha256=_source_digest(builder),
    )


def _package_of(name: str) -> tuple[str, str]:
    from importlib.metadata import entry_points

    from registry.building.discovery import ENTRY_POINT_GROUP

    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        if point.dist is not None:
            return point.dist.name, point.dist.version
    return "unknown", "unknown"


def _source_digest(code: type) -> str | None:
    import inspect

    try:
        path = inspect.getsourcefile(code)
        return None if path is None else f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
    except (OSError, TypeError):
        return None
