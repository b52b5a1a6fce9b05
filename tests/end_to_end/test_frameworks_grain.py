"""Grain reads the examples that iterating gives, by number, from threads and processes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.framework_samples import plain, wide_reader

from registry.features import FeaturesDict
from registry.order import ReadConfig

IDS = FeaturesDict({"id": "int64"})


def test_a_source_holds_the_examples_that_iterating_yields() -> None:
    reader = wide_reader([6, 3], ReadConfig(shuffle="global", seed=1, add_tfds_id=True))
    source = reader.to_grain()
    expected = [plain(example) for example in reader]
    assert len(source) == 9
    assert [plain(source[place]) for place in range(9)] == expected
    assert [plain(example) for example in source.__getitems__([7, 0])] == [expected[7], expected[0]]
    assert source.__getitems__([]) == []
    assert sum(source[place]["maybe"] is None for place in range(9)) == 6
    with pytest.raises(IndexError, match=r"^index 9 is out of range: there are 9 examples(?m:$)"):
        source[9]


def test_the_repr_of_a_source_differs_between_reads(tmp_path: Path) -> None:
    names = [
        repr(wide_reader([6, 3], config, where=tmp_path, features=IDS, published="1.0.0", **options).to_grain())
        for config, options in (
            (None, {}),
            (None, {}),
            (ReadConfig(shuffle="global", seed=1), {}),
            (ReadConfig(shuffle="global", seed=2), {}),
            (None, {"process": (0, 2)}),
        )
    ]
    assert names[0] == names[1]
    assert names[0].startswith("<ReaderSource ids:1.0.0 (sha256:0f0f0f0f0f0f) train plan=sha256:")
    assert len(set(names)) == 4
    source = wide_reader([6, 3], where=tmp_path, features=IDS, published="1.0.0").to_grain()
    assert repr(pickle.loads(pickle.dumps(source))) == names[0]  # noqa: S301 (made here)


def test_threads_can_share_a_source() -> None:
    source = wide_reader([300, 500], ReadConfig(shuffle="global", seed=3), features=IDS).to_grain()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda place: int(source[place]["id"]), range(800)))
    assert sorted(found) == list(range(800))
