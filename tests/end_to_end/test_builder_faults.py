"""Faults that a builder's author can cause: each names file and line, on the command line and in Python."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import warm_python
from support.golden import check_error

import registry
from registry.building import list_builders, open_builder
from registry.cli.main import run as run_command
from registry.errors import BuilderNotFoundError, BuildError, RegistryError, WrongTypeError

HEAD = """import registry
from registry import BuilderConfig, DatasetBuilder
from registry.features import FeaturesDict, Scalar
"""

GOOD = """
class Good(DatasetBuilder):
    VERSION = "1.0.0"
    def features(self):
        return FeaturesDict({"number": Scalar("int64"), "square": Scalar("int64")})
    def splits(self):
        return {"train": self.examples()}
    def examples(self):
        for n in range(10):
            yield n, {"number": n, "square": n * n}
"""


GOLDEN = Path(__file__).with_name("golden")

# A change of the good builder: what is replaced, and by what.
FAULTS = {
    "a VERSION of two numbers": ('"1.0.0"', '"1.0"'),
    "no VERSION": ('VERSION = "1.0.0"', "pass"),
    "a VERSION that is a number": ('"1.0.0"', "1.2"),
    "a VERSION that is a tuple": ('"1.0.0"', "(1, 0, 3)"),
    "a missing method": ("def splits", "def make"),
    "a misspelt method": ("def features", "def feature"),
    "features that are a dict": (
        'FeaturesDict({"number": Scalar("int64"), "square": Scalar("int64")})',
        '{"number": Scalar("int64")}',
    ),
    "features that are None": ("return FeaturesDict", "FeaturesDict"),
    "an unknown dtype": ('"square": Scalar("int64")', '"square": Scalar("int65")'),
    "splits that are a list": ('{"train": self.examples()}', "[self.examples()]"),
    "no splits": ('{"train": self.examples()}', "{}"),
    "a reserved split name": ('"train"', '"all"'),
    "a split that is None": ("self.examples()}", "print(end='')}"),
    "a split that is a dict": ("self.examples()}", "dict(self.examples())}"),
    "one generator for two splits": (
        'return {"train": self.examples()}',
        'made = self.examples(); return {"train": made, "test": made}',
    ),
    "a function that needs an argument": ("self.examples()}", "lambda number: self.examples()}"),
    "a split that raises": ('return {"train"', 'return {1 / 0: 0, "train"'),
    "a generator that raises midway": ("yield n, {", "yield n, {1: 1 / (n - 3)} and {"),
    "a generator that leaves Python": (
        "yield n, {",
        "if n == 1: import sys; sys.exit('no data')\n            yield n, {",
    ),
    "a generator that raises GeneratorExit": (
        "yield n, {",
        "if n == 1: raise GeneratorExit('no data')\n            yield n, {",
    ),
    "an exception without text": (
        "for n in range(10):",
        "class Odd(Exception):\n            def __str__(self): 1 / 0\n        raise Odd\n        for n in []:",
    ),
    "a key that is used twice": ("yield n,", "yield n % 7,"),
    "one key forever": (
        "for n in range(10):\n            yield n,",
        "n = 0\n        while True:\n            yield n,",
    ),
    "a key of another type": ("yield n,", "yield float(n),"),
    "examples without keys": ("yield n, {", "yield {"),
    "no examples": ("range(10)", "range(0)"),
    "a missing feature": (', "square": n * n}', "}"),
    "another feature": ('"square": n * n}', '"square": n * n, "cube": n}'),
    "a value of another type": ('"square": n * n}', '"square": "4"}'),
    "an example that is None": ('{"number": n, "square": n * n}', "None"),
    "an __init__ with an argument": (
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    def __init__(self, path): super().__init__()',
    ),
    "an __init__ that forgets super": (
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    def __init__(self, **options): pass',
    ),
    "an __init__ that raises": (
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    def __init__(self, **options): open("/nowhere")',
    ),
    "configs that are names": ('VERSION = "1.0.0"', 'VERSION = "1.0.0"\n    BUILDER_CONFIGS = ["small"]'),
    "a config with the name of a version": (
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    BUILDER_CONFIGS = [BuilderConfig(name="2.0.0")]',
    ),
    "a config with an unknown field": (
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    BUILDER_CONFIGS = [BuilderConfig(nme="small")]',
    ),
    "a syntax error": ("for n in range(10):", "for n in range(10)"),
    "an import of a missing module": ("class Good", "import not_there\nclass Good"),
    "a module that leaves Python": ("class Good", "raise SystemExit(0)\nclass Good"),
    "another base class": ("(DatasetBuilder)", ""),
}

TFDS = '''
class Cats(DatasetBuilder):
    """Cats."""
    VERSION = "1.0.0"

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"name": tfds.features.Text()}))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples("train.csv"), "test": self._generate_examples("test.csv")}

    def _generate_examples(self, path):
        for line in open(path):
            yield line, {"name": line}
'''


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the author's modules, on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("REGISTRY_CATALOG", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.delenv("REGISTRY_DATA_DIR", raising=False)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("faulty_"):
            del sys.modules[name]


_numbers = iter(range(10**6))


def write(folder: Path, source: str) -> str:
    """Write a module with a name of its own, which no other test has imported."""
    name = f"faulty_{next(_numbers)}"
    (folder / f"{name}.py").write_text(source)
    importlib.invalidate_caches()
    return name


def command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(list(arguments))
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_an_author_names_file_and_line(name: str, modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = FAULTS[name]
    assert old in GOOD
    module = write(modules, HEAD + GOOD.replace(old, new, 1))
    path = modules / f"{module}.py"
    with registry.connect() as catalog, pytest.raises(RegistryError) as caught:
        catalog.build(f"{module}:Good")
    assert str(path) in caught.value.message
    # Python's own words differ between its versions.
    replacing = {re.escape(str(path)): "FILE", module: "MODULE", r"TypeError: .* \(": "TypeError: ... ("}
    check_error(GOLDEN / "builder_faults.txt", name, caught.value, replacing)

    sys.modules.pop(module, None)
    code, out, err = command("build", f"{module}:Good")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {caught.value.message}\n")
    assert "fault of the registry" not in err
    package = str(Path(registry.__file__).parent)
    assert f'File "{package}' not in err
    if isinstance(caught.value.__cause__, ZeroDivisionError):
        assert f'Traceback (most recent call last):\n  File "{path}", line ' in err
        assert "\nZeroDivisionError: division by zero\n" in err
        monkeypatch.setenv("REGISTRY_DEBUG", "1")
        assert f'File "{package}' in command("build", f"{module}:Good")[2]


def test_a_value_that_does_not_fit_names_feature_split_key_and_generator(modules: Path) -> None:
    module = write(modules, HEAD + GOOD.replace("n * n}", 'n * n if n < 6 else "x"}'))
    for processes in (1, 2):
        with registry.connect() as catalog, pytest.raises(RegistryError) as caught:
            catalog.build(f"{module}:Good", processes=processes)
        assert caught.value.message.startswith("split 'train', example with key 6: feature 'square': ")
        assert caught.value.message.endswith(f" ({modules}/{module}.py, line 11)")
        assert caught.value.details["feature"] == "square"


def test_a_faulty_class_does_not_affect_its_siblings(modules: Path) -> None:
    bad = GOOD.replace("class Good", "class {}")
    source = HEAD + GOOD
    for name, old, new in (
        ("Young", '"1.0.0"', '"1.0"'),
        ("Empty", "def splits", "def nothing"),
        ("Named", "class Named(DatasetBuilder):", 'class Named(DatasetBuilder):\n    name = "No Name"'),
    ):
        source += bad.replace("{}", name, 1).replace(old, new)
    module = write(modules, source)
    assert command("build", f"{module}:Good")[0] == 0
    assert command("list")[0] == 0
    code, _, err = command("build", f"{module}:Goood")
    assert code == 3
    assert "Did you mean 'Good'? There are: Good." in err
    for problem in ("Young.VERSION = '1.0'", "Empty does not define splits()", "Named.name = 'No Name'"):
        assert f"\nCannot be used: {problem}" in err
    for name in ("Young", "Empty", "Named"):
        code, _, err = command("build", f"{module}:{name}")
        assert (code, "fault of the registry" in err, f"{module}.py, line " in err) == (1, False, True)


def test_a_faulty_entry_point_does_not_affect_its_siblings(modules: Path) -> None:
    good, broken, young = (
        write(modules, HEAD + source) for source in (GOOD, "1 / 0\n", GOOD.replace('"1.0.0"', '"1.0"'))
    )
    info = modules / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[registry.builders]\ngood = {good}:Good\nbroken = {broken}:Any\nyoung = {young}:Good\n"
        f"[registry.commands]\nbroken = {broken}:command\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(modules), "COLUMNS": "200"}

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "registry", *arguments]
        return warm_python.run(call, env=environment, capture_output=True, text=True, check=False, timeout=600)

    assert {"good", "broken", "young"} <= set(list_builders())
    assert ran("build", "good").returncode == 0
    for arguments in (["list"], ["--help"], ["build", "--help"], ["import", "--help"], ["export", "--help"]):
        assert ran(*arguments).returncode == 0
    failed = ran("build", "broken")
    assert failed.returncode == 1
    assert f"ZeroDivisionError: division by zero ({modules}/{broken}.py, line 4)\n" in failed.stderr
    assert f'  File "{modules}/{broken}.py", line 4, in <module>\n    1 / 0\n' in failed.stderr
    failed = ran("build", "young")
    assert failed.returncode == 1
    assert failed.stderr == (
        f"error: Good.VERSION = '1.0': invalid version '1.0' ({modules}/{young}.py, line 6)\n"
        'hint: Write VERSION = "1.0.0".\n'
    )


@pytest.mark.parametrize(
    ("head", "base", "numbers"),
    [
        (HEAD, "DatasetBuilder", [9, 12, 15]),
        ("import tensorflow_datasets as tfds\n", "tfds.core.GeneratorBasedBuilder", [3, 7, 10, 13]),
        (
            "class tfds:\n    class core:\n        class GeneratorBasedBuilder: ...\n",
            "tfds.core.GeneratorBasedBuilder",
            [5, 9, 12, 15],
        ),
    ],
    ids=["our base class", "TFDS is not installed", "TFDS is installed"],
)
def test_a_tfds_builder_gets_the_lines_to_change(
    head: str, base: str, numbers: list[int], modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)  # type: ignore[arg-type]  # how Python hides a module
    module = write(modules, head + TFDS.replace("DatasetBuilder", base))
    texts = [
        "class Cats(registry.DatasetBuilder):",
        "def features(self): return FeaturesDict({...})  # the features of _info",
        'def splits(self): return {"train": self._generate_examples(...)}  # for each split',
        "def _generate_examples(...):  # as it is, if it yields key, example",
    ]
    lines = [f"line {number}: {text}" for number, text in zip(numbers, texts[-len(numbers) :], strict=True)]
    with registry.connect() as catalog, pytest.raises(BuildError) as caught:
        catalog.build(f"{module}:Cats")
    assert caught.value.message.startswith(
        "Cats is written for TFDS: expected a DatasetBuilder with features() and splits(), found _info() and "
        f"_split_generators() ({modules}/{module}.py, line "
    )
    hint = "Change these lines, and import the features from registry.features:\n"
    assert caught.value.hint == hint + "\n".join(f"  {line}" for line in lines)
    code, _, err = command("build", f"{module}:Cats")
    assert code == 1
    assert err.endswith("".join(f"\n  {line}" for line in lines) + "\n")


def test_a_class_or_an_instance_is_checked_like_code(modules: Path) -> None:
    module = importlib.import_module(
        write(modules, HEAD + GOOD + "    def __init__(self, path):\n        self.path = path\n")
    )
    with registry.connect() as catalog:
        with pytest.raises(BuildError, match="must accept config= and version="):
            catalog.build(module.Good)
        with pytest.raises(BuildError, match=r"did not call super\(\).__init__"):
            catalog.build(module.Good("a path"))
        with pytest.raises(WrongTypeError):
            catalog.build(5)  # type: ignore[arg-type]  # the mistake under test
        with pytest.raises(WrongTypeError, match=r"^expected a builder: .* found int(?m:$)"):
            open_builder(5)  # type: ignore[arg-type]  # the mistake under test
        with pytest.raises(BuildError, match=r"expected a subclass of registry.DatasetBuilder, found the class int"):
            open_builder(int)  # type: ignore[arg-type]  # the mistake under test
        tfds = importlib.import_module(write(modules, TFDS.replace("(DatasetBuilder)", "")))
        with pytest.raises(BuildError, match=r"^Cats is written for TFDS"):
            catalog.build(tfds.Cats)
        with pytest.raises(BuilderNotFoundError):
            catalog.build("no_such_builder")


def test_a_builder_that_cannot_be_pickled_is_built_by_worker_processes(modules: Path) -> None:
    source = HEAD + GOOD + (
        "    def __init__(self, **options):\n"
        "        super().__init__(**options)\n"
        "        self.lock = __import__('threading').Lock()\n"
    )  # fmt: skip
    module = write(modules, source)
    with registry.connect() as catalog:
        built: Any = catalog.build(f"{module}:Good", processes=2)
    assert built.version.num_examples == 10


def test_keys_that_repeat_forever_fail_when_memory_is_full(modules: Path) -> None:
    from registry.building import build_dataset, load_builder
    from registry.errors import DuplicateKeyError
    from registry.storage import open_store

    module = write(
        modules, HEAD + GOOD.replace("for n in range(10):", "for n in __import__('itertools').cycle(range(9)):")
    )
    with pytest.raises(DuplicateKeyError, match=r"^split 'train': the key \d is used twice \("):
        build_dataset(load_builder(f"{module}:Good")(), open_store(modules / "data"), budget_bytes=10_000)
