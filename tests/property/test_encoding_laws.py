"""Laws of encoding in blocks: an example encoded in a block gives the same bytes as one encoded alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from block_checks import joined
from feature_strategies import schemas, values
from hypothesis import given
from hypothesis import strategies as st
from test_wire_laws import EXAMPLES

from registry.features import FeaturesDict, codec_of
from registry.wire import BlockDecoder, FlatValue, encode_block, encode_example


@st.composite
def schemas_and_examples(draw: st.DrawFn) -> tuple[FeaturesDict, list[dict[str, Any]]]:
    """A schema and examples of it; a few different ones, each of them maybe many times."""
    features = draw(schemas())
    different = [values(draw, features) for _ in range(draw(st.integers(0, 4)))]
    order = draw(st.lists(st.sampled_from(range(len(different))), max_size=20)) if different else []
    return features, [different[place] for place in order]


@given(schemas_and_examples())
def test_a_block_is_its_examples_one_by_one(given_: tuple[FeaturesDict, list[dict[str, Any]]]) -> None:
    features, examples = given_
    codec = codec_of(features)
    block = codec.encode_block(examples)
    assert block.fault is None
    assert block.records() == [codec.encode(example) for example in examples]


@given(st.lists(EXAMPLES, max_size=5), st.data())
def test_the_columns_of_a_block_are_encoded_as_its_records(
    examples: list[dict[str, FlatValue]], data: st.DataObject
) -> None:
    different = list(map(encode_example, examples))
    order = data.draw(st.lists(st.sampled_from(range(len(different))), max_size=40)) if different else []
    check_columns([different[place] for place in order] * data.draw(st.sampled_from([1, 2, 5])))


def check_columns(records: list[bytes]) -> None:
    """Decoding ``records`` to columns, and encoding these, gives the same records."""
    block = BlockDecoder().decode(*joined(records))
    encoded = encode_block(block.num_records, [block])
    assert encoded.records() == records


SIZES = [0, 1, 62, 63, 64, 65, 120, 127, 128, 129, 511, 512, 513, 600, 2**14 - 1, 2**14, 2**14 + 1]


def test_contents_of_any_sizes_are_encoded_at_once() -> None:
    chance = np.random.default_rng(0)
    texts = [chance.bytes(size) for size in SIZES]
    numbers = [np.int64(sign * 2**bits - less) for bits in range(63) for sign, less in product((-1, 1), (0, 1))]
    numbers.append(np.int64(-(2**63)))
    records = []
    for place, text in enumerate(texts * 20):
        some = chance.integers(0, len(numbers), place % 7 % 4)
        flat: dict[str, FlatValue] = {
            "text": [text],
            "number": np.array([numbers[place % len(numbers)]]),
            "numbers": np.array([numbers[at] for at in some], np.int64),
            "floats": chance.random(place % 5, np.float32),
            "texts": [texts[at % len(texts)] for at in some],
        }
        records.append(encode_example({key: flat[key] for key in flat if chance.random() < 0.7}))
        records.append(encode_example({"text": [text], "pixels": np.arange(9), "words": [b"a", b"bc"]}))
    check_columns(records)
    check_columns(records[1::2])
    check_columns([encode_example({"last": [text]}) for text in texts])
