"""Laws of blocks: however a record is decoded, in a block it gives what it gives alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from feature_strategies import schemas, values
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import CorruptExampleError
from registry.features import FeaturesDict, Ragged


@st.composite
def schemas_and_records(draw: st.DrawFn) -> tuple[FeaturesDict, list[bytes]]:
    """A schema and records of it; a few different ones, each of them maybe many times."""
    features = draw(schemas())
    different = [features.encode_example(values(draw, features)) for _ in range(draw(st.integers(0, 4)))]
    order = draw(st.lists(st.sampled_from(range(len(different))), max_size=40)) if different else []
    return features, [different[place] for place in order]


def block_arguments(records: list[bytes], gap: bytes = b"\x0a\x80") -> tuple[Any, Any, Any]:
    """The records in one read-only buffer, with something between them."""
    data = np.frombuffer(gap + b"".join(record + gap for record in records), np.uint8)
    lengths = np.array([len(record) for record in records], np.int64)
    offsets = len(gap) + np.cumsum(lengths + len(gap)) - lengths - len(gap)
    return data, offsets, lengths


def exact(value: Any) -> Any:
    """What two decoded values must have in common to be the same: types, dtypes, shapes and every bit."""
    if isinstance(value, dict):
        return {name: exact(inner) for name, inner in value.items()}
    if isinstance(value, Ragged):
        return Ragged, exact(value.flat_values), [exact(level) for level in value.row_lengths]
    if isinstance(value, np.ndarray):
        content = [exact(item) for item in value.flat] if value.dtype == object else value.tobytes()
        return np.ndarray, value.dtype, value.shape, value.flags.writeable, content
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    return type(value), value


def one_by_one(features: FeaturesDict, records: list[bytes]) -> tuple[list[Any], CorruptExampleError | None]:
    examples = []
    for record in records:
        try:
            examples.append(features.decode_example(record))
        except CorruptExampleError as error:
            return examples, error
    return examples, None


def check_block(features: FeaturesDict, records: list[bytes]) -> None:
    """A block of ``records`` gives the same examples, the same columns and the same error as one record at a time."""
    expected, error = one_by_one(features, records)
    block = features.decode_block(*block_arguments(records))
    found = []
    if error is None:
        found.extend(block.examples())
        assert block.fault is None
    else:
        with pytest.raises(CorruptExampleError) as caught:
            found.extend(block.examples())
        assert (caught.value.message, caught.value.hint) == (error.message, error.hint)
        assert caught.value.details == {**error.details, "record": len(expected)}
        with pytest.raises(CorruptExampleError):
            block.columns()
    assert len(block) == len(expected)
    assert [exact(example) for example in found] == [exact(example) for example in expected]
    check_columns(block.sound.columns(), expected)


def check_columns(columns: dict[str, Any], examples: list[dict[str, Any]]) -> None:
    for name, column in columns.items():
        inner = [example[name] for example in examples]
        if isinstance(column, dict):
            check_columns(column, inner)
        else:
            assert len(column) == len(examples)
            assert [exact(value) for value in column] == [exact(value) for value in inner]


@given(schemas_and_records())
def test_a_block_is_its_records_one_by_one(given_: tuple[FeaturesDict, list[bytes]]) -> None:
    check_block(*given_)
