"""Files as other programs write them: each is added as its maker meant it, or refused with a way that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import registry
from registry.errors import RegistryError
from registry.intake.schema import describe_type


@pytest.fixture
def catalog(tmp_path: Path) -> registry.Catalog:
    return registry.connect(f"sqlite:///{tmp_path}/catalog.db", data_dir=tmp_path / "data")


def refuse(catalog: registry.Catalog, source: Any, **options: Any) -> tuple[str, str | None]:
    with pytest.raises(RegistryError) as caught:
        catalog.add(source, "x", **options)
    return caught.value.message, caught.value.hint


def read(catalog: registry.Catalog, column: str) -> list[Any]:
    values = [row[column] for row in catalog.dataset("x").read("train")]
    return sorted(value.decode() if isinstance(value, bytes) else value for value in values)


WAYS: dict[str, tuple[str, str, dict[str, Any], str, list[Any]]] = {
    # what is unusual: the file, its text, options, the call of pandas in the hint, and the values of the column x
    "backslashes": (
        "a.csv",
        'x,y\n"he said \\"hi\\", ok",1\n',
        {},
        "read_csv('a.csv', sep=None, engine='python', encoding='utf-8-sig', escapechar='\\\\')",
        ['he said "hi", ok'],
    ),
    "decimal comma": (  # pandas would read the dates as numbers if points separated thousands
        *("a.csv", "\ufeffx;date\n1234,5;01.02.2024\n", {"features": {"x": "float64"}}),
        *("read_csv('a.csv', sep=None, engine='python', encoding='utf-8-sig', decimal=',')", [1234.5]),
    ),
    "points and decimal comma": (
        *("a.csv", "x;y\n1.234,5;1\n", {"features": {"x": "float64"}}),
        *("read_csv('a.csv', sep=None, engine='python', encoding='utf-8-sig', decimal=',', thousands='.')", [1234.5]),
    ),
    "thousands": (
        *("a.csv", 'x,y\n"1,234",1\n', {"features": {"x": "int32"}}),
        *("read_csv('a.csv', sep=None, engine='python', encoding='utf-8-sig', thousands=',')", [1234]),
    ),
    "names of rows": (  # as R's write.table and pandas with index_label=False write them
        *("a.csv", "x;y\nr;1;2\ns;3;4\n", {}),
        *("read_csv('a.csv', sep=None, engine='python', encoding='utf-8-sig').reset_index(names='row')", [1, 3]),
    ),
    "infinity": ("a.json", '[{"x": Infinity}]', {}, "read_json('a.json')", [float("inf")]),
    "infinity in lines": ("a.jsonl", '{"x": Infinity}', {}, "read_json('a.jsonl', lines=True)", [float("inf")]),
}


@pytest.mark.parametrize("unusual", WAYS)
def test_the_hint_reads_the_file_with_pandas(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unusual: str
) -> None:
    pandas = pytest.importorskip("pandas")
    name, text, options, call, values = WAYS[unusual]
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    _, hint = refuse(catalog, name, **options)
    assert hint is not None
    assert hint.startswith("No row fits")
    assert f": registry.add(pandas.{call}, 'NAME')" in hint
    catalog.add(eval(f"pandas.{call}", {"pandas": pandas}), "x")  # noqa: S307  # the text is above
    assert read(catalog, "x") == values
    if "date" in text:
        assert read(catalog, "date") == ["01.02.2024"]


def test_the_summary_says_how_to_read_decimal_commas(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x;y;z\n1;5,5;1,2,3\n2,25;;4,5\n")
    columns = catalog.add(tmp_path / "a.csv", dry_run=True).plan.schema.columns
    frame = "pandas.read_csv('a.csv', sep=None, engine='python', encoding='utf-8-sig', decimal=',')"
    way = f"if the comma is the decimal mark: registry.add({frame}, 'NAME')"
    assert [column.reason for column in columns] == [
        f'"2,25" at a.csv:3 is not a plain decimal number; {way}',
        f'"5,5" at a.csv:2 is not a plain decimal number; {way}',
        '"1,2,3" at a.csv:2 is not a plain decimal number',
    ]


def test_the_hint_reads_columns_that_spaces_separate(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(" 0.5  18.0   2\n 12.5  7.0   3\n")
    message, hint = refuse(catalog, "a.csv")
    call = r"read_csv('a.csv', sep=r'\s+', header=None)"
    assert (message, hint) == (
        "a.csv:1: spaces separate the values",
        f"registry.add(pandas.{call}, 'NAME'). If each line is a value: delimiter=','",
    )
    catalog.add(eval(f"pandas.{call}", {"pandas": pandas}), "x")  # noqa: S307  # the text is above
    assert read(catalog, "0") == [0.5, 12.5]


def test_quotes_that_are_text_stay_so_in_the_next_version(catalog: registry.Catalog, tmp_path: Path) -> None:
    source = tmp_path / "spoken.tsv"
    source.write_text('id\ttext\n1\t"Well" he said\n2\t"open\n')
    assert catalog.add(source, "x", quotes=False).outcome == "published"
    assert read(catalog, "text") == ['"Well" he said', '"open']
    source.write_text(source.read_text() + '3\tsaid "he"\n')
    assert catalog.add(source, "x").outcome == "published"
    assert read(catalog, "text") == ['"Well" he said', '"open', 'said "he"']


def test_a_first_quote_that_is_never_closed_may_be_text(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"a\nb\n')
    assert refuse(catalog, tmp_path / "a.csv")[1] == "Add the missing quote. If quotes are text: quotes=False"
    catalog.add(tmp_path / "a.csv", "x", quotes=False)
    assert read(catalog, '"a') == ["b"]


def test_a_number_of_more_than_64_bits_can_be_text(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 123456789012345678901234567890}\n{"x": 1}\n')
    assert refuse(catalog, tmp_path / "a.jsonl")[1] == (
        "Correct them, or leave them out: skip_bad=1. To keep the column as text: features={'x': 'Text'}"
    )


def test_null_lists_can_be_empty_lists(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": ["a"]}\n{"x": null}\n{}\n')
    assert refuse(catalog, tmp_path / "a.jsonl")[1] == (
        "Most rows do not fit. To read null as an empty list: features={'x': 'Text[]?'}"
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[1, None], None, [2]], pa.list_(pa.int64())),
        ([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
        ([[["a"], []], None, [["b"]]], pa.list_(pa.list_(pa.string()))),
    ],
)
def test_a_null_beside_lists_that_no_type_describes_is_kept(
    catalog: registry.Catalog, tmp_path: Path, values: list[Any], kind: Any
) -> None:
    table = pa.table({"id": [1, 2, 3], "x": pa.array(values, kind)})
    pq.write_table(table, tmp_path / "x.parquet")
    report = catalog.add(tmp_path / "x.parquet", "x", key="id")
    assert report.plan is not None
    assert "??" not in describe_type(report.plan.schema.columns[1])
    catalog.dataset("x").export("parquet", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").sort_by("id").to_pylist() == table.to_pylist()
    pq.write_table(table.take([0, 2]), tmp_path / "x.parquet")
    catalog.add(tmp_path / "x.parquet", "x")
    assert catalog.dataset("x").features == catalog.dataset("x:1.0.0").features


def test_the_index_of_a_frame_is_a_column_that_can_be_renamed_or_left_out(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",x\n7,1\n8,2\n")
    catalog.add(path, "index")
    assert list(catalog.dataset("index").features) == ["index", "x"]
    catalog.add(path, "x", features={"": "skip"})
    assert list(catalog.dataset("x").features) == ["x"]
    catalog.add(path, "y", rename_columns={"": "row"})
    path.write_text(",x\n7,1\n8,2\n9,3\n")
    catalog.add(path, "x")
    assert (list(catalog.dataset("x").features), read(catalog, "x")) == (["x"], [1, 2, 3])
    catalog.add(path, "index")
    assert (str(catalog.dataset("index").version), len(catalog.dataset("index").read("train"))) == ("2.0.0", 3)
    catalog.add(path, "y")
    assert list(catalog.dataset("y").features) == ["row", "x"]


def test_the_line_of_a_separator_for_excel_is_no_header(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sep=;\na;b\n1;2\n")
    assert refuse(catalog, tmp_path / "a.csv") == (
        "a.csv:1: a line that names the separator for Excel",
        "Remove the line: tail -n +2 a.csv > NAME.csv",
    )
