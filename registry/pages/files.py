"""The page of a version's files: those of each split with their digests, its attachments, and where they are."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from registry.api import Dataset
from registry.envelope import fields_of
from registry.errors import NotFoundError, RegistryError
from registry.masking import mask
from registry.model import Split
from registry.pages.dataset import opened_by, version_values
from registry.pages.page import Page, Visit

_PAGE: Final = 200
_MOST_ROWS: Final = 400
_MOST_SPLITS: Final = 100
_MOST_ATTACHMENTS: Final = 200


def version_files(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Page:
    """The first files of every split, or 200 of one split: ``files/train/200``."""
    facts = dataset.facts
    splits = [_files(visit, dataset, *_part(dataset, rest), most=_PAGE)] if rest else list(_first_files(visit, dataset))
    reference, option = shlex.quote(str(dataset.reference)), opened_by(visit)[1]
    values = {
        **version_values(dataset),
        "is_part": bool(rest),
        "splits": splits,
        "num_splits": len(facts.splits),
        **fields_of(facts, "file_format", "num_examples"),
        "num_bytes": sum(split.num_bytes for split in facts.splits),
        "content_digest": f"sha256:{facts.content_digest}",
        "attachments": [
            fields_of(file, "kind", "name", "num_bytes", "sha256") for file in dataset.attachments[:_MOST_ATTACHMENTS]
        ],
        "num_attachments": len(dataset.attachments),
        "locations": list(_locations(visit, dataset)) if visit.shows_places and not rest else [],
        "code": {
            "Check every file": f"registry verify {reference}{option}",
            "Fetch the files into the cache": f"registry cache fetch {reference}{option}",
            "Copy the version to another catalog": f"registry copy {reference}{option} --to CATALOG",
        },
    }
    return Page(name="files", title=f"Files of {dataset.reference}", values=values)


def _part(dataset: Dataset, rest: tuple[str, ...]) -> tuple[Split, int]:
    """The split and the first file that the address names."""
    split = dataset.splits.get(rest[0])
    first = int(rest[1]) if len(rest) == 2 and rest[1].isascii() and rest[1].isdecimal() and len(rest[1]) < 12 else -1
    if split is None or not 0 <= first < split.num_shards or first % _PAGE:
        raise NotFoundError(f"{dataset.reference} has no page {'/'.join(('files', *rest))!r:.80}")
    return dataset.facts.split(rest[0]), first


def _first_files(visit: Visit, dataset: Dataset) -> Iterator[dict[str, Any]]:
    room = _MOST_ROWS
    for split in dataset.facts.splits[:_MOST_SPLITS]:
        yield (values := _files(visit, dataset, split, 0, most=min(_PAGE, max(room, 1))))
        room -= len(values["files"])


def _files(visit: Visit, dataset: Dataset, split: Split, first: int, *, most: int) -> dict[str, Any]:
    shards = visit.catalog.backend.shards.between(dataset.facts, split.name, first, min(first + most, split.num_shards))
    following = first + _PAGE if most == _PAGE else 0
    return {
        **fields_of(split, "name", "num_examples", "num_bytes", "num_shards"),
        "first": first,
        "before": first - _PAGE if first else None,
        "after": following if first + most < split.num_shards else None,
        "files": [
            {"name": split.filename(shard.index), **fields_of(shard, "num_examples", "num_bytes", "sha256")}
            for shard in shards
        ],
    }


def _locations(visit: Visit, dataset: Dataset) -> Iterator[dict[str, Any]]:
    with suppress(RegistryError, OSError):
        for location in visit.catalog.mirrors.list(dataset.reference):
            yield {"url": mask(location.url), **fields_of(location, "is_published", "added_at")}
