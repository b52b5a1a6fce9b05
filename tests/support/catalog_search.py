"""Datasets made up for tests of the search."""

from __future__ import annotations

import json
from typing import Any

from registry.catalog import CatalogBackend
from registry.model import DatasetMetadata
from support.catalog_samples import publish


def about(catalog: CatalogBackend, reference: str, description: str = "", **changes: Any) -> None:
    """Publish a dataset with a description, tags and names of features, and nothing else that a word is found in."""
    options = {name: changes.pop(name) for name in ("promote", "default_config") if name in changes}
    features = {name: {} for name in changes.pop("features", ())}
    publish(
        catalog,
        reference,
        metadata=DatasetMetadata(description=description, **changes),
        features_json=json.dumps({"featuresDict": {"features": features}}),
        content=description,
        **options,
    )


def found(catalog: CatalogBackend, text: str, **options: int) -> list[str]:
    return [hit.dataset for hit in catalog.search(text, **options)]
