"""Features, and valid or nearly valid records of them, as input for decoders of TF-Slim."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from registry.slim import FixedLenFeature, FixedLenSequenceFeature, SparseFeature, VarLenFeature
from registry.wire.example_pb2 import Example, Feature, SequenceExample

KINDS = ("int64", "float32", "string")
SHAPES = st.sampled_from([(), (1,), (2,), (3,), (2, 2), (1, 3), (0,)])
VALUES = {
    "int64": st.sampled_from([0, 1, 2, 3, 5, -1, 300, 2**40]),
    "float32": st.sampled_from([0.0, 1.0, -1.5, 0.25]),
    "string": st.sampled_from([b"", b"x", b"dog", b"\xff\x00"]),
}


@st.composite
def fixed_features(draw: st.DrawFn) -> FixedLenFeature:
    shape, kind = draw(SHAPES), draw(st.sampled_from(KINDS))
    size = int(np.prod(shape))
    default = draw(st.none() | st.lists(VALUES[kind], min_size=size, max_size=size)) if size else None
    return FixedLenFeature(shape, kind, default)


def var_len_features() -> st.SearchStrategy[VarLenFeature]:
    return st.sampled_from(KINDS).map(VarLenFeature)


@st.composite
def element_features(draw: st.DrawFn) -> FixedLenSequenceFeature:
    shape = draw(SHAPES.filter(all))
    return FixedLenSequenceFeature(shape, draw(st.sampled_from(KINDS)), allow_missing=True)


@st.composite
def sparse_features(draw: st.DrawFn) -> SparseFeature:
    kind = draw(st.sampled_from(KINDS))
    return SparseFeature("i", "v", kind, draw(st.sampled_from([4, 6])), already_sorted=draw(st.booleans()))


@st.composite
def feature_maps(draw: st.DrawFn) -> dict[str, Any]:
    """The features of an Example; at most one SparseFeature, which is stored as "i" and "v"."""
    one = st.one_of(fixed_features(), var_len_features(), element_features())
    features = dict(zip("abc", draw(st.lists(one, min_size=1, max_size=3)), strict=False))
    if draw(st.booleans()):
        features["s"] = draw(sparse_features())
    return features


@st.composite
def sound_examples(draw: st.DrawFn, features: dict[str, Any]) -> bytes:
    """A record that holds ``features``; some may be missing that may."""
    record = Example()
    for key, spec in features.items():
        if isinstance(spec, SparseFeature):
            places = draw(st.lists(st.integers(0, 3), max_size=4, unique=True))
            places = sorted(places) if spec.already_sorted else places
            record.features.feature["i"].CopyFrom(feature_of("int64", places))
            values = [draw(VALUES[name_of(spec)]) for _ in places]
            record.features.feature["v"].CopyFrom(feature_of(name_of(spec), values))
            continue
        may_miss = not isinstance(spec, FixedLenFeature) or spec.default_value is not None
        if not may_miss or draw(st.integers(0, 9)):
            sizes = st.just(spec.size) if isinstance(spec, FixedLenFeature) else st.integers(0, 3)
            count = draw(sizes) * (spec.size if isinstance(spec, FixedLenSequenceFeature) else 1)
            values = [draw(VALUES[name_of(spec)]) for _ in range(count)]
            record.features.feature[key].CopyFrom(feature_of(name_of(spec), values))
    return bytes(record.SerializeToString())


@st.composite
def examples(draw: st.DrawFn, features: dict[str, Any]) -> bytes:
    """A record that is usually valid: one feature may be missing, empty, without a kind or of another kind."""
    record = draw(sound_examples(features))
    if draw(st.integers(0, 4)):
        return record
    if not draw(st.integers(0, 9)):
        return b"\xff\xff"
    message = Example.FromString(record)
    key = draw(st.sampled_from(sorted(features)))
    key = draw(st.sampled_from("iv")) if key == "s" else key
    kind = draw(st.sampled_from(KINDS))
    change = draw(st.sampled_from(["gone", "no kind", "other values"]))
    message.features.feature[key].Clear()
    if change == "gone":
        del message.features.feature[key]
    elif change == "other values":
        message.features.feature[key].CopyFrom(feature_of(kind, draw(st.lists(VALUES[kind], max_size=4))))
    return bytes(message.SerializeToString())


@st.composite
def sequences(draw: st.DrawFn, features: dict[str, Any]) -> bytes:
    """A SequenceExample with lists of equal length that hold ``features``; occasionally an invalid one."""
    message = SequenceExample()
    steps = draw(st.integers(0, 3))
    for key, spec in features.items():
        if not draw(st.integers(0, 11)):
            continue
        message.feature_lists.feature_list[key].SetInParent()
        for _ in range(steps):
            kind = name_of(spec) if draw(st.integers(0, 39)) else draw(st.sampled_from(KINDS))
            count = spec.size if isinstance(spec, FixedLenSequenceFeature) else draw(st.integers(0, 3))
            values = [draw(VALUES[kind]) for _ in range(count)]
            step = feature_of(kind, values) if draw(st.integers(0, 39)) else Feature()
            message.feature_lists.feature_list[key].feature.append(step)
    return bytes(message.SerializeToString())


def name_of(spec: Any) -> str:
    """The kind of a feature's values."""
    return {"i": "int64", "f": "float32", "O": "string"}[spec.dtype.kind]


def feature_of(kind: str, values: list[Any]) -> Feature:
    """The message of a possibly empty list of values."""
    message = Feature()
    stored = {"int64": message.int64_list, "float32": message.float_list, "string": message.bytes_list}[kind]
    stored.SetInParent()
    stored.value.extend(values)
    return message
