"""Stores for tests: ``store`` runs a test on a folder of this machine, in memory, and on object stores."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from support.clouds import SERVERS, enter

from registry.storage import Store, open_store


@pytest.fixture(params=["local", "memory", *SERVERS])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, once of each kind."""
    if request.param == "local":
        return open_store(tmp_path / "data")
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}")
    return open_store(f"{enter(request.getfixturevalue(request.param), monkeypatch)}/data")


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    """An empty store in a folder that does not exist yet."""
    return open_store(tmp_path / "data")
