"""The home page keeps what is slow to find out about each dataset, and asks again when something has happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import registry
from registry.errors import StorageUnavailableError
from registry.features import FeaturesDict, Scalar
from registry.pages import Page, Visit, answer


class Numbers(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"x": Scalar("int64")})

    def splits(self) -> Any:
        return {"train": [(i, {"x": i * i}) for i in range(10)]}


def test_cards_are_made_again_after_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.connect(tmp_path / "c.db", create=True) as catalog:
        catalog.build(Numbers)
        look_ups: list[str] = []
        look_up = registry.Catalog.look_up

        def counted(self: registry.Catalog, reference: str) -> Any:
            look_ups.append(reference)
            return look_up(self, reference)

        monkeypatch.setattr(registry.Catalog, "look_up", counted)

        def card() -> Any:
            page = answer(Visit(catalog=catalog))
            assert isinstance(page, Page)
            return page.values["datasets"][0]

        first = card()
        assert (card(), look_ups) == (first, ["numbers:1.0.0"])
        catalog.describe("numbers:1.0.0", license="MIT")
        assert (first["license"], card()["license"]) == ("", "MIT")
        assert len(look_ups) == 2


def test_a_dataset_that_cannot_be_read_has_a_card_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "c.db", create=True) as catalog:
        catalog.build(Numbers)
        catalog.describe("numbers:1.0.0", license="MIT")

        def fail(self: registry.Catalog, reference: str) -> Any:
            raise StorageUnavailableError("silent")

        def card() -> Any:
            page = answer(Visit(catalog=catalog))
            assert isinstance(page, Page)
            return page.values["datasets"][0]

        with monkeypatch.context() as context:
            context.setattr(registry.Catalog, "look_up", fail)
            assert (card()["license"], card()["path"]) == ("", ("datasets", "numbers", "1.0.0"))
        assert card()["license"] == "MIT"
