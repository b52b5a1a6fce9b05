"""Schemas of any shape and examples that fit them."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from registry.errors import FeatureError
from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    Dataset,
    Feature,
    FeaturesDict,
    Image,
    LabeledImage,
    Scalar,
    Sequence,
    Tensor,
    Text,
    Translation,
    TranslationVariableLanguages,
    Video,
)
from registry.features.containers import columns_of
from registry.features.image import BBOX_FORMATS

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES = st.text("abc/é-", min_size=1, max_size=4)


def dtypes() -> st.SearchStrategy[str]:
    return st.sampled_from([*INTEGERS, "float16", "float32", "float64", "string"])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(dtypes() | st.just("bfloat16"))
    shape: list[int | None] = list(draw(st.lists(st.integers(1, 3), max_size=3)))
    encodings = ["bytes", "zlib"] if dtype == "bfloat16" else ["none", "bytes", "zlib"]
    encoding = "none" if dtype == "string" else draw(st.sampled_from(encodings))
    for place in range(len(shape)):
        if draw(st.booleans()) and (encoding != "none" or None not in shape):
            shape[place] = None
    return Tensor(
        shape=tuple(shape), dtype=dtype, encoding=encoding, optional=None not in shape and draw(st.booleans())
    )


@st.composite
def audios(draw: st.DrawFn) -> Audio:
    shape = draw(st.sampled_from([(None,), (None, 1), (None, 2), (3,), (2, 2)]))
    dtype = draw(st.sampled_from(["int16", "int64", "float32"]))
    if draw(st.booleans()):
        return Audio(shape=shape, dtype=dtype, lazy_decode=True, file_format="wav")
    return Audio(shape=shape, dtype=dtype, encoding=draw(st.sampled_from(["none", "bytes", "zlib"])), sample_rate=8000)


def leaves() -> st.SearchStrategy[Feature]:
    shapes = st.tuples(st.none() | st.integers(1, 4), st.none() | st.integers(1, 4), st.integers(1, 4))
    return st.one_of(
        tensors(),
        st.builds(Scalar, dtypes(), optional=st.booleans()),
        audios(),
        st.builds(BBox, bbox_format=st.none() | st.sampled_from(BBOX_FORMATS)),
        st.builds(LabeledImage, num_classes=st.integers(0, 3), shape=st.sampled_from([(None, None, 1), (2, 3, 1)])),
        st.sampled_from(
            [Video(shape=(None, None, 2, 1)), Video(shape=(2, 2, 2, 3), dtype="uint16", encoding_format=None)]
        ),
        st.sampled_from([Translation(languages=["en", "d/e"]), TranslationVariableLanguages()]),
        st.just(TranslationVariableLanguages(languages=["a", "b"])),
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
            st.builds(_try_sequence, inner, st.none() | st.integers(0, 3), st.just(Dataset)),
            st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(_try_dict),
        )

    features = st.recursive(leaves(), nest, max_leaves=4)
    return st.dictionaries(NAMES, features, max_size=4).map(_try_dict)


def _try_sequence(feature: Feature, length: int | None, kind: type[Sequence] = Sequence) -> Feature:
    differs = any(column.leaf.parts[0].size is None for column in columns_of(feature))
    if differs and not isinstance(feature, Tensor):  # their unknown dimension would have to be the same in each element
        return feature
    try:
        return kind(feature, length)
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
    if dtype.name == "bfloat16":
        return hnp.arrays(np.float32, shape, elements=st.floats(width=16)).map(lambda array: array.astype(dtype))
    if dtype.name == "float64":  # as exact as they are stored
        return hnp.arrays(np.float32, shape).map(lambda array: array.astype(np.float64))
    return hnp.arrays(dtype, shape)


def wave_file(samples: Any) -> bytes:
    """A WAV file of int16 samples (length, channels)."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(samples.shape[1])
        writer.setsampwidth(2)
        writer.setframerate(8000)
        writer.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def is_lazy(feature: Feature) -> bool:
    """Whether sound is stored as a file, which decodes to samples."""
    return any(isinstance(column.leaf, Audio) and column.leaf.lazy_decode for column in columns_of(feature))


def values(draw: st.DrawFn, feature: Any, levels: int = 0) -> Any:
    """A value of ``feature``, in one of the forms that it takes; ``levels`` is the number of Sequences around it."""
    if isinstance(feature, FeaturesDict):
        return {name: values(draw, feature[name], levels) for name in feature}
    if isinstance(feature, TranslationVariableLanguages):
        languages = st.sampled_from(feature.languages or ["en", "de", "x"])
        texts = st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=2)
        return draw(st.dictionaries(languages, texts, max_size=3))
    if isinstance(feature, Audio) and feature.lazy_decode:
        length = draw(st.integers(0, 3)) if feature.shape[0] is None else feature.shape[0]
        return wave_file(draw(hnp.arrays(np.int16, (length, feature.shape[1] if len(feature.shape) > 1 else 1))))
    if isinstance(feature, Tensor) and feature.optional and not levels and draw(st.booleans()):
        return None
    if isinstance(feature, Sequence):
        number = draw(st.integers(0, 3)) if feature.length is None else feature.length
        if (
            isinstance(feature.feature, Tensor)
            and None in feature.feature.shape
            and feature.feature.parts[0].size is None
        ):
            shape = tuple(draw(st.integers(1, 3)) if size is None else size for size in feature.feature.shape)
            return draw(arrays((number, *shape), feature.feature.dtype))
        return [values(draw, feature.feature, levels + 1) for _ in range(number)]
    if isinstance(feature, ClassLabel):
        named = [] if feature.names is None else [st.sampled_from(feature.names)]
        return draw(st.one_of(st.integers(-1, feature.num_classes - 1), *named))
    if isinstance(feature, BBox):
        low, high = draw(
            hnp.arrays(np.float32, (2, 2), elements=st.floats(0, 1, width=32)).map(lambda a: np.sort(a, axis=0))
        )
        return np.concatenate([low, high])  # which all formats take
    smallest = 1 if isinstance(feature, Image) else 0
    shape = tuple(draw(st.integers(smallest, 3)) if size is None else size for size in feature.shape)
    array = draw(arrays(shape, feature.dtype))
    if isinstance(feature, LabeledImage | Tensor) and feature.limits:  # 1 is within the bounds of tests
        array = np.where(feature.outside(array), np.array(isinstance(feature, Tensor), feature.dtype), array)
    return array if shape or draw(st.booleans()) else array[()]


@st.composite
def schemas_and_examples(draw: st.DrawFn) -> tuple[FeaturesDict, dict[str, Any]]:
    features = draw(schemas())
    return features, values(draw, features)
