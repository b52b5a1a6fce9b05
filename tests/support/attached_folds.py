"""A small fold whose document every publication attaches, by the same way as all such folds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from registry.building import publication_folds
from registry.building.publication_folds import AttachedFold
from registry.features import FeaturesDict
from registry.features.codec import FlatRecords

KIND, NAME = "counts", "counts.json"


class CountFold:
    """Counts the records of a split."""

    is_quick = True

    def __init__(self, features: FeaturesDict) -> None:
        self._num_features = len(features)

    def start(self) -> list[int]:
        return [0]

    def add(self, state: list[int], block: FlatRecords) -> None:
        state[0] += block.num_records

    def merge(self, state: list[int], later: list[int]) -> None:
        state[0] += later[0]

    def end(self, state: list[int]) -> int:
        return state[0]


def count_documents(results: Mapping[str, Any]) -> dict[str, bytes]:
    """One document with the numbers of records of all splits."""
    return {NAME: document(results)}


def document(counts: Mapping[str, int]) -> bytes:
    """The document for these numbers."""
    return json.dumps(dict(counts)).encode()


def attach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attach nothing to the versions that this process publishes in this test, as earlier releases did."""
    monkeypatch.setattr(publication_folds, "ATTACHED", ())


def attach_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attach the counts to every version that is published in this test."""
    attached = (AttachedFold(kind=KIND, fold=CountFold, documents=count_documents),)
    monkeypatch.setattr(publication_folds, "ATTACHED", attached)
