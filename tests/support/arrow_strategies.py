"""Arrow types that an import knows, nested at will, and values of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

_INTEGERS: Final = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (2**63, 2**64 - 1),  # NumPy makes floats of a list that mixes these with smaller ones
}
_FLOATS: Final = {pa.float16(): 16, pa.float32(): 32, pa.float64(): 64}
_TEXTS: Final = (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))
_BYTES: Final = (pa.binary(), pa.large_binary())
_NAMES: Final = st.text(st.sampled_from("abcXYZ_é 1./"), min_size=1, max_size=4)

LEAVES: Final = st.sampled_from([pa.bool_(), *_INTEGERS, *_FLOATS, *_TEXTS, *_BYTES, pa.binary(3)])


def _containers(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    plain = inner.filter(lambda kind: not pa.types.is_dictionary(kind))  # pyarrow cannot read them back from lists
    fields = st.lists(st.tuples(_NAMES, plain), min_size=1, max_size=3, unique_by=lambda field: field[0])
    return st.one_of(
        plain.map(pa.list_),
        plain.map(pa.large_list),
        st.tuples(plain, st.integers(1, 3)).map(lambda pair: pa.list_(*pair)),
        fields.map(pa.struct),
    )


TYPES: Final = st.recursive(LEAVES, _containers, max_leaves=4)
SCHEMAS: Final = st.lists(st.tuples(_NAMES, TYPES), min_size=1, max_size=3, unique_by=lambda field: field[0]).map(
    pa.schema
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of an Arrow type, none of them null."""
    if kind in _INTEGERS:
        return st.integers(*_INTEGERS[kind])
    if kind in _FLOATS:
        floats = st.floats(width=_FLOATS[kind], allow_nan=False, allow_infinity=False)
        return floats.map(np.float16) if kind == pa.float16() else floats
    if pa.types.is_boolean(kind):
        return st.booleans()
    if kind in _TEXTS:
        return st.text(max_size=5)
    if kind in _BYTES:
        return st.binary(max_size=5)
    if pa.types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    if pa.types.is_fixed_size_list(kind):
        return st.lists(values_of(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    return st.lists(values_of(kind.value_type), max_size=3)
