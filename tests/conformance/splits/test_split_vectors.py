"""Compares the slicing rule tfds-4 with TFDS 4.9.10: equal if TFDS can read the result, otherwise an error.

The end of the test run's output counts the outcomes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import SliceError, SplitNotFoundError, UsageError
from registry.model import SlicingRule
from registry.splits import ReadInstruction, even_splits, resolve

GOLDEN = Path(__file__).with_name("golden")


def load(name: str) -> Any:
    return json.loads(gzip.decompress((Path(__file__).parent / name).read_bytes()))


VECTORS = load("resolver.json.gz")
EVEN_VECTORS = load("even_splits.json.gz")


def build(expression: Any) -> str | ReadInstruction:
    """The expression of a case: a text, ``ReadInstruction(...)``, a sum, or one of ``even_splits``."""
    if isinstance(expression, str):
        return expression
    if expression["op"] == "even":
        return even_splits(build(expression["split"]), expression["n"], unit="abs")[expression["i"]]
    if expression["op"] == "add":
        first, second = (
            ReadInstruction.from_spec(build(expression[name]), slicing=SlicingRule.TFDS_4) for name in ("a", "b")
        )
        return first + second
    given = {name: expression[name] for name in ("from_", "to", "unit", "rounding") if name in expression}
    return ReadInstruction(expression["split"], **given)


def rows(expression: str | ReadInstruction, layout: dict[str, list[int]]) -> list[list[Any]]:
    plan = resolve(expression, layout, slicing="tfds-4")
    return [[file.split, file.shard, file.skip, file.take, file.examples_in_shard] for file in plan]


def is_same(found: list[list[Any]], expected: Any) -> bool:
    if "long" not in expected:
        return bool(found == expected["r"])
    text = json.dumps(found, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest() == expected["long"]["sha256"]


def verdict(make: Callable[[], str | ReadInstruction], layout: dict[str, list[int]], expected: Any) -> str:
    """The outcome of an expression compared with that of TFDS."""
    try:
        found = rows(make(), layout)
    except (UsageError, SplitNotFoundError) as error:
        if "err" in expected:
            return "both refuse"
        is_named = isinstance(error, SliceError) and is_defect(make, layout, expected)
        return "we refuse a defect" if is_named else f"we refuse: {error}"
    if "err" in expected:
        return "only TFDS refuses"
    return "equal" if is_same(found, expected) else "different"


def is_defect(make: Callable[[], str | ReadInstruction], layout: dict[str, list[int]], expected: Any) -> bool:
    """Whether TFDS's instructions do not read the slice: a negative take, a fraction of a record, a reversed slice."""
    takes = [value for row in expected.get("r", ()) for value in row[2:4]]
    if any(value < 0 or value != int(value) for value in takes):
        return True
    with pytest.raises(SliceError, match="is reversed"):
        resolve(make(), layout, slicing="documented")
    return True


def test_tfds_4_resolves_every_vector_as_tfds_did(record_property: Callable[[str, object], None]) -> None:
    layouts = VECTORS["layouts"]
    counts = Counter(verdict(partial(build, case["e"]), layouts[case["l"]], case) for case in VECTORS["cases"])
    record_property("TFDS 4.9.10, 5,279 expressions", dict(counts))
    assert counts == {"equal": 2878, "both refuse": 1965, "we refuse a defect": 436}


def test_tfds_4_divides_every_vector_as_tfds_did(record_property: Callable[[str, object], None]) -> None:
    counts: Counter[str] = Counter()
    for case in EVEN_VECTORS["cases"]:
        parts = even_splits(build(case["split"]), case["n"], unit="abs", drop_remainder=case["drop"])
        layout = EVEN_VECTORS["layouts"][case["l"]]
        for part, expected in zip(parts, case["parts"], strict=True):
            counts[verdict(lambda part=part: part, layout, expected)] += 1
    record_property("TFDS 4.9.10, 3,050 parts of 550 even_splits", dict(counts))
    assert counts == {"equal": 2131, "both refuse": 914, "we refuse a defect": 5}


def test_a_defect_is_named() -> None:
    check_errors(
        GOLDEN / "split_vectors" / "a_defect_is_named.txt",
        (
            partial(resolve, expression, {"train": [101]}, slicing="tfds-4")
            for expression in ["train[31:30]", "train[4:2]", "train[200:]", "all[:50%]"]
        ),
    )


def test_a_fraction_of_a_record_is_named() -> None:
    with pytest.raises(SliceError) as caught:
        resolve(
            ReadInstruction("train", 26.42, unit="%"), {"train": [101]}, slicing="tfds-4", rounding="pct1_dropremainder"
        )
    assert str(caught.value) == "train[26.42%:]: TFDS resolves it to fractions of records, 26.42..101"
