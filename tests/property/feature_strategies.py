"""Schemas of any shape and examples that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from registry.errors import FeatureError
from registry.features import BBox, ClassLabel, Feature, FeaturesDict, Image, Scalar, Sequence, Tensor, Text
from registry.features.containers import columns_of

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES = st.text("abc/é-", min_size=1, max_size=4)


def dtypes() -> st.SearchStrategy[str]:
    return st.sampled_from([*INTEGERS, "float16", "float32", "float64", "string"])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(dtypes())
    shape: list[int | None] = list(draw(st.lists(st.integers(1, 3), max_size=3)))
    encoding = "none" if dtype == "string" else draw(st.sampled_from(["none", "bytes"]))
    for place in range(len(shape)):
        if draw(st.booleans()) and (encoding == "bytes" or None not in shape):
            shape[place] = None
    return Tensor(shape=tuple(shape), dtype=dtype, encoding=encoding)


def leaves() -> st.SearchStrategy[Feature]:
    shapes = st.tuples(st.none() | st.integers(1, 4), st.none() | st.integers(1, 4), st.integers(1, 4))
    return st.one_of(
        tensors(),
        dtypes().map(Scalar),
        st.integers(1, 5).map(lambda number: ClassLabel(num_classes=number)),
        st.lists(st.text("abc", min_size=1), min_size=1, unique=True).map(lambda names: ClassLabel(names=names)),
        st.just(Text()),
        st.just(BBox()),
        st.builds(lambda shape, dtype: Image(shape=shape, dtype=dtype), shapes, st.sampled_from(["uint8", "uint16"])),
        st.just(Image(shape=(None, None, 1), dtype="float32")),
    )


def schemas() -> st.SearchStrategy[FeaturesDict]:
    def nest(inner: st.SearchStrategy[Feature]) -> st.SearchStrategy[Feature]:
        return st.one_of(
            st.builds(_try_sequence, inner, st.none() | st.integers(0, 3)),
            st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(_try_dict),
        )

    features = st.recursive(leaves(), nest, max_leaves=4)
    return st.dictionaries(NAMES, features, max_size=4).map(_try_dict)


def _try_sequence(feature: Feature, length: int | None) -> Feature:
    differs = any(column.leaf.parts[0].size is None for column in columns_of(feature))
    if differs and not isinstance(feature, Tensor):  # their unknown dimension would have to be the same in each element
        return feature
    try:
        return Sequence(feature, length)
    except FeatureError:
        return feature


def _try_dict(features: dict[str, Feature]) -> FeaturesDict:
    try:
        return FeaturesDict(features)
    except FeatureError:  # two names that are stored under one key
        return FeaturesDict({"only": next(iter(features.values()))})


def arrays(shape: tuple[int, ...], dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "O":
        return hnp.arrays(object, shape, elements=st.binary(max_size=4) | st.text(max_size=4), fill=st.nothing())
    if dtype.name == "float64":  # as exact as they are stored
        return hnp.arrays(np.float32, shape).map(lambda array: array.astype(np.float64))
    return hnp.arrays(dtype, shape)


def values(draw: st.DrawFn, feature: Any) -> Any:
    """A value of ``feature``, in one of the forms that it takes."""
    if isinstance(feature, FeaturesDict):
        return {name: values(draw, feature[name]) for name in feature}
    if isinstance(feature, Sequence):
        number = draw(st.integers(0, 3)) if feature.length is None else feature.length
        if isinstance(feature.feature, Tensor) and None in feature.feature.shape and feature.feature.encoding == "none":
            shape = tuple(draw(st.integers(1, 3)) if size is None else size for size in feature.feature.shape)
            return draw(arrays((number, *shape), feature.feature.dtype))
        return [values(draw, feature.feature) for _ in range(number)]
    if isinstance(feature, ClassLabel):
        named = [] if feature.names is None else [st.sampled_from(feature.names)]
        return draw(st.one_of(st.integers(-1, feature.num_classes - 1), *named))
    if isinstance(feature, BBox):
        low, high = draw(
            hnp.arrays(np.float32, (2, 2), elements=st.floats(0, 1, width=32)).map(lambda a: np.sort(a, axis=0))
        )
        return np.concatenate([low, high])
    smallest = 1 if isinstance(feature, Image) else 0
    shape = tuple(draw(st.integers(smallest, 3)) if size is None else size for size in feature.shape)
    array = draw(arrays(shape, feature.dtype))
    return array if shape or draw(st.booleans()) else array[()]


@st.composite
def schemas_and_examples(draw: st.DrawFn) -> tuple[FeaturesDict, dict[str, Any]]:
    features = draw(schemas())
    return features, values(draw, features)
