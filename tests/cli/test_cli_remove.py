"""``registry remove`` in a store that does not answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from registry.errors import StorageUnavailableError
from registry.storage.local import LocalStore

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_a_store_that_does_not_answer_has_its_exit_code(dropped: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_away(_: LocalStore, name: str) -> None:
        raise StorageUnavailableError(f"{name}: no answer")

    monkeypatch.setattr(LocalStore, "remove", be_away)
    ran = dropped("remove", "animals:1.0.0", "--now")
    assert (ran.code, ran.out.splitlines()[0]) == (75, "not cleared: dataset_info.json: no answer")
    assert ran.out.splitlines()[-1] == (
        "animals:1.0.0 is not removed everywhere. To continue: registry remove animals:1.0.0"
    )
