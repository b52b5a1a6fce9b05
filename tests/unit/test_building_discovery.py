"""Builders of installed packages: listed without importing, loaded one at a time, each fault its own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
from support.golden import check_errors

from registry.building import DatasetBuilder, find_builder, list_builders, load_builder, open_builder
from registry.errors import BuilderNotFoundError, BuildError

GOLDEN = Path(__file__).with_name("golden")

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


def test_a_broken_package_is_named_and_does_not_affect_others(tmp_path: Path) -> None:
    check_errors(
        GOLDEN / "building_discovery" / "a_broken_package_is_named_and_does_not_affect_others.txt",
        (partial(find_builder, name) for name in ["broken", "raises", "gone", "number", "cubes", "twice"]),
        folder=tmp_path,
    )
    assert find_builder("squares").name == "squares"


def test_code_without_an_entry_point_is_named_explicitly() -> None:
    assert load_builder("third_good:Squares").name == "squares"


def test_code_that_is_not_there_is_not_found() -> None:
    check_errors(
        GOLDEN / "building_discovery" / "code_that_is_not_there_is_not_found.txt",
        (
            partial(load_builder, row)
            for row in ["third_good", "../third_good.py:Squares", "third_nowhere.code:Squares", "third_good:Square"]
        ),
    )


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


def test_a_class_may_have_any_name_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "größen.py").write_text(GOOD.replace("Squares", "Größe") + '    name = "size"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "größen", raising=False)
    assert str(open_builder("größen:Größe").reference) == "size:1.0.0"


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


def test_what_cannot_be_built_says_why() -> None:
    check_errors(
        GOLDEN / "building_discovery" / "what_cannot_be_built_says_why.txt",
        (
            partial(open_builder, row)
            for row in [
                "squares:2.0.0",
                "squares:latest",
                "squares@paper",
                "third_good:Gone",
                "nowhere.at_all:thing",
                "third_variants:Letters/smal",
                "third_variants:Letters:3.*",
                "third_good:Squares/small",
                "third_good:Squares:latest",
                "third_good:Squares@paper",
                "third_good:Squares/",
                "third_good:Squares:",
                "third_good:Squares/a/b",
                "third_good:Squares:1.0.0/a",
                "third_good:Gone/small:1.*",
            ]
        ),
    )


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


def test_a_mistake_after_the_class_lists_what_may_follow_it() -> None:
    check_errors(
        GOLDEN / "building_discovery" / "a_mistake_after_the_class_lists_what_may_follow_it.txt",
        (
            partial(open_builder, row)
            for row in [
                "third_variants:Letters/smal",
                "third_variants:Letters/small:3.*",
                "third_good:Squares/small",
                "third_good:Squares:latest",
                "third_good:Squares@paper",
            ]
        ),
    )
