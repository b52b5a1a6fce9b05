from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tfds_samples import import_tfds

import registry


@pytest.fixture(scope="session")
def tfds() -> Any:
    return import_tfds()


@pytest.fixture(scope="session")
def tf() -> Any:
    import_tfds()  # which brings TensorFlow along, without its warnings
    import tensorflow as tf

    return tf


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path / "catalog.db", create=True, data_dir=tmp_path / "datasets") as opened:
        yield opened
