"""Faults that a builder's author can cause: each names file and line, on the command line and in Python."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import warm_python

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


class Fault(NamedTuple):
    """A change of the good builder and the error that it causes; ``{file}`` is the author's file."""

    old: str
    new: str
    message: str
    hint: str | None = None


TWO_METHODS = 'def splits(self):\n        return {"train": self.examples()}\n'

FAULTS = {
    "a VERSION of two numbers": Fault(
        '"1.0.0"', '"1.0"', "Good.VERSION = '1.0': invalid version '1.0' ({file}, line 6)", 'Write VERSION = "1.0.0".'
    ),
    "no VERSION": Fault(
        'VERSION = "1.0.0"',
        "pass",
        "Good.VERSION = None: a builder needs a version ({file}, line 5)",
        'Add to the class: VERSION = "1.0.0"',
    ),
    "a VERSION that is a number": Fault(
        '"1.0.0"',
        "1.2",
        "Good.VERSION = 1.2: expected text such as '1.0.0', found float ({file}, line 6)",
        'Write VERSION = "1.2.0".',
    ),
    "a VERSION that is a tuple": Fault(
        '"1.0.0"',
        "(1, 0, 3)",
        "Good.VERSION = (1, 0, 3): expected text such as '1.0.0', found tuple ({file}, line 6)",
        'Write VERSION = "1.0.3".',
    ),
    "a missing method": Fault(
        "def splits",
        "def make",
        "Good does not define splits() ({file}, line 5)",
        'Add to the class: def splits(self): return {{"train": [("key", {{"number": 1}})]}}',
    ),
    "a misspelt method": Fault(
        "def features",
        "def feature",
        "Good does not define features() ({file}, line 5)",
        "Rename Good.feature to features.",
    ),
    "features that are a dict": Fault(
        'FeaturesDict({"number": Scalar("int64"), "square": Scalar("int64")})',
        '{"number": Scalar("int64")}',
        "Good.features() must return a FeaturesDict, found a dict ({file}, line 7)",
        "Write return FeaturesDict({{...}}) with this dict: from registry.features import FeaturesDict",
    ),
    "features that are None": Fault(
        "return FeaturesDict",
        "FeaturesDict",
        "Good.features() must return a FeaturesDict, found None ({file}, line 7)",
        'Does it end without return? Write return FeaturesDict({{"name": feature, ...}}).',
    ),
    "an unknown dtype": Fault(
        '"square": Scalar("int64")',
        '"square": Scalar("int65")',
        "Good.features() failed: FeatureError: ",
    ),
    "splits that are a list": Fault(
        '{"train": self.examples()}',
        "[self.examples()]",
        "Good.splits() must return a dict with one split or more, found a list ({file}, line 9)",
    ),
    "no splits": Fault(
        '{"train": self.examples()}',
        "{}",
        "Good.splits() must return a dict with one split or more, found an empty dict ({file}, line 9)",
    ),
    "a reserved split name": Fault('"train"', '"all"', "Good.splits(): invalid split name 'all' ({file}, line 9)"),
    "a split that is None": Fault(
        "self.examples()}",
        "print(end='')}",
        "Good.splits()['train']: expected pairs (key, example), found None ({file}, line 9)",
        "Does the method yield? Write yield key, example.",
    ),
    "a split that is a dict": Fault(
        "self.examples()}",
        "dict(self.examples())}",
        "Good.splits()['train']: expected pairs (key, example), found a dict ({file}, line 9)",
        "Pass its items: they are pairs (key, example). Write examples.items().",
    ),
    "one generator for two splits": Fault(
        'return {"train": self.examples()}',
        'made = self.examples(); return {"train": made, "test": made}',
        "Good.splits()['test']: expected pairs (key, example), found the generator of split 'train', which can only be "
        "run once ({file}, line 9)",
        "Call the generator function once for each split.",
    ),
    "a function that needs an argument": Fault(
        "self.examples()}",
        "lambda number: self.examples()}",
        "split 'train': the generator failed: TypeError: ",
    ),
    "a split that raises": Fault(
        'return {"train"',
        'return {1 / 0: 0, "train"',
        "Good.splits() failed: ZeroDivisionError: division by zero ({file}, line 10)",
    ),
    "a generator that raises midway": Fault(
        "yield n, {",
        "yield n, {1: 1 / (n - 3)} and {",
        "split 'train': the generator failed after 3 examples, the last with key 2: ZeroDivisionError: division by "
        "zero ({file}, line 13)",
    ),
    "a generator that leaves Python": Fault(
        "yield n, {",
        "if n == 1: import sys; sys.exit('no data')\n            yield n, {",
        "split 'train': the generator failed after 1 example, the last with key 0: it called sys.exit(no data) "
        "({file}, line 13)",
    ),
    "an exception without text": Fault(
        "for n in range(10):",
        "class Odd(Exception):\n            def __str__(self): 1 / 0\n        raise Odd\n        for n in []:",
        "split 'train': the generator failed: Odd: its message cannot be shown ({file}, line 14)",
    ),
    "a key that is used twice": Fault(
        "yield n,", "yield n % 7,", "split 'train': the key 0 is used twice ({file}, line 11)"
    ),
    "one key forever": Fault(
        "for n in range(10):\n            yield n,",
        "n = 0\n        while True:\n            yield n,",
        "split 'train': the key 0 is used twice, by examples 0 and 1 ({file}, line 11)",
    ),
    "a key of another type": Fault(
        "yield n,",
        "yield float(n),",
        "split 'train', example 0: invalid key 0.0: expected text, a whole number or bytes, found float "
        "({file}, line 11)",
        "Write yield key, example. The key is unique in its split, e.g. a file name or a row number.",
    ),
    "examples without keys": Fault(
        "yield n, {",
        "yield {",
        "split 'train', example 0: expected a pair (key, example), found a dict ({file}, line 11)",
        "Write yield key, example. The key is unique in its split, e.g. a file name or a row number.",
    ),
    "no examples": Fault(
        "range(10)",
        "range(0)",
        "split 'train' of good:1.0.0 has no examples ({file}, line 11)",
    ),
    "a missing feature": Fault(', "square": n * n}', "}", "split 'train', example with key 0: "),
    "another feature": Fault('"square": n * n}', '"square": n * n, "cube": n}', "split 'train', example with key 0: "),
    "a value of another type": Fault('"square": n * n}', '"square": "4"}', "split 'train', example with key 0: "),
    "an example that is None": Fault('{"number": n, "square": n * n}', "None", "split 'train', example with key 0: "),
    "an __init__ with an argument": Fault(
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    def __init__(self, path): super().__init__()',
        "Good.__init__ must accept config= and version=: missing a required argument: 'path' ({file}, line 7)",
        "Write def __init__(self, *, config=None, version=None): super().__init__(config=config, version=version)\n"
        "Put other settings into the fields of a BuilderConfig.",
    ),
    "an __init__ that forgets super": Fault(
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    def __init__(self, **options): pass',
        "Good.__init__ did not call super().__init__ ({file}, line 7)",
        "Add the line: super().__init__(config=config, version=version)",
    ),
    "an __init__ that raises": Fault(
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    def __init__(self, **options): open("/nowhere")',
        "Good.__init__ failed: FileNotFoundError: [Errno 2] No such file or directory: '/nowhere' ({file}, line 7)",
    ),
    "configs that are names": Fault(
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    BUILDER_CONFIGS = ["small"]',
        "Good.BUILDER_CONFIGS = 'small': expected a list of BuilderConfig ({file}, line 7)",
    ),
    "a config with the name of a version": Fault(
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    BUILDER_CONFIGS = [BuilderConfig(name="2.0.0")]',
        "the builder {module}:Good cannot be loaded: UsageError: BuilderConfig(name='2.0.0').name = '2.0.0': a config "
        "name must not look like a version ({file}, line 7)",
    ),
    "a config with an unknown field": Fault(
        'VERSION = "1.0.0"',
        'VERSION = "1.0.0"\n    BUILDER_CONFIGS = [BuilderConfig(nme="small")]',
        "the builder {module}:Good cannot be loaded: TypeError: ",
    ),
    "a syntax error": Fault(
        "for n in range(10):",
        "for n in range(10)",
        "the builder {module}:Good cannot be loaded: SyntaxError: expected ':' ({file}, line 12)",
    ),
    "an import of a missing module": Fault(
        "class Good",
        "import not_there\nclass Good",
        "the builder {module}:Good cannot be loaded: ModuleNotFoundError: No module named 'not_there' ({file}, line 5)",
        "Install the package that provides not_there, or remove the import. Other builders are not affected.",
    ),
    "a module that leaves Python": Fault(
        "class Good",
        "raise SystemExit(0)\nclass Good",
        "the builder {module}:Good cannot be loaded: it called sys.exit(0) ({file}, line 5)",
    ),
    "another base class": Fault(
        "(DatasetBuilder)",
        "",
        "the builder {module}:Good: expected a subclass of registry.DatasetBuilder, found the class Good "
        "({file}, line 5)",
        "Define it as: class Good(registry.DatasetBuilder):",
    ),
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
LISTED = """
    def _split_generators(self, dl_manager):
        return [tfds.core.SplitGenerator(name=tfds.Split.TRAIN, gen_kwargs={"path": "train.csv"})]
"""


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
def test_a_fault_of_an_author_names_file_and_line(name: str, modules: Path) -> None:
    fault = FAULTS[name]
    assert fault.old in GOOD
    module = write(modules, HEAD + GOOD.replace(fault.old, fault.new, 1))
    path = modules / f"{module}.py"
    message = fault.message.format(file=path, module=module)
    with registry.connect() as catalog, pytest.raises(RegistryError) as caught:
        catalog.build(f"{module}:Good")
    if name in ("a missing feature", "another feature", "a value of another type", "an example that is None"):
        assert f"({path}, line 11)" in caught.value.message
    if "{file}" in fault.message:
        assert caught.value.message == message
    else:
        assert caught.value.message.startswith(message)
        assert str(path) in caught.value.message
    if fault.hint is not None:
        assert caught.value.hint == fault.hint.format()

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
    ("head", "source", "lines"),
    [
        (
            HEAD,
            TFDS,
            [
                "line 9: def features(self): return FeaturesDict({'name': Text()})",
                "line 12: def splits(self): return {'train': self._generate_examples('train.csv'), "
                "'test': self._generate_examples('test.csv')}",
                "line 15: def _generate_examples(self, path):  # as it is: yields key, example",
            ],
        ),
        (
            "import tensorflow_datasets as tfds\n",
            TFDS.replace("DatasetBuilder", "tfds.core.GeneratorBasedBuilder").replace("yield line, ", "yield "),
            [
                "line 3: class Cats(registry.DatasetBuilder):",
                "line 7: def features(self): return FeaturesDict({'name': Text()})",
                "line 10: def splits(self): return {'train': self._generate_examples('train.csv'), "
                "'test': self._generate_examples('test.csv')}",
                "line 15: yield key, {'name': line}",
            ],
        ),
        (
            "class tfds:\n    class core:\n        class GeneratorBasedBuilder: ...\n",
            TFDS.replace("DatasetBuilder", "tfds.core.GeneratorBasedBuilder").replace(
                TFDS[TFDS.index("    def _split") : TFDS.index("    def _generate")], LISTED.lstrip("\n")
            ),
            [
                "line 5: class Cats(registry.DatasetBuilder):",
                "line 9: def features(self): return FeaturesDict({'name': Text()})",
                "line 12: def splits(self): return {'train': self._generate_examples(path='train.csv')}",
                "line 14: def _generate_examples(self, path):  # as it is: yields key, example",
            ],
        ),
    ],
    ids=["our base class", "TFDS is not installed", "TFDS is installed"],
)
def test_a_tfds_builder_gets_the_lines_to_change(
    head: str, source: str, lines: list[str], modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)  # type: ignore[arg-type]  # how Python hides a module
    module = write(modules, head + source)
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
