"""The slicing rule tfds-4 against what TFDS 4.9.10 resolved: equal where that can be read, an error where it cannot."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from registry.errors import SliceError, SplitNotFoundError, UsageError
from registry.model import SlicingRule
from registry.splits import ReadInstruction, resolve

VECTORS = json.loads(gzip.decompress((Path(__file__).parent / "resolver.json.gz").read_bytes()))


def build(expression: Any) -> str | ReadInstruction:
    """The expression of a case: a text, ``ReadInstruction(...)`` or a sum."""
    if isinstance(expression, str):
        return expression
    if expression["op"] == "add":
        first, second = (
            ReadInstruction.from_spec(build(expression[name]), slicing=SlicingRule.TFDS_4) for name in ("a", "b")
        )
        return first + second
    given = {name: expression[name] for name in ("from_", "to", "unit", "rounding") if name in expression}
    return ReadInstruction(expression["split"], **given)


def rows(case: Any) -> list[list[Any]]:
    plan = resolve(build(case["e"]), VECTORS["layouts"][case["l"]], slicing="tfds-4")
    return [[file.split, file.shard, file.skip, file.take, file.examples_in_shard] for file in plan]


def is_same(found: list[list[Any]], case: Any) -> bool:
    if "long" not in case:
        return bool(found == case["r"])
    text = json.dumps(found, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest() == case["long"]["sha256"]


def verdict(case: Any) -> str:
    """What became of a case, beside what TFDS made of it."""
    try:
        found = rows(case)
    except (UsageError, SplitNotFoundError) as error:
        if "err" in case:
            return "both refuse"
        return "we refuse a defect" if isinstance(error, SliceError) and is_defect(case) else f"we refuse: {error}"
    if "err" in case:
        return "only TFDS refuses"
    return "equal" if is_same(found, case) else "different"


def is_defect(case: Any) -> bool:
    """Whether TFDS's instructions do not read the slice: a negative take, a fraction of a record, a reversed slice."""
    takes = [value for row in case.get("r", ()) for value in row[2:4]]
    if any(value < 0 or value != int(value) for value in takes):
        return True
    with pytest.raises(SliceError, match="is reversed"):
        resolve(build(case["e"]), VECTORS["layouts"][case["l"]], slicing="documented")
    return True


def test_tfds_4_resolves_every_vector_as_tfds_did() -> None:
    counts = Counter(map(verdict, VECTORS["cases"]))
    print(dict(counts))  # noqa: T201  # both kinds, shown by `pytest -s`
    assert counts == {"equal": 2878, "both refuse": 1965, "we refuse a defect": 436}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("train[31:30]", "train[31:30] is reversed: TFDS reads the rest of the shard for records 31..30 in shard 0"),
        ("train[4:2]", "train[4:2] is reversed: TFDS makes a negative take of records 4..2 in shard 0"),
        (
            "train[200:]",
            "train[200:] is out of range: TFDS makes records 200..101 of it, and split 'train' has 101 records",
        ),
        ("all[:50%]", "all[:50%]: TFDS has no slices of 'all'"),
    ],
)
def test_a_defect_is_named(expression: str, message: str) -> None:
    with pytest.raises(SliceError) as caught:
        resolve(expression, {"train": [101]}, slicing="tfds-4")
    assert str(caught.value) == message


def test_a_fraction_of_a_record_is_named() -> None:
    with pytest.raises(SliceError) as caught:
        resolve(
            ReadInstruction("train", 26.42, unit="%"), {"train": [101]}, slicing="tfds-4", rounding="pct1_dropremainder"
        )
    assert str(caught.value) == "train[26.42%:]: TFDS makes the fractions of records 26.42..101 of it"
