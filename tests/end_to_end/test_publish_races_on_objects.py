"""Concurrent publishers in one object store: in every interleaving, one wins and nothing is lost or mixed.

The law runs a complete second publisher between every two requests of the first one.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.levels import either, every_step
from support.prepared_samples import animals, prepare

import registry
from registry.catalog import session
from registry.errors import ConflictError, RegistryError
from registry.publishing import object_place

EVERY = every_step(5)
"""One step in this number is tried in the long level; 1 tries them all."""

REQUESTS = ("_open", "cat_file", "cp_file", "exists", "find", "info", "rm_file")


@contextmanager
def before_step(wanted: int, action: Callable[[], object]) -> Iterator[list[str]]:
    """Run ``action`` before the ``wanted``-th request to the store or transaction of the catalog; gives all steps."""
    steps: list[str] = []
    inside: list[bool] = []

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if not inside:
                steps.append(name)
                if len(steps) == wanted:
                    inside.append(True)
                    action()
                    inside.clear()
            return function(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in REQUESTS:
            patch.setattr(MemoryFileSystem, name, watched(name, getattr(MemoryFileSystem, name)))
        for name in ("connect", "begin"):
            patch.setattr(session.sa.Engine, name, watched("transaction", getattr(session.sa.Engine, name)))
        yield steps


@pytest.fixture
def rivals(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of animals:1.0.0 with shards of equal length and different values."""
    one, other = (prepare(tmp_path / str(age), splits={"train": animals(20, age=age)}, shards=2) for age in (98, 99))
    return one, other


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_place, "WAIT_SECONDS", 0.0)


@pytest.fixture
def fresh(tmp_path: Path, sqlite_template: Path) -> Callable[[], str]:
    """Makes the URL of another new catalog."""
    numbers = itertools.count()
    return lambda: f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'{next(numbers)}.db')}"


@dataclass
class Publisher:
    """A publisher and its outcome."""

    url: str
    data_dir: str
    folder: Path
    came_before: str = ""
    newly: bool | None = None
    error: RegistryError | None = None

    def publish(self) -> None:
        with registry.connect(self.url, data_dir=self.data_dir) as catalog:
            try:
                self.newly = catalog.publish(self.folder).newly
            except RegistryError as error:
                self.error = error

    def check(self) -> None:
        """The files that this publisher's catalog refers to exist, and have the content that it published."""
        with registry.connect(self.url, data_dir=self.data_dir) as catalog:
            dataset = catalog.dataset("animals:1.0.0")
            assert dataset.verify(deep=True).faults == ()
            assert int(self.folder.name) in {int(example["age"]) for example in dataset.read("train")}


def meet(
    first: Callable[[], Publisher], second: Callable[[Publisher], Publisher], every: int
) -> Iterator[tuple[Publisher, ...]]:
    """A publisher, and a rival that runs completely before one of its steps, for one step in ``every`` in turn."""
    for step in itertools.count(1, every):
        one = first()
        other = second(one)
        with before_step(step, other.publish) as steps:
            one.publish()
        if len(steps) < step:
            return
        other.came_before = f"step {step} of {len(steps)}, {steps[step - 1]}"
        yield one, other


@pytest.mark.parametrize("has_own_catalog", [False, True])
@pytest.mark.parametrize("every", either(8 * EVERY, EVERY))
def test_between_any_two_steps_a_rival_of_other_content_wins_or_loses_whole(
    fresh: Callable[[], str], rivals: tuple[Path, Path], every: int, has_own_catalog: bool
) -> None:
    wins = []
    for one, other in meet(
        lambda: Publisher(fresh(), f"memory://{uuid.uuid4().hex}", rivals[0]),
        lambda one: Publisher(fresh() if has_own_catalog else one.url, one.data_dir, rivals[1]),
        every,
    ):
        winner, loser = (one, other) if one.newly else (other, one)
        assert (winner.newly, loser.newly) == (True, None), (one, other)
        assert isinstance(loser.error, ConflictError), (one, other)
        winner.check()
        wins.append(winner is one)
    assert any(wins)
    assert not all(wins)


@pytest.mark.parametrize("every", either(8 * EVERY, EVERY))
def test_between_any_two_steps_a_rival_of_the_same_content_is_welcome(
    fresh: Callable[[], str], rivals: tuple[Path, Path], every: int
) -> None:
    for one, other in meet(
        lambda: Publisher(fresh(), f"memory://{uuid.uuid4().hex}", rivals[0]),
        lambda one: Publisher(one.url, one.data_dir, rivals[0]),
        every,
    ):
        assert {one.newly, other.newly} == {True, False}, (one, other)
        one.check()
