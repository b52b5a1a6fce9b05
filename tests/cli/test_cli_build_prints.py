"""What a builder prints is not part of the result of ``registry build``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Ran

MODULE = """
import registry
from registry.features import FeaturesDict

class Talkative(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self):
        return FeaturesDict({"number": "int64"})

    def splits(self):
        return {"train": self.examples()}

    def examples(self):
        print("reading the first file")
        yield 0, {"number": 0}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "talkative_builder.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "talkative_builder:Talkative"


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("-j", "1")])
def test_what_a_builder_prints_goes_to_stderr(empty: Callable[..., Ran], module: str, options: tuple[str, ...]) -> None:
    done = empty("build", module, *options, "--format", "json")
    assert done.code == 0
    assert done.json()["data"]
    assert "reading the first file" in done.err
