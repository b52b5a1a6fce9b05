"""Builders of installed packages: listed without importing, loaded one at a time, each fault its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from registry.building import DatasetBuilder, find_builder, list_builders, load_builder, open_builder
from registry.errors import (
    BuilderNotFoundError,
    BuildError,
    ConfigNotFoundError,
    ReferenceSyntaxError,
    RegistryError,
    UsageError,
    VersionNotFoundError,
)

GOOD = """
from registry.building import DatasetBuilder
class Squares(DatasetBuilder):
    VERSION = "1.0.0"
    def features(self): ...
    def splits(self): ...
"""


VARIANTS = """
from registry.building import BuilderConfig, DatasetBuilder
class Letters(DatasetBuilder):
    VERSION = "1.0.0"
    SUPPORTED_VERSIONS = ["1.1.0", "2.0.0"]
    BUILDER_CONFIGS = [BuilderConfig(name="small"), BuilderConfig(name="large")]
    def features(self): ...
    def splits(self): ...
"""


@pytest.fixture(autouse=True)
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages on sys.path as an installer leaves them, with sound and broken entry points."""
    (tmp_path / "third_good.py").write_text(GOOD)
    (tmp_path / "third_variants.py").write_text(VARIANTS)
    (tmp_path / "third_broken.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "third_raises.py").write_text("raise RuntimeError('at import')\n")
    install(
        tmp_path,
        "third-good",
        {
            "squares": "third_good:Squares",
            "cubes": "third_good:Squares",
            "number": "third_good:__name__",
            "gone": "third_good:Gone",
            "broken": "third_broken:Anything",
            "raises": "third_raises:Anything",
            "twice": "third_good:Squares",
        },
    )
    install(tmp_path, "third-other", {"twice": "third_broken:Anything"})
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("third_good", "third_variants", "third_broken", "third_raises"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def install(folder: Path, package: str, points: dict[str, str]) -> None:
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[registry.builders]", *lines, ""]))


def test_listing_imports_nothing() -> None:
    names = list_builders()
    assert {"squares", "broken", "raises", "twice"} <= set(names)
    assert list(names) == sorted(set(names))
    assert "third_good" not in sys.modules


def test_a_builder_is_found_by_its_name() -> None:
    builder = find_builder("squares")
    assert issubclass(builder, DatasetBuilder)
    assert str(builder().reference) == "squares:1.0.0"


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(BuilderNotFoundError) as caught:
        find_builder("square")
    assert str(caught.value) == "no builder 'square' in the installed packages"
    assert str(caught.value.hint).startswith("Did you mean 'squares'? There are: ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "broken",
            "the builder 'broken' of third-good 1.2 (third_broken:Anything) cannot be loaded: "
            "ModuleNotFoundError: No module named 'a_module_that_is_not_there' ({folder}/third_broken.py, line 1)",
        ),
        (
            "raises",
            "the builder 'raises' of third-good 1.2 (third_raises:Anything) cannot be loaded: "
            "RuntimeError: at import ({folder}/third_raises.py, line 1)",
        ),
        (
            "gone",
            "the builder 'gone' of third-good 1.2 (third_good:Gone) cannot be loaded: "
            "AttributeError: module 'third_good' has no attribute 'Gone'",
        ),
        (
            "number",
            "the builder 'number' of third-good 1.2 (third_good:__name__): expected a subclass of "
            "registry.DatasetBuilder, found an object of type str",
        ),
        (
            "cubes",
            "the builder 'cubes' of third-good 1.2 (third_good:Squares): expected the name 'cubes' of its entry "
            "point, found 'squares'",
        ),
        (
            "twice",
            "the builder 'twice' is offered by 2 packages: third-good 1.2 (third_good:Squares), "
            "third-other 1.2 (third_broken:Anything)",
        ),
    ],
)
def test_a_broken_package_is_named_and_does_not_affect_others(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        find_builder(name)
    assert str(caught.value) == message.format(folder=tmp_path)
    assert find_builder("squares").name == "squares"


def test_code_without_an_entry_point_is_named_explicitly() -> None:
    assert load_builder("third_good:Squares").name == "squares"


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (
            "third_good",
            "no builder 'third_good': expected package.module:Class",
            "Write e.g. my_package.squares:Squares",
        ),
        (
            "../third_good.py:Squares",
            "no builder '../third_good.py:Squares': expected package.module:Class",
            "Write e.g. my_package.squares:Squares",
        ),
        (
            "third_nowhere.code:Squares",
            "no builder 'third_nowhere.code:Squares': there is no module 'third_nowhere'",
            "Install the package that contains it, or add its folder to PYTHONPATH.",
        ),
        (
            "third_good:Square",
            "no builder 'Square' in the module third_good",
            "Did you mean 'Squares'? There are: Squares.",
        ),
    ],
)
def test_code_that_is_not_there_is_not_found(code: str, message: str, hint: str) -> None:
    with pytest.raises(BuilderNotFoundError) as caught:
        load_builder(code)
    assert str(caught.value) == message
    assert caught.value.hint == hint


def test_code_that_cannot_be_imported_is_another_error() -> None:
    with pytest.raises(BuildError, match=r"^the builder third_broken:Squares cannot be loaded: ModuleNotFoundError"):
        load_builder("third_broken:Squares")
    with pytest.raises(BuildError, match=r"^the builder third_raises:Squares cannot be loaded: RuntimeError"):
        load_builder("third_raises:Squares")
    with pytest.raises(BuildError, match="expected a subclass of"):
        load_builder("third_good:__name__")


@pytest.mark.parametrize("wanted", ["squares", "squares:1.*", "third_good:Squares"])
def test_what_to_build_is_named_by_reference_or_by_code(wanted: str) -> None:
    builder = open_builder(wanted)
    assert str(builder.reference) == "squares:1.0.0"
    assert open_builder(type(builder)).reference == builder.reference
    assert open_builder(builder) is builder


def test_a_module_in_the_current_folder_is_named_with_a_line_to_paste(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])  # as a console script has it
    Path("greetings_here.py").touch()
    with pytest.raises(BuilderNotFoundError) as caught:
        load_builder("greetings_here:Greetings")
    assert caught.value.hint == (
        "The module is in this folder. Run: PYTHONPATH=. registry build greetings_here:Greetings"
    )


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        ("squares:2.0.0", VersionNotFoundError, "the builder of squares cannot build version 2.0.0"),
        ("squares:latest", ReferenceSyntaxError, "invalid version request 'latest'"),
        (
            "squares@paper",
            UsageError,
            "squares@paper is an alias of a published version; a build takes a version number",
        ),
        ("third_good:Gone", BuilderNotFoundError, "no builder 'Gone' in the module third_good"),
        (
            "nowhere.at_all:thing",
            BuilderNotFoundError,
            "no builder 'nowhere.at_all:thing': there is no module 'nowhere'",
        ),
        (
            "third_variants:Letters/smal",
            ConfigNotFoundError,
            "no config 'smal' in the builder of letters",
        ),
        ("third_variants:Letters:3.*", VersionNotFoundError, "the builder of letters/small cannot build version 3.*.*"),
        ("third_good:Squares/small", ConfigNotFoundError, "no config 'small' in the builder third_good:Squares"),
        (
            "third_good:Squares:latest",
            UsageError,
            "the builder third_good:Squares cannot build 'latest', which is not a version",
        ),
        ("third_good:Squares@paper", UsageError, "the builder third_good:Squares cannot be followed by '@paper'"),
        ("third_good:Squares/", UsageError, "the builder third_good:Squares cannot be followed by '/'"),
        ("third_good:Squares:", UsageError, "the builder third_good:Squares cannot be followed by ':'"),
        ("third_good:Squares/a/b", UsageError, "the builder third_good:Squares cannot be followed by '/a/b'"),
        ("third_good:Squares:1.0.0/a", UsageError, "the builder third_good:Squares cannot be followed by ':1.0.0/a'"),
        ("third_good:Gone/small:1.*", BuilderNotFoundError, "no builder 'Gone' in the module third_good"),
    ],
)
def test_what_cannot_be_built_says_why(wanted: str, error: type[RegistryError], message: str) -> None:
    with pytest.raises(error) as caught:
        open_builder(wanted)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("wanted", "built"),
    [
        ("third_variants:Letters", "letters/small:1.0.0"),
        ("third_variants:Letters/large", "letters/large:1.0.0"),
        ("third_variants:Letters:1.*", "letters/small:1.1.0"),
        ("third_variants:Letters/large:2.0.0", "letters/large:2.0.0"),
        ("third_variants:Letters/large:>=1.0,<2", "letters/large:1.1.0"),
    ],
)
def test_a_config_and_a_version_may_follow_the_class(wanted: str, built: str) -> None:
    assert str(open_builder(wanted).reference) == built


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("third_variants:Letters/smal", "Did you mean 'small'? There are: small, large."),
        ("third_variants:Letters/small:3.*", "This code can build: 1.0.0, 1.1.0, 2.0.0."),
        ("third_good:Squares/small", "It has no configs. Write third_good:Squares[:version]"),
        (
            "third_good:Squares:latest",
            "Write a version or a wildcard, e.g. third_good:Squares:1.0.0 or third_good:Squares:1.*. For the canonical "
            "version, write third_good:Squares.",
        ),
        (
            "third_good:Squares@paper",
            "Only a config and a version can follow the class: third_good:Squares[/config][:version]",
        ),
    ],
)
def test_a_mistake_after_the_class_lists_what_may_follow_it(wanted: str, hint: str) -> None:
    with pytest.raises(RegistryError) as caught:
        open_builder(wanted)
    assert caught.value.hint == hint
