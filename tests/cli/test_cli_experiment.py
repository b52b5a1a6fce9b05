"""Experiments on the command line, and what `show` and `list` tell of versions that have something beside a number."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.building import BuilderConfig, DatasetBuilder
from registry.features import FeaturesDict, Scalar

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

ADD = ("experiment", "add", "new_shuffle", "--description", "Shuffle by the hash.")


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


def test_the_life_of_a_flag(empty: Cli) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    before = empty("experiment", "list")
    assert (before.code, before.out) == (0, "")
    assert before.err == (
        "The catalog has no experiments. Add one with: registry experiment add NAME --description TEXT\n"
    )
    assert empty(*ADD, "--dry-run").out == "would add new_shuffle, off by default\n"
    assert empty(*ADD).out == "added new_shuffle, off by default\n"
    assert empty(*ADD).out == "new_shuffle is there already\n"
    refused = empty("experiment", "retire", "new_shuffle")
    assert (refused.code, refused.err) == (
        4,
        "error: new_shuffle is off by default, but a retired flag is on for good\n"
        "hint: First: registry experiment set-default new_shuffle on\n",
    )
    dry = empty("experiment", "set-default", "new_shuffle", "on", "--dry-run")
    assert dry.out == "would set the default of new_shuffle: off -> on\n"
    assert empty("experiment", "set", "new_shuffle", "on").out == "set the default of new_shuffle: off -> on\n"
    assert empty("experiment", "set-default", "new_shuffle", "on").out == "new_shuffle is on by default already\n"
    head, row = empty("experiment", "list").out.splitlines()
    assert head.split() == ["EXPERIMENT", "DEFAULT", "ENABLED", "BY", "DISABLED", "BY", "DESCRIPTION"]
    assert row.split() == ["new_shuffle", "on", "0", "0", "Shuffle", "by", "the", "hash."]
    assert empty("experiment", "retire", "new_shuffle", "--dry-run").out == (
        "would retire new_shuffle: it is on for good\n"
    )
    assert empty("experiment", "retire", "new_shuffle").out == "retired new_shuffle: it is on for good\n"
    assert empty("experiment", "retire", "new_shuffle").out == (
        f"new_shuffle is retired already, on for good since {today}\n"
    )
    assert f"on for good since {today}" in empty("experiment", "list").out
    assert empty(*ADD).code == 4


def test_programs_get_every_change_as_json(cli: Cli) -> None:
    dry = cli(*ADD, "--default", "on", "--dry-run", "--format", "json").json()
    assert dry == {
        "schema": "registry.experiment.add/1",
        "data": {
            "experiment": {
                "name": "new_shuffle",
                "description": "Shuffle by the hash.",
                "default": True,
                "retired": False,
                "created_at": None,
                "retired_at": None,
                "num_enabling": 0,
                "num_disabling": 0,
            },
            "before": None,
            "changed": False,
            "would_change": True,
            "dry_run": True,
        },
        "warnings": [],
    }
    cli(*ADD, "--default", "on")
    flipped = cli("experiment", "set-default", "new_shuffle", "off", "--format", "json").json()
    assert flipped["schema"] == "registry.experiment.set-default/1"
    assert (flipped["data"]["before"]["default"], flipped["data"]["experiment"]["default"]) == (True, False)
    listed = cli("experiment", "list", "--format", "json").json()
    assert listed["schema"] == "registry.experiment.list/1"
    assert [one["name"] for one in listed["data"]] == ["new_shuffle"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("experiment", "add", "New", "--description", "x"), 2, "invalid experiment 'New'"),
        (("experiment", "add", "flag", "--description", " "), 2, "an experiment needs a description"),
        (("experiment", "add", "flag"), 2, "Missing option '--description'."),
        (("experiment", "set-default", "flag", "maybe"), 2, "Invalid value for 'on|off'"),
        (("experiment", "set-default", "flag", "on"), 3, "no experiment 'flag' in the catalog"),
        (("experiment", "retire", "flag"), 3, "no experiment 'flag' in the catalog"),
    ],
)
def test_a_wrong_call_is_one_message(empty: Cli, arguments: tuple[str, ...], code: int, message: str) -> None:
    ran = empty(*arguments)
    assert ran.code == code
    assert ran.err.startswith(f"error: {message}")


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
    assert "prepared by  code 0.9.0 or older: today's code can only read it\n" in digits("show", "digits").out
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
