"""Stores for tests: ``store`` runs a test on a folder of this machine, in memory, and on an object store."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from registry.storage import Store, open_store


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store, once of each kind."""
    if request.param == "s3":
        return open_store(f"{request.getfixturevalue('bucket')}/data")
    return open_store(tmp_path / "data" if request.param == "local" else f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    """An empty store in a folder that does not exist yet."""
    return open_store(tmp_path / "data")
