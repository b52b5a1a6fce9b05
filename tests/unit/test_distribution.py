"""Every hint to install a package names our own distribution, with an existing extra."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import registry
from registry.api.locations import catalog_url
from registry.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
TEXTS = [
    path
    for pattern in (
        "*.md",
        "*.toml",
        ".ci/*",
        "docs/**/*.md",
        "registry/**/*.py",
        "registry/**/*.txt",
        "builders/**/*",
        "migrations/**/*.py",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.is_file() and path.suffix in ("", ".md", ".py", ".toml", ".txt")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONS_AND_PATHS = re.compile(r"-|\.$|\.\[|\"?\$")
OTHERS = {"mosaicml-streaming"}  # used as a reference by benchmarks


def test_the_distribution_is_shardbook() -> None:
    assert PROJECT["name"] == metadata("shardbook")["Name"] == "shardbook"
    assert version("shardbook") == registry.__version__


def installed_by(line: str) -> Iterator[str]:
    """The requirements that the ``pip install`` of a line names, paths and options aside."""
    for command in re.findall(r"pip3? install ((?:[^`&|;)]|\\$)*)", line):
        for word in command.split("#")[0].split():
            requirement = word.strip("'\",.")
            if requirement and not OPTIONS_AND_PATHS.match(word.strip("'\"")):
                yield requirement
            if word.endswith(("'", '"', ".", ",")):
                break


def test_every_printed_install_line_names_this_distribution_and_an_extra_it_has() -> None:
    lines = [(path, line) for path in TEXTS for line in path.read_text(encoding="utf-8").splitlines()]
    found = [(path.name, one) for path, line in lines for one in installed_by(line)]
    assert len(found) >= 7, found  # the number when this was written: fewer mean that the pattern no longer matches
    for name, requirement in found:
        # Ray's own extra, with its jobs and its list of tasks; and axe-core, without the browser that it names.
        if requirement in ("ray[default]", "axe-playwright-python==0.1.8"):
            continue
        distribution, _, extras = requirement.partition("[")
        assert distribution in {"shardbook", "torchdata"}, (
            f"{name}: {requirement}"
        )  # PyTorch's own package for resuming
        for extra in filter(None, extras.rstrip("]").split(",")):
            assert extra == "{extra}" or extra in PROJECT["optional-dependencies"], f"{name}: {requirement}"


def test_every_missing_package_is_reported_with_an_extra_that_exists() -> None:
    calls = [
        (path.name, call)
        for path in TEXTS
        if path.suffix == ".py" and "extra" in (text := path.read_text(encoding="utf-8"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
    ]
    given = [(name, word.value) for name, call in calls for word in call.keywords if word.arg == "extra"]
    given += [(name, call.args[0]) for name, call in calls if ast.unparse(call.func) == "require_extra"]
    texts = {(name, one.value) for name, one in given if isinstance(one, ast.Constant)}
    extras = {
        (name, extra) for name, extra in texts if isinstance(extra, str) and extra not in ("allow", "forbid")
    }  # pydantic's
    assert len({extra for _, extra in extras}) >= 8
    for name, extra in sorted(extras):
        assert extra in PROJECT["optional-dependencies"], f"{name}: {extra}"
    error = MissingExtraError(package="psycopg", extra="pg", needed_for="a PostgreSQL catalog")
    assert error.hint == "Install it with: pip install 'shardbook[pg]'"


def test_a_data_folder_made_under_the_old_name_stays_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("REGISTRY_CATALOG", raising=False)
    assert catalog_url() == str(tmp_path / "shardbook" / "catalog.db")
    (tmp_path / "dataset-registry").mkdir()
    assert catalog_url() == str(tmp_path / "dataset-registry" / "catalog.db")
    (tmp_path / "shardbook").mkdir()
    assert catalog_url() == str(tmp_path / "shardbook" / "catalog.db")


def test_the_wheel_has_every_room() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    rooms = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "registry").rglob("__init__.py")}
    assert rooms - set(listed) == set()
