"""The law of the search: both databases find what the words say, in one order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.catalog_samples import publish
from support.levels import examples
from support.strategies import search_texts

from registry.catalog import CatalogBackend, open_catalog
from registry.catalog.rows import encode_metadata
from registry.catalog.search import SCORES
from registry.catalog.search_words import document_words, parse_search
from registry.errors import UsageError
from registry.model import DatasetMetadata

NAMES = ["digits", "open_images_v4", "imagenet2012/small-4", "x/dig", "x/and_digits"]
NUMBERS = count(1)
documents = st.fixed_dictionaries(
    {
        "description": search_texts(),
        "config_description": search_texts(),
        "citation": search_texts(),
        "homepage": search_texts(),
        "config_tags": st.lists(search_texts(), max_size=2).map(tuple),
    }
).map(lambda texts: DatasetMetadata(**texts))
schemas = st.dictionaries(search_texts(), st.just({"pythonClassName": "x.DigitFeature"}), max_size=2).map(
    lambda features: json.dumps({"featuresDict": {"features": features}})
)


@pytest.fixture(scope="module")
def both(
    postgres_server: Any, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CatalogBackend, CatalogBackend]]:
    """Two catalogs, one of each kind, that the examples of the law below share."""
    path = shutil.copy(sqlite_template, tmp_path_factory.mktemp("both") / "catalog.db")
    with open_catalog(path) as sqlite, open_catalog(postgres_server.create_database(template="catalog_template")) as pg:
        yield sqlite, pg


@settings(max_examples=examples(30))
@given(
    metadata=st.lists(documents, min_size=len(NAMES), max_size=len(NAMES)),
    features=st.lists(schemas, min_size=len(NAMES), max_size=len(NAMES)),
    texts=st.lists(search_texts(), min_size=1, max_size=12),
    limit=st.integers(1, 7),
)
def test_both_databases_find_what_the_words_say(
    both: tuple[CatalogBackend, CatalogBackend],
    metadata: list[DatasetMetadata],
    features: list[str],
    texts: list[str],
    limit: int,
) -> None:
    """The law: a hit has, for each word asked for, a word that begins with it; scores add up; equals come by name."""
    stored = {}
    for name, one, features_json in zip(NAMES, metadata, features, strict=True):
        builder, _, config = name.partition("/")
        stored[builder, config] = document_words(
            builder, config, metadata_json=encode_metadata(one), features_json=features_json, labels_json="{}"
        )
        reference = f"{name}:1.0.{next(NUMBERS)}"
        for catalog in both:
            publish(catalog, reference, metadata=one, features_json=features_json)
    for text in texts:
        try:
            asked = parse_search(text)
        except UsageError:
            continue
        expected = sorted(
            (-score(asked.words, asked.joined, document), *key)
            for key, document in stored.items()
            if all(any(word.startswith(begin) for word in every(document)) for begin in asked.words)
        )
        for catalog in both:
            hits = catalog.search(text, limit=limit)
            assert [(-hit.score, hit.name, hit.config or "") for hit in hits] == expected[:limit]
        first, second = (catalog.search(text, limit=limit) for catalog in both)
        assert first == second


def every(document: dict[str, str]) -> list[str]:
    return " ".join(document.values()).split()


def score(words: tuple[str, ...], joined: str, document: dict[str, str]) -> int:
    """What ``SCORES`` says of a document, counted word by word."""
    classes = {
        "A": document["name"],
        "B": f"{document['tags']} {document['features']}",
        "C": document["description"],
        "D": document["details"],
    }
    points = 10_000 if document["name"].split()[0] == joined else 0
    for begin in words:
        for weight, text in classes.items():
            points += SCORES[weight] * any(word.startswith(begin) for word in text.split())
            points += SCORES[weight] * (begin in text.split())
    return points
