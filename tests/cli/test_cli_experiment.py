"""Experiments on the command line, and what `show` and `list` tell of versions that have something beside a number."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.building import BuilderConfig, DatasetBuilder
from registry.features import FeaturesDict, Scalar

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


class Greetings(DatasetBuilder):
    VERSION = registry.Version("1.0.0", experiments={"new_shuffle": True, "old_order": False})
    BUILDER_CONFIGS = [
        BuilderConfig(name="de", description="German.", tags=["text", "small"]),
        BuilderConfig(name="en"),
    ]

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": Scalar("int64")})

    def splits(self) -> Mapping[str, Any]:
        return {"train": [(0, {"number": 1})]}


@pytest.fixture
def greetings(cli: Cli) -> Cli:
    """A catalog with two configs whose versions override two flags."""
    for name in ("new_shuffle", "old_order"):
        cli("experiment", "add", name, "--description", f"About {name}.")
    with registry.connect() as catalog:
        for config in ("de", "en"):
            catalog.build(Greetings(config=config))
    return cli


def test_show_and_list_tell_of_flags_configs_and_tags(greetings: Cli) -> None:
    shown = greetings("show", "greetings").out
    assert "config       German.\n" in shown
    assert "tags         text, small\n" in shown
    assert "experiments  new_shuffle on, old_order off\n" in shown
    assert "prepared by" not in shown
    data = greetings("show", "greetings", "--format", "json").json()["data"]
    assert (data["config_description"], data["config_tags"]) == ("German.", ["text", "small"])
    assert data["experiments"] == {"new_shuffle": True, "old_order": False}
    assert data["version_to_prepare"] is None
    listed = {one["dataset"]: one for one in greetings("list", "--format", "json").json()["data"]}
    assert {name: one["default_config"] for name, one in listed.items()} == {
        "greetings/de": True,
        "greetings/en": False,
    }
    assert listed["greetings/de"]["config_tags"] == ["text", "small"]
    assert listed["greetings/de"]["config_description"] == "German."
    assert listed["greetings/en"]["config_tags"] == []
    rows = [line.split()[:4] for line in greetings("experiment", "list").out.splitlines()[1:]]
    assert rows == [["new_shuffle", "off", "2", "0"], ["old_order", "off", "0", "2"]]
    refused = greetings("experiment", "set-default", "old_order", "on") and greetings(
        "experiment", "retire", "old_order"
    )
    assert refused.err == (
        "error: old_order is switched off by greetings/de:1.0.0, greetings/en:1.0.0\n"
        "hint: It can be retired once they are yanked or dropped.\n"
    )


def test_a_folder_of_older_code_is_published_with_the_version_of_that_code(
    digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(workspace / "other/catalog.db"))
    folder = str(shutil.copytree(workspace / "datasets/digits/1.0.0", workspace / "old"))
    assert digits("publish", folder, "--version-to-prepare", "soon").code == 2
    assert digits("publish", folder, "--version-to-prepare", "v0.9.0").code == 0
    assert "prepared by  code 0.9.0 or older: newer code can only read it\n" in digits("show", "digits").out
    assert digits("show", "digits", "--format", "json").json()["data"]["version_to_prepare"] == "0.9.0"
    assert digits("publish", folder, "--version-to-prepare", "1.0.0").code == 4


def test_the_shell_completes_flags(greetings: Cli) -> None:
    import click

    from registry.cli.experiment import set_default
    from registry.cli.main import cli as root

    with click.Context(set_default, parent=click.Context(root), info_name="set-default") as context:
        (argument, *_) = [one for one in set_default.params if one.name == "name"]
        items = argument.shell_complete(context, "new")
    assert [item.value for item in items] == ["new_shuffle"]
