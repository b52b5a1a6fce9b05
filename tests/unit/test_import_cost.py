"""Heavy packages are imported only by commands that need them, because imports decide how fast a command starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import registry
import registry.features

HEAVY = {
    "numpy", "sqlalchemy", "sqlalchemy.dialects.postgresql", "alembic", "rich", "pydantic", "google.protobuf", "fsspec",
    "PIL", "yaml", "semver", "difflib", "ray", "mako", "sqlalchemy.orm", "psycopg", "cryptography",
}  # fmt: skip
OF_OTHER_COMMANDS = {
    "registry.catalog.outcomes", "registry.catalog.log_verify", "registry.catalog.locations", "registry.statistics",
    "registry.api.reports", "registry.cli.stats", "registry.model.access", "registry.model.changes",
    "registry.model.webhook", "registry.model.digests", "registry.model.progress", "registry.publishing",
}  # fmt: skip
"""Modules with many values or much code that no look-up on the command line uses."""


SCHEMA = {
    "number": registry.features.Scalar("float64"),
    "optional": registry.features.Tensor(shape=(2,), dtype="uint8", minimum=0, maximum=9, optional=True),
    "bytes": registry.features.Tensor(shape=(None, None), dtype="bool", encoding="zlib"),
    "text": registry.features.Text(),
    "label": registry.features.ClassLabel(names=["cat", "dog"]),
    "image": registry.features.Image(shape=(8, 8, 1), dtype="uint16"),
    "mask": registry.features.LabeledImage(num_classes=2),
    "video": registry.features.Video(),
    "sound": registry.features.Audio(dtype="int16"),
    "box": registry.features.BBox(),
    "translation": registry.features.Translation(languages=["de", "en"]),
    "list": registry.features.Sequence({"places": registry.features.Sequence("int32", length=2), "word": str}),
}


def loaded_by(code: str, names: set[str] = HEAVY) -> set[str]:
    """The modules of ``names``, the heavy packages, that are loaded after running ``code`` in a fresh interpreter."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return names & set(done.stdout.split())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a catalog with the digits."""
    file = tmp_path_factory.mktemp("digits") / "catalog.db"
    with registry.connect(file) as catalog:
        catalog.build("digits", processes=1)
    return str(file)


def command(path: str, *arguments: str) -> str:
    """Code that runs a command on the catalog at ``path``."""
    return (
        f"import contextlib, io, os, sys\nos.environ['REGISTRY_CATALOG'] = {path!r}\n"
        "from registry.cli.main import run\nwith contextlib.redirect_stdout(io.StringIO()):\n"
        f"    code = run({list(arguments)!r})\nassert code == 0"
    )


COMMANDS = (
    *(["versions", "digits"], ["log"], ["resolve", "digits", "train[:10%]"]),
    *(["show", "digits"], ["show", "digits", "--format", "json"], ["stats", "digits"]),
)


@pytest.fixture(scope="module")
def loaded_by_commands(path: str) -> dict[str, set[str]]:
    """The modules that each look-up loads: ``list`` in a fresh interpreter, and each of the others in a fork of it."""
    code = (
        f"{command(path, 'list')}\nimport json\nprint(json.dumps(['list', list(sys.modules)]), flush=True)\n"
        f"for line in {COMMANDS!r}:\n    if not os.fork():\n        sys.stdout, shown = io.StringIO(), sys.stdout\n"
        "        assert run(line) == 0\n        line = json.dumps([' '.join(line), list(sys.modules)])\n"
        "        print(line, file=shown, flush=True)\n        os._exit(0)\n    assert os.wait()[1] == 0\n"
    )
    env = os.environ | {"XDG_DATA_HOME": str(Path(path).parent)}  # no settings of a service that the user logged in to
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    return {line: set(modules) for line, modules in map(json.loads, done.stdout.splitlines())}


def test_importing_loads_nothing_heavy() -> None:
    modules = ["registry", "registry.errors", "registry.model", "registry.order", "registry.splits"]
    modules += ["registry.cli.main", "registry.features.schema", "registry.images", "registry.wire"]
    assert loaded_by(f"import {', '.join(modules)}") == set()


def test_help_loads_nothing_heavy() -> None:
    quietly = "import io, sys\nsys.stdout = io.StringIO()\nrun(['--help'])\nsys.stdout = sys.__stdout__"
    assert loaded_by(f"from registry.cli.main import run\n{quietly}") == set()


def test_resolving_loads_no_heavy_package_but_the_database(path: str) -> None:
    code = f"import registry\nregistry.connect({path!r}).dataset('digits').resolve('train[:10%]')"
    assert loaded_by(code) == {"sqlalchemy"}


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["list"], "catalog.backend splits api.dataset model.split model.standing"),
        (["versions", "digits"], "catalog.backend splits"),
        (["log"], "api.dataset catalog.configs"),
        (["resolve", "digits", "train[:10%]"], "catalog.backend splits.explanation"),
    ],
)
def test_a_look_up_loads_no_module_of_other_commands(
    loaded_by_commands: dict[str, set[str]], arguments: list[str], unneeded: str
) -> None:
    names = HEAVY | OF_OTHER_COMMANDS | {f"registry.{name}" for name in unneeded.split()}
    assert names & loaded_by_commands[" ".join(arguments)] == {"sqlalchemy"}


def test_a_schema_is_read_and_printed_without_numpy() -> None:
    features = registry.features.FeaturesDict(dict(sorted(SCHEMA.items())))
    text = registry.features.features_to_json(features)
    labels = features.labels()
    code = (
        "from registry.features import features_from_json\n"
        f"features = features_from_json({text!r}).with_labels({labels!r})\n"
        f"assert repr(features) == {repr(features)!r}"
    )

    assert loaded_by(code) == set()


@pytest.mark.parametrize("line", ["show digits", "show digits --format json", "stats digits"])
def test_a_version_and_its_statistics_are_shown_without_numpy(
    loaded_by_commands: dict[str, set[str]], line: str
) -> None:
    assert HEAVY & loaded_by_commands[line] == {"sqlalchemy"}


def test_a_command_that_decodes_starts_no_threads_of_openblas(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command runs in a fork of an interpreter without NumPy. A value of the user is kept."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    read = ["read", "digits", "train[:1]"]
    cases = [(read, None, "1"), (["head", "digits"], None, "1"), (read, "7", "7")]
    cases.append((["verify", "digits", "--deep"], None, None))  # a command with an engine
    code = (
        f"{command(path, 'list')}\nseen = []\nclass Watch:\n    def find_spec(self, name, path, target=None):\n"
        "        if name == 'numpy': seen.append(os.environ.get('OPENBLAS_NUM_THREADS'))\n"
        f"sys.meta_path.insert(0, Watch())\nfor line, value, expected in {cases!r}:\n    if not os.fork():\n"
        "        if value: os.environ['OPENBLAS_NUM_THREADS'] = value\n"
        "        sys.stdout = io.StringIO()\n        assert run(line) == 0\n"
        "        assert os.environ.get('OPENBLAS_NUM_THREADS') == value  # for programs that it starts\n"
        "        assert seen == [expected], (line, seen)\n        os._exit(0)\n"
        "    assert os.wait()[1] == 0, line\n"
    )

    assert "numpy" not in loaded_by(code)


def test_work_that_does_not_ask_for_a_cluster_loads_no_ray(tmp_path: Path) -> None:
    path = str(tmp_path / "catalog.db")
    code = f"import os\nos.environ['REGISTRY_CATALOG'] = {path!r}\nfrom registry.cli.main import run\n"
    lines = (["build", "digits", "-j", "2"], ["verify", "digits", "--deep", "--engine", "local"])
    quietly = "".join(f"assert run({line!r}) == 0\n" for line in lines)
    code += f"import io, sys\nsys.stdout = sys.stderr = io.StringIO()\n{quietly}sys.stdout = sys.__stdout__"
    loaded = loaded_by(code)
    assert {"numpy", "sqlalchemy"} <= loaded
    assert "ray" not in loaded


ROWS = {
    "rows.csv": "id,price,name,when,is_new,code,size\n1,0.5,a,2026-01-31T12:00:00,true,007,NA\n"
    "2,3,b,2026-01-31,false,010,\n",
    "rows.jsonl": '{"id": 1, "price": 0.5, "is_new": true, "messages": [{"role": "user", "content": null}]}\n'
    '{"id": 2, "price": 3, "is_new": null, "messages": [{"role": "tool", "content": "b"}], "at": {"x": 1}}\n' * 600,
}


@pytest.mark.parametrize("name", list(ROWS))
def test_adding_a_file_to_a_new_catalog_loads_neither_pandas_nor_alembic(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(ROWS[name], encoding="utf-8")
    key = ["--key", "id"] if name == "rows.csv" else []
    code = command(str(tmp_path / "catalog.db"), "add", str(tmp_path / name), *key)

    assert loaded_by(code, {"alembic", "numpy.ma", "pandas", "pyarrow"}) == {"pyarrow"}


def test_every_public_name_is_there_and_no_other() -> None:
    assert all(getattr(registry, name) is not None for name in registry.__all__)
    assert set(registry.__all__) <= set(dir(registry))
    with pytest.raises(AttributeError, match="no attribute 'dataset'"):
        registry.dataset  # noqa: B018 (asking is the test)
