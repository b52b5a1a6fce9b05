"""Look-ups from Python: warnings, locks, and look-ups at a past moment."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.errors import LockedError, NotFoundError, UsageError
from registry.features import FeaturesDict


class Counts(registry.DatasetBuilder):
    """As many numbers as the MAJOR says."""

    VERSION = "1.0.0"
    SUPPORTED_VERSIONS = ["2.0.0"]

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> Any:
        return {"train": [(n, {"number": n}) for n in range(self.version.major)]}


class Parts(Counts):
    """The same in one config."""

    BUILDER_CONFIGS = [registry.BuilderConfig(name="one")]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[registry.Catalog]:
    """counts 1.0.0 (canonical) and 2.0.0, parts/one 1.0.0."""
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    with registry.connect() as opened:
        for version in ("1.0.0", "2.0.0"):
            opened.build(Counts(version=version), processes=1)
        opened.build(Parts(config="one"), processes=1)
        yield opened


def test_a_yanked_version_warns_at_the_line_that_loads_it(catalog: registry.Catalog) -> None:
    catalog.lifecycle.yank("counts:2.0.0", reason="wrong labels", superseded_by="1.0.0")
    catalog.aliases.set("paper", "counts:1.0.0")
    message = "counts:2.0.0 is yanked: wrong labels; superseded by 1.0.0"

    for look_up in (lambda: catalog.dataset("counts:2.0.0"), lambda: registry.load("counts:2.0.0", "train")):
        with pytest.warns(registry.YankedVersionWarning) as caught:
            look_up()
        assert [(str(one.message), one.filename) for one in caught] == [(message, __file__)]
    assert issubclass(registry.YankedVersionWarning, registry.RegistryWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert catalog.look_up("counts:2.0.0").notes == (message,)
        assert catalog.dataset("counts@paper").notes == ()
        catalog.lifecycle.deprecate("counts:1.0.0", reason="use 3")
        assert catalog.dataset("counts").notes == ("counts:1.0.0 is deprecated: use 3",)


def test_a_look_up_of_the_past_warns_of_what_was_yanked_since(catalog: registry.Catalog) -> None:
    before = datetime.now(UTC)
    catalog.lifecycle.yank("counts:2.0.0", reason="wrong labels")
    after = datetime.now(UTC)

    with pytest.warns(registry.YankedVersionWarning, match="since then counts:2.0.0 is yanked: wrong labels"):
        past = catalog.dataset("counts:*", at=before)
    assert (str(past.version), past.status.value, past.facts.state_message) == ("2.0.0", "experimental", "")
    assert catalog.dataset("counts:*", at=after).version == registry.Version.parse("1.0.0")
    with pytest.warns(registry.YankedVersionWarning, match="at .*: counts:2.0.0 is yanked: wrong labels"):
        still = catalog.dataset("counts:2.0.0", at=after)
    assert len(still.notes) == 1  # nothing came of it since
    assert [one["number"] for one in registry.load("counts", "train", at=before)] == [0]


def test_a_moment_may_be_text_a_day_or_a_time(catalog: registry.Catalog) -> None:
    today = datetime.now(UTC)
    later = timedelta(days=2)
    moments = [f"{today + later:%Y-%m-%d}", (today + later).date(), today, today.isoformat(), "9999-12-31"]
    assert {str(catalog.dataset("counts", at=moment).version) for moment in moments} == {"1.0.0"}
    assert [str(one.version) for one in catalog.versions("counts", at=today)] == ["2.0.0", "1.0.0"]
    assert catalog.standing("counts", at=today) == catalog.standing("counts")
    with pytest.raises(NotFoundError, match="was not in the catalog at the end of 2001-01-01 UTC"):
        catalog.dataset("counts", at=date(2001, 1, 1))
    wrong: Any
    for wrong in (datetime(2026, 1, 1), 17, "2026-13-01"):  # noqa: DTZ001 (without a zone, on purpose)
        with pytest.raises(UsageError):
            catalog.dataset("counts", at=wrong)


def test_a_locked_block_asks_for_exact_references(catalog: registry.Catalog) -> None:
    catalog.aliases.set("paper", "counts:1.0.0")
    with registry.locked():
        assert registry.is_locked()
        for reference in ("counts", "counts:1.*", "counts:^1.0", "counts@paper", "parts:1.0.0"):
            with pytest.raises(LockedError) as caught:
                catalog.dataset(reference)
            exactly = "parts/one:1.0.0" if reference.startswith("parts") else "counts:1.0.0"
            assert caught.value.hint == f"Today it resolves to {exactly}. Write that."
            assert caught.value.details["exactly"] == exactly
            assert (caught.value.code, caught.value.exit_code) == ("locked", 6)
        with pytest.raises(LockedError):
            registry.load("counts")
        with registry.locked():
            assert str(catalog.dataset("counts:=1.0.0").version) == "1.0.0"
        assert registry.is_locked()
        assert catalog.dataset("parts/one:1.0.0").config == "one"
        with pytest.raises(NotFoundError):
            catalog.dataset("counts:9.0.0")
    assert not registry.is_locked()
    assert str(catalog.dataset("counts").version) == "1.0.0"


def test_a_block_that_fails_is_left_unlocked() -> None:
    with pytest.raises(ZeroDivisionError), registry.locked():
        raise ZeroDivisionError
    assert not registry.is_locked()


def test_threads_and_tasks_lock_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, bool] = {}

    def note(name: str) -> None:
        seen[name] = registry.is_locked()

    async def task(name: str, lock: bool, barrier: asyncio.Barrier) -> None:
        if lock:
            with registry.locked():
                await barrier.wait()
                note(name)
                await barrier.wait()
        else:
            await barrier.wait()
            note(name)
            await barrier.wait()

    async def both() -> None:
        barrier = asyncio.Barrier(2)
        await asyncio.gather(task("locked task", True, barrier), task("other task", False, barrier))

    asyncio.run(both())
    with registry.locked():
        context = contextvars.copy_context()
        workers = [
            threading.Thread(target=note, args=("thread",)),
            threading.Thread(target=context.run, args=(note, "thread in the context")),
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert seen == {"locked task": True, "other task": False, "thread": False, "thread in the context": True}
    monkeypatch.setenv("REGISTRY_LOCKED", "yes")
    worker = threading.Thread(target=note, args=("thread",))
    worker.start()
    worker.join()
    assert seen["thread"]
