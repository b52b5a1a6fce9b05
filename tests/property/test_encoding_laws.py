"""Laws of encoding in blocks: an example encoded in a block gives the same bytes as one encoded alone."""

from __future__ import annotations

from typing import Any

from feature_strategies import schemas, values
from hypothesis import given
from hypothesis import strategies as st

from registry.features import FeaturesDict, codec_of


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
