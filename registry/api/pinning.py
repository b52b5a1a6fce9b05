"""How is a dataset pinned? The wiring between catalog, shards and pin files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from registry.api.locations import index_folder
from registry.errors import BuildError, NotFoundError, UsageError
from registry.escaping import printable
from registry.model import DatasetVersion, Reference, SlicingRule, version_folder
from registry.pins import AliasEntry, BuilderEntry, PinFile, PinSource, Places, choose_names, make_entry
from registry.pins.create import check_locations, check_names
from registry.splits import ReadInstruction

if TYPE_CHECKING:
    from registry.api.catalog import Catalog
    from registry.api.dataset import Dataset
    from registry.order import ReadConfig
    from registry.pins.measure import AdvanceBytes
    from registry.splits import Plan

SplitLike: TypeAlias = str | ReadInstruction


def software() -> str:
    """What writes a pin file: this software and its version."""
    from importlib.metadata import version

    return f"shardbook {version('shardbook')}"


def pin_dataset(
    dataset: Dataset,
    splits: Sequence[SplitLike | Mapping[str, SplitLike]],
    *,
    catalog: Catalog,
    wanted: Reference,
    into: PinFile | None,
    slicing: SlicingRule | str | None,
    rounding: str | None,
    read_config: ReadConfig | None,
    locations: Sequence[str],
    processes: int | None,
    advance: AdvanceBytes | None,
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
                    f"two slices are both written {split}, and their percents are rounded in different ways",
                    hint="Pin them one after the other, with into=.",
                )
    if not named and not texts:
        raise UsageError("there is nothing to pin", hint='Name split expressions: pin("train[:80%]", "test").')

    def names_of(text: str) -> str:
        return "+".join(plans[text].instruction.names)

    chosen = choose_names(
        {name: str(one) for name, one in named.items()},
        [str(one) for one in texts],
        names_of,
        _taken_names(into, dataset.reference, set(plans)),
        str(dataset.reference),
    )
    if into is not None:  # before an hour is spent on hashing
        for name, text in chosen.items():
            if name in {*into} and (into[name].reference, into[name].split) != (dataset.reference, text):
                raise into.name_taken(name, text)
    source = pin_source(dataset, catalog=catalog, wanted=wanted)
    entries = [
        make_entry(
            source,
            name,
            plans[text],
            read_config=read_config,
            locations=locations,
            indexes=catalog.indexes(),
            processes=processes,
            advance=advance,
        )
        for name, text in sorted(chosen.items(), key=lambda one: list(plans).index(one[1]))
    ]
    version = dataset.details
    folder = version_folder(version.name, version.config, version.version)
    places = Places(data_dirs=(catalog.data_dir,), folders={folder: source.store.url}, index_folder=index_folder())
    made = PinFile.of(entries, created_by=software(), places=places)
    if into is None:
        return made
    return into.merged(made).with_places(replace(into.places, folders={**into.places.folders, **places.folders}))


def _taken_names(into: PinFile | None, reference: Reference, texts: Collection[str]) -> set[str]:
    """The names of a file's pins that are of something else than these expressions of the version."""
    if into is None:
        return set()
    return {pin.name for pin in into.values() if pin.reference != reference or pin.split not in texts}


def pin_source(dataset: Dataset, *, catalog: Catalog, wanted: Reference) -> PinSource:
    """What is to be known of a version to pin it."""
    version = dataset.details
    builder = None if version.version_to_prepare else _find_builder(version.reference)
    packages = dict([software().split()])
    if builder is not None:
        packages[builder.package] = builder.version
    return PinSource(
        version=version,
        request=wanted,
        why=dataset.why,
        shards=_shards_of(catalog, version),
        store=catalog.version_store(version),
        alias=None if wanted.alias is None else _alias_entry(catalog, wanted, version, dataset.moment),
        builder=builder,
        packages=packages,
    )


def _shards_of(catalog: Catalog, version: DatasetVersion) -> Callable[[str], Any]:
    return lambda split: catalog.shards(version, split)


def _alias_entry(
    catalog: Catalog, wanted: Reference, version: DatasetVersion, moment: datetime | None
) -> AliasEntry | None:
    """The alias that was named, and the last time, up to ``moment``, that it was set to this version."""
    moves = [
        move
        for move in catalog.aliases.history(wanted)
        if move.after == version.version and (moment is None or move.at <= moment)
    ]
    if not moves or wanted.alias is None:
        return None
    move = moves[-1]
    # In a pin file an actor is one line of text; in the log, whatever REGISTRY_ACTOR claimed.
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
