"""What ``registry build`` prints: not what the builder prints, and errors of many inputs that are easy to read."""

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


FAILING = """
import registry
from registry.features import FeaturesDict

class Failing(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self):
        return FeaturesDict({"number": "int64"})

    def splits(self):
        return {"train": registry.Pieces([f"part-{number:02}.csv" for number in range(40)], self.examples)}

    def examples(self, path):
        yield path, {"number": 0}
        raise ValueError(f"{path} has no column 'price'")
"""


def test_twenty_inputs_that_fail_alike_take_one_short_line_each(
    empty: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "failing_builder.py"
    path.write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    done = empty("build", "failing_builder:Failing", "-j", "1")
    assert done.code == 1
    assert done.err.splitlines() == [
        "error: split 'train': 20 inputs failed, and the build ended",
        f"  ValueError: … has no column 'price' ({path}, line 16)",
        *(f"    'part-{number:02}.csv', after 1 example" for number in range(20)),
        "Traceback (most recent call last):",
        f'  File "{path}", line 16, in examples',
        """    raise ValueError(f"{path} has no column 'price'")""",
        "ValueError: part-00.csv has no column 'price'",
    ]
    inputs = empty("build", "failing_builder:Failing", "-j", "1", "--format", "json").error()["details"]["inputs"]
    assert [one["input"] for one in inputs] == [f"'part-{number:02}.csv'" for number in range(20)]
    for number, one in enumerate(inputs):
        name = f"part-{number:02}.csv"
        assert one["error"] == (
            f"split 'train', input '{name}': the generator failed after 1 example, the last with key '{name}': "
            f"ValueError: {name} has no column 'price' ({path}, line 16)"
        )
        assert one["traceback"].endswith(f"ValueError: {name} has no column 'price'")
        assert one["position"] == 1
