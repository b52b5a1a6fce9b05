"""Are two versions the same for whoever reads them? One digest over what decides which records a reader gets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from registry.model.dataset_version import SlicingRule
from registry.model.split import Shard, Split

_BATCH: Final = 10_000


class ContentHasher:
    """The content digest of a version, whose shards are told one after the other: bounded memory, however many.

    >>> hasher = ContentHasher(
    ...     features_json="{}", labels={}, file_format="tfrecord", slicing="documented", disable_shuffling=False
    ... )
    >>> hasher.start_split("train")
    >>> hasher.add([(3, 51, "0" * 64)])
    >>> hasher.hexdigest()[:12]
    '9c41413451a2'
    """

    def __init__(
        self,
        *,
        features_json: str,
        labels: Mapping[str, Sequence[str]],
        file_format: str,
        slicing: str,
        disable_shuffling: bool,
    ) -> None:
        import hashlib  # loads OpenSSL, which only publishing needs

        text = _canonical(
            {
                "algorithm": "registry.content/1",
                "features": json.loads(features_json),
                "labels": {stem: list(names) for stem, names in labels.items()},
                "file_format": file_format,
                "slicing": slicing,
                "disable_shuffling": disable_shuffling,
                "splits": [],  # the last key of all: what follows is told by start_split and add
            }
        )
        self._hash = hashlib.sha256(text.removesuffix("]}").encode("ascii"))
        self._num_splits = 0
        self._is_first_shard = True

    def start_split(self, name: str) -> None:
        """The shards that follow are those of the split ``name``."""
        before = "]]," if self._num_splits else ""
        self._hash.update(f"{before}[{_canonical(name)},[".encode("ascii"))
        self._num_splits += 1
        self._is_first_shard = True

    def add(self, shards: Sequence[tuple[int, int, str]]) -> None:
        """The next shards of the split: number of examples, number of bytes and sha256 of each."""
        if shards:
            comma = "" if self._is_first_shard else ","
            self._hash.update(f"{comma}{_canonical(list(shards))[1:-1]}".encode("ascii"))
            self._is_first_shard = False

    def hexdigest(self) -> str:
        """The digest, 64 hex digits."""
        whole = self._hash.copy()
        whole.update(b"]]]}" if self._num_splits else b"]}")
        return whole.hexdigest()


def content_digest(
    *,
    features_json: str,
    labels: Mapping[str, Sequence[str]],
    file_format: str,
    slicing: SlicingRule,
    disable_shuffling: bool,
    splits: Iterable[Split],
    shards: Mapping[str, tuple[Shard, ...]],
) -> str:
    """sha256, 64 hex digits, over what decides which records a reader gets: schema, labels, rule, shards.

    ``shards`` holds the shards of each split, in order. Names, descriptions, folders and times stay out, so the same
    content has the same digest wherever it is published.
    """
    hasher = ContentHasher(
        features_json=features_json,
        labels=labels,
        file_format=file_format,
        slicing=slicing.value,
        disable_shuffling=disable_shuffling,
    )
    for split in splits:
        hasher.start_split(split.name)
        told = ((shard.num_examples, shard.num_bytes, shard.sha256) for shard in shards[split.name])
        while batch := list(islice(told, _BATCH)):
            hasher.add(batch)
    return hasher.hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
