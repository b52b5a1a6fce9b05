"""Runs every block of the README and the docs, and compares its output with the printed one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import warm_python

from registry.errors import SliceError, SplitSyntaxError
from registry.splits import resolve

ROOT = Path(__file__).resolve().parents[2]
SHELL = set("|&;<>$*?`#~\n")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def blocks(language: str, document: str = "README.md") -> list[str]:
    """A document's code blocks in one language."""
    return [text for found, text in BLOCK.findall((ROOT / document).read_text(encoding="utf-8")) if found == language]


def variables(folder: Path) -> dict[str, str]:
    """The environment of a newcomer who works in ``folder``: commands on PATH."""
    found = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "REGISTRY_CATALOG": str(folder / "catalog.db"),
        "REGISTRY_CACHE_DIR": f"{folder}-cache",
        "REGISTRY_CACHE_BYTES": "1GB",
        "PYTHONPATH": str(folder),
    }
    found.pop("REGISTRY_DATA_DIR", None)
    return found


@pytest.fixture(scope="session")
def quickstarted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after the first line of the README: digits are published."""
    folder = tmp_path_factory.mktemp("quickstarted")
    run("registry quickstart", variables(folder), folder)
    return folder


@pytest.fixture
def environment(tmp_path: Path, quickstarted: Path) -> dict[str, str]:
    """A newcomer's environment after the first line of the README: commands on PATH, digits published."""
    shutil.copytree(quickstarted, tmp_path, dirs_exist_ok=True)
    return variables(tmp_path)


def run(command: str, environment: dict[str, str], folder: Path, *, may_fail: bool = False) -> str:
    """The stdout of ``command``; a line of one program without shell syntax starts it as a fork."""
    programs = {"registry": warm_python.PROGRAM, "python": sys.executable, sys.executable: sys.executable}
    words = shlex.split("sh" if SHELL & set(command) else command)
    options: dict[str, Any] = {"env": environment, "cwd": folder, "capture_output": True, "text": True}
    if words[0] in programs:
        done = warm_python.run([programs[words[0]], *words[1:]], **options)
    else:
        done = subprocess.run(command, shell=True, check=False, **options)  # noqa: S602 (the lines are the README's own)
    assert may_fail or done.returncode == 0, done.stderr
    return done.stdout


def test_the_ten_lines_of_python_print_what_they_say(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(blocks("python")[0])
    assert run(f"{sys.executable} example.py", environment, tmp_path) == blocks("text")[1]


@pytest.mark.parametrize(
    ("document", "number"),
    [
        ("README.md", 7),
        pytest.param("docs/exporting.md", 8, marks=pytest.mark.long),
        pytest.param("docs/importing.md", 6, marks=pytest.mark.long),
        pytest.param("docs/pinning.md", 12, marks=pytest.mark.long),
        pytest.param("docs/adding.md", 14, marks=pytest.mark.long),
        ("docs/deployment.md", 4),
        ("docs/looking.md", 3),
        ("docs/moving.md", 12),
        ("docs/sharing.md", 2),
        ("docs/splits.md", 6),
        pytest.param("docs/earth-engine.md", 6, marks=pytest.mark.long),
    ],
)
def test_the_lines_of_shell_print_what_they_say(
    environment: dict[str, str], tmp_path: Path, document: str, number: int
) -> None:
    check_console(document, number, environment, tmp_path)


def check_console(
    document: str, number: int, environment: dict[str, str], folder: Path, names: Mapping[str, str] | None = None
) -> None:
    """Each of the ``number`` commands of a document prints the output shown below it.

    ``names`` are the names of the page that the test replaces, and what stands for them.
    """
    consoles = blocks("console", document)
    steps = [step for console in consoles for step in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]]
    assert len(steps) == number
    for step in steps:
        for name, stand_in in (names or {}).items():
            step = step.replace(name, stand_in)  # noqa: PLW2901
        command, expected = step.split("\n", maxsplit=1)
        printed = expected.rstrip("\n")
        assert run(command, environment, folder, may_fail="2>&1" in command) == (f"{printed}\n" if printed else "")


def install(folder: Path, project: str, modules: dict[str, str]) -> None:
    """Install the distribution my-package in ``folder``, as pip leaves it; ``project`` is its pyproject.toml."""
    package, metadata = folder / "my_package", folder / "my_package-1.0.dist-info"
    for new in (package, metadata):
        new.mkdir()
    for name, text in {"__init__.py": "", **modules}.items():
        (package / name).write_text(text)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    groups = tomllib.loads(project)["project"]["entry-points"].items()
    lines = [
        line for group, points in groups for line in (f"[{group}]", *(f"{name} = {points[name]}" for name in points))
    ]
    (metadata / "entry_points.txt").write_text("\n".join([*lines, ""]))


def test_the_builder_of_the_readme_is_found_built_and_read(environment: dict[str, str], tmp_path: Path) -> None:
    install(tmp_path, blocks("toml")[0], {"greetings.py": blocks("python")[1]})
    assert run("registry build greetings", environment, tmp_path).startswith("published greetings:1.0.0: 2 examples")
    assert "Guten Tag" in run("registry read greetings train", environment, tmp_path)


def test_a_builder_a_command_and_an_engine_of_another_package_use_the_documented_doors(
    environment: dict[str, str], tmp_path: Path
) -> None:
    document = "docs/extending.md"
    names = ("builders.py", "commands.py", "engines.py")
    modules = dict(zip(names, blocks("python", document), strict=True))
    install(tmp_path, blocks("toml", document)[0], modules)
    check_console(document, 3, environment, tmp_path)
    imported = {name for text in modules.values() for name in re.findall(r"^from (registry[\w.]*)", text, re.MULTILINE)}
    assert imported == {"registry", "registry.cli", "registry.engines", "registry.features"}


@pytest.mark.parametrize(
    "document",
    [
        "docs/adding.md",
        "docs/exporting.md",
        "docs/from-dvc.md",
        "docs/from-huggingface.md",
        "docs/from-tfds.md",
        "docs/order.md",
        "docs/pinning.md",
        "docs/publishing.md",
        "docs/reading.md",
        "docs/slim.md",
        "docs/earth-engine.md",
        "docs/splits.md",
        "docs/statistics.md",
        "docs/versions.md",
    ],
)
def test_the_blocks_of_python_print_what_they_say(environment: dict[str, str], tmp_path: Path, document: str) -> None:
    (tmp_path / "blocks.py").write_text("\n".join(blocks("python", document)))
    assert run(f"{sys.executable} blocks.py", environment, tmp_path) == "".join(blocks("text", document))


@pytest.mark.long
def test_the_lines_of_shell_continue_after_the_blocks_of_python(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "blocks.py").write_text("\n".join(blocks("python", "docs/publishing.md")))
    run(f"{sys.executable} blocks.py", environment, tmp_path)
    check_console("docs/publishing.md", 3, environment, tmp_path)


def test_the_table_of_the_two_slicing_rules_is_true() -> None:
    text = (ROOT / "docs/splits.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \| `(.*)`( pct1)? \| (.*) \| (.*) \| (.*) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 22
    for case, expression, pct1, records, documented, tfds in rows:
        layout = {}
        for one in records.split(", "):
            name, *lengths = one.split()
            layout[name] = [int(length) for length in lengths]
        answers = []
        for slicing in ("documented", "tfds-4"):
            rounding = "pct1_dropremainder" if pct1 else None
            try:
                plan = resolve(expression.replace(r"\n", "\n"), layout, slicing=slicing, rounding=rounding)
            except (SplitSyntaxError, SliceError):
                answers.append("refused")
            else:
                ranges = [f"{one.split} {one.start}..{one.stop}" for one in plan.ranges if one.num_examples]
                answers.append(" + ".join(ranges) or "nothing")
        assert answers == [documented, tfds], case


def test_the_architecture_names_files_and_what_is_in_them() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    folders = (ROOT / "registry", ROOT)
    named = re.findall(r"`([\w./]+/[\w.]*)`", text)
    assert len(named) > 40
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []
    within = re.findall(r"`(\w+)` (?:of|in) `([\w./]+\.py)`", text)
    assert len(within) > 8
    for name, path in within:
        (file,) = (folder / path for folder in folders if (folder / path).is_file())
        assert re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")), f"{path} has no {name}"


@pytest.mark.parametrize("document", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")))
def test_links_lead_somewhere(document: str) -> None:
    for path in (ROOT / "README.md", ROOT / document):
        for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
            assert "://" in target or (path.parent / target).exists(), f"{path.name}: {target}"
