"""Why a look-up gave the version that it gave, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.catalog_samples import sample

from registry.catalog import CatalogBackend, open_catalog
from registry.model import Reference, VersionState, choose


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CatalogBackend]:
    """mnist 1.0.0 to 3.0.0, of which 1.0.0 is deprecated, 2.0.0 canonical and 2.1.0 yanked; ted with one config."""
    with open_catalog(tmp_path / "catalog.db") as opened:
        for number, promote, state, message in (
            ("1.0.0", False, VersionState.DEPRECATED, "use 2.0.0"),
            ("2.0.0", True, VersionState.SUPPORTED, ""),
            ("2.1.0", False, VersionState.YANKED, "labels are shifted"),
            ("3.0.0", False, VersionState.SUPPORTED, ""),
        ):
            version, shards = sample(f"mnist:{number}", content=number, state=state, state_message=message)
            opened.publish(version, shards, promote=promote, actor="tester")
        version, shards = sample("ted/en:1.0.0")
        opened.publish(version, shards, promote=True, default_config=True, actor="tester")
        yield opened


@pytest.mark.parametrize(
    ("reference", "sentences"),
    [
        ("mnist", ["mnist does not name a version: 2.0.0 is the canonical one."]),
        ("mnist:2.0.0", ["mnist:2.0.0 names exactly 2.0.0."]),
        ("mnist:1.0.0", ["mnist:1.0.0 names exactly 1.0.0.", "1.0.0 is deprecated: use 2.0.0."]),
        (
            "mnist:2.*",
            [
                "mnist:2.*.* allows 2.1.0, 2.0.0: 2.0.0 is the highest that is neither yanked nor dropped.",
                "2.1.0 is skipped: it is yanked: labels are shifted.",
            ],
        ),
        (
            "mnist:>=1",
            [
                "mnist:>=1 allows 3.0.0, 2.1.0, 2.0.0, 1.0.0: 3.0.0 is the highest that is neither yanked nor dropped.",
                "3.0.0 is experimental, above the canonical version 2.0.0.",
            ],
        ),
        (
            "ted",
            [
                "ted does not name a config: en is the default config of ted.",
                "ted does not name a version: 1.0.0 is the canonical one.",
            ],
        ),
        ("ted/en", ["ted/en does not name a version: 1.0.0 is the canonical one."]),
    ],
)
def test_a_look_up_says_why(catalog: CatalogBackend, reference: str, sentences: list[str]) -> None:
    wanted = Reference.parse(reference)
    choice = choose(catalog.standing(wanted.name, wanted.config), wanted)
    assert list(choice.sentences) == sentences
    assert choice.version == catalog.find(wanted).version


def test_very_many_versions_are_counted(tmp_path: Path) -> None:
    with open_catalog(tmp_path / "catalog.db") as catalog:
        for minor in range(7):
            version, shards = sample(f"mnist:1.{minor}.0", content=str(minor))
            catalog.publish(version, shards, promote=False, actor="tester")
        wanted = Reference.parse("mnist:1.*")
        sentences = choose(catalog.standing("mnist"), wanted).sentences
    assert sentences == (
        "mnist:1.*.* allows 1.6.0, 1.5.0, 1.4.0, 1.3.0, 1.2.0 and 2 more: "
        "1.6.0 is the highest that is neither yanked nor dropped.",
        "1.6.0 is experimental, and no version is canonical yet.",
    )
