"""Plugins: the names that they may import, and what happens if a package offers a broken one."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import click
import pytest
from support.golden import check_errors

import registry
from registry.cli.main import cli
from registry.errors import UsageError

GOLDEN = Path(__file__).with_name("golden")


ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ("builders", "registry/slim", "registry/engines/ray")
PUBLIC = re.compile(r"registry(\.errors|\.features|\.builders.*|\.slim.*|\.engines\.ray.*)?")
"""What has its own pages, or belongs to the plugins."""


def imported_names() -> Iterator[tuple[str, str]]:
    """The module and name of each import of a plugin from a room."""
    for folder in PLUGINS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("registry"):
                    yield from ((str(node.module), alias.name) for alias in node.names)


def listed_names() -> set[tuple[str, str]]:
    """The rows of the table of names for plugins."""
    page = (ROOT / "docs/extending.md").read_text().partition("## Names for plugins")[2]
    rows = [row.split("|")[1:4] for row in page.splitlines() if row.startswith("| `registry.")]
    return {
        (module, name)
        for modules, _, names in rows
        for module, part in zip(
            re.findall(r"`([\w.]+)`", modules),
            names.split(";") if "`, `" in modules else [names],
            strict=True,
        )
        for name in re.findall(r"`(\w+)`", part)
    }


def names_for_type_checkers(room: ModuleType) -> set[str]:
    """The names in ``__all__``, or those that a package defines, or imports as themselves."""
    tree = [*ast.walk(ast.parse(inspect.getsource(room)))]
    imported = {alias.asname or "" for node in tree if isinstance(node, ast.ImportFrom) for alias in node.names}
    defined = {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {*getattr(room, "__all__", imported | defined)}


def test_the_page_for_plugins_lists_what_plugins_of_this_project_import() -> None:
    used = {(module, name) for module, name in imported_names() if not PUBLIC.fullmatch(module)}
    assert sorted(used - listed_names()) == []
    assert len(used) > 90


def test_each_listed_name_is_published_by_its_room() -> None:
    for module, name in sorted(listed_names()):
        room = importlib.import_module(module)
        assert hasattr(room, name), f"{module} has no {name}"
        if hasattr(room, "__path__"):
            assert name in names_for_type_checkers(room), f"{module} does not publish {name}"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with faulty commands and engines, on sys.path as an installer leaves it."""
    install(
        tmp_path,
        "third-plugins",
        {
            "commands": {"gone": "third_plugins:gone", "number": "third_plugins:NUMBER", "export.twice": "a:b"},
            "engines": {"gone": "third_plugins:gone", "number": "third_plugins:NUMBER", "twice": "third_plugins:b"},
        },
    )
    install(tmp_path, "third-other", {"commands": {"export.twice": "c:d"}, "engines": {"twice": "c:d"}})
    (tmp_path / "third_plugins.py").write_text("NUMBER = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[registry.{group}]", *(f"{point} = {value}" for point, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))


@pytest.mark.usefixtures("package")
def test_a_broken_engine_or_command_is_a_typed_error() -> None:
    def use(name: str) -> None:
        with registry.use_engine(name):
            pass

    def run(*words: str) -> None:
        cli.main([*words], prog_name="registry", standalone_mode=False)

    calls = {f"engine {name}": partial(use, name) for name in ("gone", "number", "twice")}
    for words in (["gone"], ["number"], ["export", "twice"], ["export", "gone"]):
        calls[f"command {' '.join(words)}"] = partial(run, *words)
    check_errors(GOLDEN / "plugins.txt", calls)


def test_a_missing_package_of_a_listed_command_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.cli.lazy_group.find_plugin", lambda _group, _name: None)
    with pytest.raises(UsageError) as caught:
        cli.get_command(click.Context(cli, info_name="registry"), "earth-engine")
    assert caught.value.message == "no installed package provides the command 'registry earth-engine'"
