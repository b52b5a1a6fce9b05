"""No public call and no source leaks an exception of a library: types and options come from the libraries' own lists.

    a type of a library -> values of it -> a source -> read, inferred, converted, encoded | a SourceError with a way out

A new type of a library is tried as soon as the library is installed in a version that has it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.judged_sources import judge, judge_object
from support.levels import either

from registry.intake.detect import open_source
from registry.intake.objects import open_object

# polars panics while it makes some series, and once more when they are freed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


VALUES: Final[list[list[Any]]] = [
    [1, None],
    [0, 1],
    [1.5, float("nan")],
    ["a", None],
    ["\ud800", "a"],
    ["a", "b\0c"],
    [b"abc", b"\xff\0\1"],
    [True, None],
    [None, None],
    [2**70, -(2**70)],
    [2**63, -1],
    [1.5, 2**70],
    [1 + 2j, 3],
    [dt.datetime(2020, 1, 1), None],  # noqa: DTZ001 (a time without a zone)
    [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)],  # noqa: DTZ001
    [dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1, minutes=7, seconds=13))), None],
    [dt.date(2020, 1, 1), None],
    [dt.time(1, 2, 3), None],
    [dt.timedelta(1), None],
    [decimal.Decimal("1.5"), None],
    [decimal.Decimal("NaN"), decimal.Decimal("Infinity")],
    [[1, 2], [3]],
    [[1, None], []],
    [["a"], ["b"]],
    [{"a": 1}, {"b": "x"}],
    [{}, {}],
    [{1: 2}, {}],
    [1, "a"],
    [object(), len],
    [{1}, frozenset()],
    [range(2), iter([1])],
    [np.float16(1), np.longdouble(2)],
    [np.datetime64("2020", "Y"), np.datetime64("NaT")],
    [np.timedelta64(7), None],
    [np.void(b"ab"), None],
    [np.array([1, 2]), np.array([3])],
    [np.ma.masked, 1],
    [np.ma.array([1, 2], mask=[True, False]), None],
    [pd.Interval(0, 1), pd.Interval(1, 2)],
    [pd.Period("2020", "M"), pd.Period("2021", "M")],
    [pd.Timestamp("2020", tz="Europe/Berlin"), pd.NaT],
    [pd.NA, 1],
    [pd.Series([1]), pd.DataFrame({"a": [1]})],
    [pl.Series([1]), None],
]


MOST_VALUES: Final = 2
"""The number of elements of ``VALUES`` that are tried for a type that accepts many of them."""


EVERY: Final = either(8, 1)
"""Every eighth type of the other libraries is tried each day, and all of them in the long level."""


def polars_types() -> Iterator[Any]:
    """Every data type of polars; for those with parameters, several."""
    given: dict[str, list[Any]] = {
        "Decimal": [pl.Decimal(precision, scale) for precision in (1, 9, 18, 38) for scale in (0, precision)],
        "Datetime": [pl.Datetime(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "Europe/Berlin")],
        "Duration": [pl.Duration("ms"), pl.Duration("ns")],
        "Array": [pl.Array(pl.Int8, 2), pl.Array(pl.String, (1, 2)), pl.Array(pl.Int8, 0)],
        "Enum": [pl.Enum(["a", "b"])],
        "Struct": [pl.Struct({})],
    }
    classes = [one for one in vars(pl.datatypes).values() if inspect.isclass(one) and issubclass(one, pl.DataType)]
    classes = [one for one in classes if not issubclass(one, pl.datatypes.BaseExtension)]  # polars panics
    plain = list(chain.from_iterable(given.get(one.__name__, [one]) for one in classes))
    yield from plain
    for kind in plain:
        yield pl.List(kind)
        yield pl.Struct({"a": kind})


@pytest.mark.parametrize("step", EVERY)
def test_every_type_of_polars_is_stored_or_refused(step: int) -> None:
    refused = {}
    tried = set()
    times: Counter[Any] = Counter()
    for kind in islice(polars_types(), 0, None, step):
        for values in VALUES:
            try:
                series = pl.Series("x", values, dtype=kind)
            except BaseException:  # noqa: BLE001, S112 (polars panics, and refuses most pairs)
                continue
            if "(Object" in str(series.dtype):  # polars panics when a list of these is freed, perhaps in another test
                continue
            if times[series.dtype] == MOST_VALUES:
                break
            times[series.dtype] += 1
            tried.add(str(series.dtype))
            refused[str(series.dtype)] = judge_object(pl.DataFrame({"x": series}), f"{series.dtype}: {values}")
            judge_object({"x": series}, f"column of {series.dtype}: {values}")
            del series
            gc.collect(0)
    gc.collect()
    assert step > 1 or {"Int128", "Int64", "Binary", "Null", "List(Int128)"} <= tried
    assert step > 1 or refused["Int128"] == (
        "column 'x': values of the type Int128 cannot be stored: Invalid or unsupported format string: '_pli128'"
    )


_ARGUMENTS: Final[tuple[tuple[Any, ...], ...]] = (
    (),
    *((unit,) for unit in ("s", "ms", "us", "ns")),
    *(("us", zone) for zone in ("UTC", "Europe/Berlin", "+02:00", "Nowhere/Bad")),
    *((number,) for number in (0, 3)),
    *((precision, scale) for precision in (5, 18, 38, 76) for scale in (0, 2, -3)),
    (pa.int8(),),
    (pa.string_view(),),
    (pa.int8(), 2),
    (pa.string(), 0),
    (pa.int32(), pa.string()),
    (pa.string(), pa.int8()),
    ([("a", pa.int8())],),
    ([("a", pa.int8()), ("a", pa.string())],),
    ([],),
    ([pa.field("a", pa.int8()), pa.field("b", pa.string())],),
    (pa.int8(), [2, 2]),
    (pa.int32(), "type", "vendor"),
)


def arrow_types(*, is_wrapped: bool = True) -> dict[str, Any]:
    """Every type that a factory of pyarrow makes from some arguments, and these within others."""
    found = {}
    for factory in (getattr(pa, name) for name in dir(pa)):
        if re.search(r"Create .*([Ii]nstance|[Tt]ype|union)", (inspect.getdoc(factory) or "")[:300]):
            for arguments in _ARGUMENTS:
                try:
                    kind = factory(*arguments)
                except Exception:  # noqa: BLE001, S112 (most arguments are for other factories)
                    continue
                if isinstance(kind, pa.DataType):
                    found[str(kind)] = kind
    wraps: list[Callable[[Any], Any]] = [
        pa.list_,
        pa.list_view,
        lambda kind: pa.list_(kind, 2),
        lambda kind: pa.struct([("a", kind)]),
        lambda kind: pa.map_(pa.string(), kind),
        lambda kind: pa.dictionary(pa.int8(), kind),
        lambda kind: pa.run_end_encoded(pa.int32(), kind),
        lambda kind: pa.list_(pa.struct([("a", pa.dictionary(pa.int8(), kind))])),
    ]
    for kind in list(found.values()) if is_wrapped else ():
        # pyarrow itself ends the process when it joins two unions without types.
        is_empty = pa.types.is_union(kind) and not kind.num_fields
        for wrap in wraps[:1] if is_empty else wraps:
            try:
                wrapped = wrap(kind)
            except pa.ArrowException:
                continue
            found[str(wrapped)] = wrapped
    return found


def arrow_values(kind: Any) -> Any:
    """Two values of a type, which need not be equal or valid; nulls if none of ``VALUES`` fits."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, arrow_values(kind.storage_type))
    if types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.array([0, 1], kind.index_type), arrow_values(kind.value_type))
    if types.is_run_end_encoded(kind):
        return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], kind.run_end_type), arrow_values(kind.value_type))
    if types.is_struct(kind) and kind.num_fields:
        return pa.StructArray.from_arrays([arrow_values(field.type) for field in kind], fields=list(kind))
    if types.is_union(kind):
        fields, names = [arrow_values(field.type) for field in kind], [field.name for field in kind]
        return pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), fields, names)
    if types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), arrow_values(kind.value_type))
    if types.is_fixed_size_list(kind) and kind.list_size == 2:
        values = arrow_values(kind.value_type)
        return pa.FixedSizeListArray.from_arrays(pa.concat_arrays([values, values]), 2)
    for values in reversed(VALUES):
        try:
            return pa.array(values, kind)
        except Exception:  # noqa: BLE001, S112 (of the objects among them)
            continue
    return pa.nulls(2, kind)


@pytest.mark.parametrize("step", EVERY)
def test_every_type_of_arrow_is_stored_or_refused(tmp_path: Path, step: int) -> None:
    kinds = arrow_types()
    tried = 0
    for place, (name, kind) in enumerate(islice(kinds.items(), 0, None, step)):
        try:
            table = pa.table({"x": arrow_values(kind)})
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            continue
        tried += 1
        judge_object(table, name)
        path = tmp_path / f"{place}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write(table)
        judge(lambda path=path: open_source(path), f"{name} in a file", column="x")
    assert tried > 300 // step
    assert {"decimal256(76, 2)", "month_day_nano_interval", "string_view", "extension<arrow.uuid>"} <= set(kinds)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.uuid(), pa.list_(pa.int8())])
def test_dictionaries_of_any_type_are_stored(kind: Any) -> None:
    table = pa.table({"x": arrow_values(pa.dictionary(pa.int8(), kind))})
    assert judge_object(table, str(kind)) is None


def pandas_types() -> Iterator[Any]:
    """Every dtype that pandas registers, those of NumPy, and those of Arrow."""
    from pandas.core.dtypes.base import _registry

    parameters = ("", "[ns, UTC]", "[us, Europe/Berlin]", "[M]", "[2h]", "[int64]", "[int]", "[datetime64[ns], both]")
    for one in _registry.dtypes:
        for name in {one.__name__, getattr(one, "name", ""), "Sparse", "interval", "period", "datetime64"}:
            for text in parameters:
                try:
                    yield one.construct_from_string(f"{name}{text}")
                except (TypeError, ValueError, NotImplementedError):
                    continue
    yield from (pd.ArrowDtype(kind) for kind in arrow_types(is_wrapped=False).values())
    yield from ("object", "str", "category", *sorted({str(np.dtype(code)) for code in np.typecodes["All"]}))


@pytest.mark.parametrize("step", EVERY)
def test_every_type_of_pandas_is_stored_or_refused(step: int) -> None:
    tried = set()
    times: Counter[str] = Counter()
    for kind in islice({str(one): one for one in pandas_types()}.values(), 0, None, step):
        for values in VALUES:
            try:
                series = pd.Series(values, dtype=kind)
            except BaseException:  # noqa: BLE001, S112 (pandas refuses most pairs)
                continue
            times[str(series.dtype)] += 1
            if str(series.dtype) != "object" and times[str(series.dtype)] > MOST_VALUES:
                continue
            tried.add(str(series.dtype))
            judge_object(pd.DataFrame({"x": series}), f"{series.dtype}: {values}")
            if str(series.dtype) == "object" or "interval" in str(series.dtype):
                try:
                    series = series.astype("category")
                except (TypeError, ValueError, NotImplementedError):
                    continue
                judge_object(pd.DataFrame({"x": series}), f"category of {kind}: {values}")
    assert step > 1 or {"object", "category", "Int64", "period[M]", "complex128", "interval[int64, right]"} <= tried


NAMES = [None, 1.5, b"a", ("a",), pd.NaT, "", "\ud800", "a\0b"]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])),
        pd.DataFrame([[1, 2]], columns=["x", "x"]),
        pd.DataFrame([[1, 2]], columns=[1, "1"]),
        *(
            pd.DataFrame([[1]], columns=pd.Index([name], dtype=object))
            for name in (None, 1.5, b"a", ("a",), pd.NaT, "")
        ),
        pd.DataFrame({"x": [1, 2]}, index=pd.interval_range(0, 2, name="i")),
        pd.DataFrame({"x": [1, 2]}, index=pd.period_range("2020", periods=2, freq="M", name="i")),
        pd.DataFrame({"x": [1, 2]}, index=pd.Index([object(), 1], name="i")),
        pd.DataFrame({"x": [1]}, index=pd.MultiIndex.from_tuples([(None, pd.NaT)], names=["x", None])),
        pd.DataFrame({"x": []}),
        pd.DataFrame(index=[1]),
    ],
    ids=lambda frame: ascii(list(frame.columns)),
)
def test_every_frame_of_pandas_is_stored_or_refused(frame: Any) -> None:
    judge_object(frame, str(frame), column=None)


def numpy_types() -> Iterator[np.dtype[Any]]:
    """Every dtype of NumPy: by its codes, byte orders and units, and structured ones."""
    for code in np.typecodes["All"]:
        for order in "<>":
            yield np.dtype(code).newbyteorder(order)
    for unit in (one for one in ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"]):
        for code in "mM":
            yield np.dtype(f"{code}8[{unit}]")
        yield np.dtype(f">M8[25{unit}]")
    yield from map(np.dtype, ("S3", ">U3", "V2", "S0", "(2,3)i4"))
    yield np.dtype([("a", "i4"), ("b", "S2")])
    yield np.dtype([("a", "O")])
    yield np.dtypes.StringDType()


def numpy_arrays(kind: np.dtype[Any]) -> Iterator[Any]:
    for shape in ((2,), (2, 3), (0,), ()):
        yield np.zeros(shape, kind)
    if kind.kind in "Mm":
        for number in (2**62, -(2**63)):
            yield np.array([number, 0], kind.newbyteorder("=").str.replace("M8", "i8").partition("[")[0][:3]).view(kind)
    if kind.kind == "U":
        characters = np.zeros(2 * max(1, kind.itemsize // 4), np.dtype("u4").newbyteorder(kind.byteorder))
        characters[0], characters[-1] = 0xD800, 0x110000
        yield characters.view(kind if kind.itemsize else "U1")
    if kind.kind == "S":
        yield np.array([b"a\0b", b"\xff"]).astype(kind)


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.filterwarnings("ignore:Custom dtypes are saved")
def test_every_type_of_numpy_is_stored_or_refused(tmp_path: Path, step: int) -> None:
    for place, kind in enumerate(islice(numpy_types(), 0, None, step)):
        for number, array in enumerate(numpy_arrays(kind)):
            name = f"{kind!r} {array.shape}"
            judge_object({"x": array}, name)
            try:
                rows = list(array) if array.shape else [array]
            except SystemError:  # NumPy cannot read a character above the last one, and neither can a caller
                rows = []
            if rows:
                judge_object([{"x": one} for one in rows], f"{name} in rows")
            if array.shape == (2,) and rows and kind.isnative:
                masked = np.ma.array(array, mask=[True, False]) if not kind.fields else array
                judge_object({"x": masked}, f"{name}, masked")
                judge_object({"x": np.array([*array, None], object)}, f"{name} as objects")
                np.savez(tmp_path / f"{place}_{number}.npz", x=array)
                judge(lambda path=tmp_path / f"{place}_{number}.npz": open_source(path), f"{name} in an archive")
            path = tmp_path / f"{place}_{number}.npy"
            np.save(path, array)
            judge(lambda path=path: open_source(path), f"{name} in a file")


def test_times_that_the_unit_of_arrow_does_not_hold_are_refused_and_not_changed(tmp_path: Path) -> None:
    times = np.array([2**62], "i8").view("M8[h]")
    message = (
        "column 'x': values of the type datetime64[h] cannot be stored: a time does not fit into 64 bits of the unit s"
    )
    assert judge_object({"x": times}, "hours") == message
    np.save(tmp_path / "x.npy", times)
    assert judge(lambda: open_source(tmp_path / "x.npy"), "file") == (
        "x.npy: values of the dtype datetime64[h] cannot be stored: a time does not fit into 64 bits of the unit s "
        "(in the 1 values from number 1 on)"
    )
    assert judge_object({"x": np.array([1500], "m8[ps]")}, "picoseconds") is not None
    assert judge_object({"x": np.array([25], "m8[h]")}, "hours that fit") is None


def test_masked_values_are_null_and_never_the_value_below_the_mask() -> None:
    masked = np.ma.array([[1, 2], [3, 4]], mask=[[True, False], [False, False]])
    assert judge_object({"x": masked}, "masked") == (
        "column 'x': the array of shape (2, 2) has masked values, but only whole rows can be null"
    )
    assert judge_object([{"x": masked[0]}, {"x": masked[1]}], "masked rows") is None  # row 1 cannot be used
    table = next(iter(_rows([{"x": np.ma.masked}, {"x": 1}])))
    assert table.to_pylist() == [{"x": None}, {"x": 1}]


def _rows(given: Any) -> Iterator[Any]:
    source = open_object(given)
    for part in source.parts:
        yield from (rows.table for rows in part.read())


def hugging_face_features() -> Iterator[Any]:
    """Every feature of ``datasets``, and values of every dtype that its ``Value`` knows."""
    from datasets.features.features import _FEATURE_TYPES

    for kind in arrow_types(is_wrapped=False).values():
        try:
            yield datasets.Value(str(kind).partition("<")[0])
        except Exception:  # noqa: BLE001, S112 (of other systems of types)
            continue
    for one in _FEATURE_TYPES.values():
        for arguments in ({}, {"decode": False}, {"names": ["a", "b"]}, {"languages": ["de", "fr"]}):
            try:
                yield one(**arguments)
            except Exception:  # noqa: BLE001, S112 (the arguments are those of another feature)
                continue
    for number in range(2, 6):
        yield getattr(datasets, f"Array{number}D")(shape=(1,) * number, dtype="int8")


@pytest.mark.parametrize("step", EVERY)
def test_every_feature_of_hugging_face_is_stored_or_refused(tmp_path: Path, step: int) -> None:
    tried = set()
    for place, feature in enumerate(islice(hugging_face_features(), 0, None, step)):
        for kind in (feature, datasets.List(feature), {"a": feature}):
            schema = datasets.Features({"x": kind}).arrow_schema
            table = pa.table({"x": arrow_values(schema.field("x").type)}, schema)
            tried.add(type(feature).__name__)
            judge_object(datasets.Dataset(datasets.table.InMemoryTable(table)), f"{kind}")
            path = tmp_path / f"{place}.arrow"
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                writer.write(table)
            judge(lambda path=path: open_source(path), f"{kind} in a file", column="x")
    assert step > 1 or {"Value", "ClassLabel", "Image", "Audio", "Video", "Array2D", "Translation"} <= tried
