"""Which files of code the runs of a build depend on: those that the builder's code may import, and no others."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from registry.building import builder_code
from registry.building.builder_code import CodeReader
from registry.building.run_folder import RunFolder
from registry.storage import open_store

BUILDER = """
from registry.building import DatasetBuilder
from registry.features import FeaturesDict

{imports}

class Prices({base}):
    VERSION = "1.0.0"

    def features(self):
        return FeaturesDict({{"price": "int64"}})

    def splits(self):
        return {{}}

    def read(self, one):
        {inside}
        yield one, {{}}
"""


class Folder:
    """A folder of code that this process can import."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.installed = root / "site-packages"
        self.installed.mkdir()

    def write(self, name: str, text: str = "value = 1\n") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def builder(self, name: str, *, imports: str = "", base: str = "DatasetBuilder", inside: str = "pass") -> None:
        self.write(name, BUILDER.format(imports=imports, base=base, inside=inside))

    def keys(self, module: str = "prices", function: Any = None) -> tuple[str, str | None]:
        """The keys of ``Prices`` in a module, and of a function or its method ``read``."""
        builder = import_module(module).Prices()
        runs = RunFolder(open_store(self.root), "prices/1.0.0", builder, builder.features())
        return runs.key, runs.of_split("train", function or builder.read).key


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    before = set(sys.modules)
    found = Folder(tmp_path)
    monkeypatch.syspath_prepend(found.installed)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield found
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None) or sys.modules[name].__path__):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("imports", "inside", "helper"),
    [
        ("import price_helpers", "pass", "price_helpers.py"),
        ("import os, price_helpers as h", "pass", "price_helpers.py"),
        ("from price_helpers import (  # a (note)\n    value,\n)", "pass", "price_helpers.py"),
        ("", "import price_helpers", "price_helpers.py"),
        ("", "from price_helpers import value", "price_helpers.py"),
        ("import price_tools", "pass", "price_helpers.py"),
        ("from price_space import helpers", "pass", "price_space/helpers.py"),
        ("import price_space.helpers", "pass", "price_space/helpers.py"),
        ("from price_package.inner import helpers", "pass", "price_package/inner/helpers.py"),
        ("import price_package", "pass", "price_package/inner/helpers.py"),
    ],
)
def test_what_the_code_imports_is_part_of_the_keys(folder: Folder, imports: str, inside: str, helper: str) -> None:
    folder.builder("prices.py", imports=imports, inside=inside)
    folder.write("price_tools.py", "import price_helpers")
    folder.write("price_helpers.py")
    folder.write("price_space/helpers.py")
    folder.write("price_package/__init__.py", "")
    folder.write("price_package/inner/__init__.py", "")
    folder.write("price_package/inner/helpers.py")
    before = folder.keys()
    assert None not in before
    folder.write("beside.py")
    folder.write("price_space/beside.py")
    assert folder.keys() == before, "no code of the builder has changed"
    folder.write(helper, "value = 2\n")
    assert all(new != old for new, old in zip(folder.keys(), before, strict=True))


@pytest.mark.parametrize(
    ("module", "imports", "helper"),
    [
        ("price_space.prices", "from . import helpers", "price_space/helpers.py"),
        ("price_space.prices", "from .helpers import value", "price_space/helpers.py"),
        ("price_space.inner.prices", "from .. import helpers", "price_space/helpers.py"),
        ("price_package.prices", "", "price_package/inner/helpers.py"),
        ("price_package", "", "price_package/inner/helpers.py"),
    ],
)
def test_the_package_of_a_builder_is_part_of_its_keys(folder: Folder, module: str, imports: str, helper: str) -> None:
    name = "price_package/__init__" if module == "price_package" else module.replace(".", "/")
    folder.write("price_package/__init__.py", "")
    folder.write(helper)
    folder.builder(f"{name}.py", imports=imports)
    before = folder.keys(module)
    assert folder.keys(module) == before
    folder.write(helper, "value = 2\n")
    assert all(new != old for new, old in zip(folder.keys(module), before, strict=True))


@pytest.mark.parametrize("place", ["", "site-packages/"])
def test_a_base_class_of_another_package_is_part_of_the_keys(folder: Folder, place: str) -> None:
    folder.write(f"{place}price_bases/__init__.py", "")
    folder.write(f"{place}price_bases/values.py")
    folder.builder(f"{place}price_bases/bases.py")
    # No import statement: the base class is found in another way.
    folder.builder("prices.py", base="__import__('price_bases.bases').bases.Prices")
    before = folder.keys()
    folder.write(f"{place}price_bases/values.py", "value = 2\n")
    assert all(new != old for new, old in zip(folder.keys(), before, strict=True))


def test_functions_and_classes_in_arguments_are_part_of_the_key(folder: Folder) -> None:
    folder.builder("prices.py")
    folder.write("price_helpers.py", "def parse(text): return 1\nclass Parser:\n    pass\n")
    folder.write("price_readers.py", "def read(one, parse): yield one, parse(one)\n")
    helpers, read = import_module("price_helpers"), import_module("price_readers").read
    functions = [partial(read, parse=helpers.parse), partial(read, parse=[helpers.Parser()])]
    before = [folder.keys(function=one)[1] for one in functions]
    assert [folder.keys(function=one)[1] for one in functions] == before
    assert None not in before
    folder.write("price_helpers.py", "def parse(text): return 2\nclass Parser:\n    pass\n")
    assert all(folder.keys(function=one)[1] != old for one, old in zip(functions, before, strict=True))


def test_an_installed_package_counts_by_its_version(folder: Folder) -> None:
    folder.write("site-packages/price_lib/__init__.py", "")
    folder.write("site-packages/price_lib/inner.py")
    facts = "Metadata-Version: 2.1\nName: price-library\nVersion: {}\n"
    folder.write("site-packages/price_library-1.0.dist-info/METADATA", facts.format("1.0"))
    folder.write("site-packages/price_library-1.0.dist-info/top_level.txt", "price_lib\n")
    folder.builder("prices.py", imports="from price_lib.inner import value")
    before = folder.keys()
    folder.write("site-packages/price_lib/inner.py", "value = 2\n")
    assert folder.keys() == before
    folder.write("site-packages/price_library-1.0.dist-info/METADATA", facts.format("1.1"))
    assert all(new != old for new, old in zip(folder.keys(), before, strict=True))


@pytest.mark.parametrize("package", ["numpy", "pillow", "python", "zlib"])
def test_what_encodes_records_is_part_of_the_keys(
    folder: Folder, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.builder("prices.py")
    before = folder.keys()
    if package == "python":
        monkeypatch.setattr(builder_code.platform, "python_version", lambda: "3.99.0")
    elif package == "zlib":
        monkeypatch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "9.9")
    else:
        version = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: "99.0" if name == package else version(name))
    assert all(new != old for new, old in zip(folder.keys(), before, strict=True))


def test_code_is_bounded_and_leaves_out_environments_in_the_folder(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder_code, "_MOST_SOURCES", 5)
    for number in range(9):
        folder.write(f"price_package/part{number}.py")
    folder.write("price_package/.venv/lib.py")
    folder.write("price_package/site-packages/lib.py")
    folder.write("price_package/__init__.py", "")
    folder.builder("price_package/builders.py")
    found = CodeReader().digests(import_module("price_package.builders").Prices)
    assert found is not None
    assert sorted(found) == [f"price_package.{name}" for name in ("__init__", "builders", "part0", "part1", "part2")]


def test_a_class_without_a_file_has_no_digests(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.builder("prices.py", base="type('Typed', (DatasetBuilder,), {'__module__': '__main__'})")
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # that of an interpreter
    assert CodeReader().digests(import_module("prices").Prices) is None
