from __future__ import annotations

import ast
import bz2
import csv
import gzip
import io
import lzma
import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import check_errors
from support.intake_files import open_files, read_all, read_rows

from registry.errors import SourceError
from registry.intake import csv_files, text_files
from registry.intake.csv_files import open_csv
from registry.intake.options import AddOptions
from registry.intake.source import Files
from registry.storage import open_store

GOLDEN = Path(__file__).with_name("golden")


def read(folder: Path, content: bytes, **options: Any) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(open_files(open_csv, folder, content, **options))]


def told(error: SourceError) -> tuple[str, str | None]:
    return error.message, error.hint


def refuse(folder: Path, contents: Any) -> tuple[str, str | None]:
    with pytest.raises(SourceError) as caught:
        read_all(open_files(open_csv, folder, contents))
    return told(caught.value)


def bad_rows(folder: Path, content: bytes, **options: Any) -> tuple[list[int], list[str]]:
    rows, bad = read_all(open_files(open_csv, folder, content, **options))
    return [line for line, _ in rows], [str(one) for one in bad]


def test_values_stay_the_text_that_they_are(tmp_path: Path) -> None:
    content = b"a,b,c,d\n007,NA,1e5, x \nTrue,null,2020-01-01,NaN\n"
    source = open_files(open_csv, tmp_path, content)
    assert source.is_text
    assert [part.read and next(iter(part.read())).table.schema.types for part in source.parts] == [[pa.string()] * 4]
    assert read_rows(source) == [
        (2, {"a": "007", "b": "NA", "c": "1e5", "d": " x "}),
        (3, {"a": "True", "b": "null", "c": "2020-01-01", "d": "NaN"}),
    ]


def test_an_empty_field_is_null_and_a_quoted_one_is_the_empty_text(tmp_path: Path) -> None:
    assert read(tmp_path, b'a,b\n,""\n"",\n') == [{"a": None, "b": ""}, {"a": "", "b": None}]


@pytest.mark.parametrize("block_bytes", [4, 2**20])
def test_texts_that_are_named_as_null_are_null_unless_they_are_in_quotes(tmp_path: Path, block_bytes: int) -> None:
    content = b'a,b\nNA,\\N\n"NA",nan\n, NA\n'
    given = AddOptions(nulls=("NA", "\\N"))
    source = open_files(open_csv, tmp_path, content, given=given, block_bytes=block_bytes)
    assert [row for _, row in read_rows(source)] == [
        {"a": None, "b": None},
        {"a": "NA", "b": "nan"},
        {"a": None, "b": " NA"},
    ]


@pytest.mark.parametrize("block_bytes", [4, 2**20])
def test_texts_that_are_named_with_quotes_are_null_in_quotes_too(tmp_path: Path, block_bytes: int) -> None:
    content = b'a,b\n"NA",""\nNA,"-"\n"x",-\n'
    given = AddOptions(nulls=('"NA"', '""', "-"))
    source = open_files(open_csv, tmp_path, content, given=given, block_bytes=block_bytes)
    assert [row for _, row in read_rows(source)] == [
        {"a": None, "b": None},
        {"a": None, "b": "-"},
        {"a": "x", "b": None},
    ]
    without_quotes = open_files(open_csv, tmp_path, b'a\n"NA"\nNA\n', given=AddOptions(nulls=('"NA"',), quotes=False))
    assert [row for _, row in read_rows(without_quotes)] == [{"a": None}, {"a": "NA"}]


def test_a_header_can_be_requested_or_refused(tmp_path: Path) -> None:
    content = b"x,y\nx,z\n"
    assert read(tmp_path, content, given=AddOptions(header=False)) == [
        {"column_1": "x", "column_2": "y"},
        {"column_1": "x", "column_2": "z"},
    ]
    numbered = b"7,x\na,b\n"
    source = open_files(open_csv, tmp_path, numbered, given=AddOptions(header=True))
    assert (source.summary, read_rows(source)) == (
        "1 CSV file (comma, UTF-8, with a header, as requested)",
        [(2, {"7": "a", "x": "b"})],
    )
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, b"a,a\nb,c\n", given=AddOptions())
    assert caught.value.hint == (
        "Give each column its own name in the first line of the file. If that line is data: header=False"
    )


@pytest.mark.parametrize(
    ("given", "mark", "word"), [(":", ":", "':'"), ("tab", "\t", "tab"), ("\\t", "\t", "tab"), (",", ",", "comma")]
)
def test_a_delimiter_can_be_requested(tmp_path: Path, given: str, mark: str, word: str) -> None:
    content = f'a;b{mark}"c{mark}d"\n1;2{mark}"x{mark}""y"\n'.encode()
    source = open_files(open_csv, tmp_path, content, given=AddOptions(delimiter=given))
    assert source.summary == f"1 CSV file ({word}, UTF-8, with a header)"
    assert read_rows(source) == [(2, {"a;b": "1;2", f"c{mark}d": f'x{mark}"y'})]


@pytest.mark.parametrize("block_bytes", [3, 2**20])
@pytest.mark.parametrize("codec", ["windows-1252", "utf-16-le", "shift_jis", "utf-8"])
def test_an_encoding_can_be_requested(tmp_path: Path, codec: str, block_bytes: int) -> None:
    text = "ﾃ,b\nx,ｱ\n" if codec == "shift_jis" else "é,b\nx,ü\n"
    given = AddOptions(encoding=codec)
    source = open_files(open_csv, tmp_path, text.encode(codec), given=given, block_bytes=block_bytes)
    names = text.splitlines()
    row = dict(zip(names[0].split(","), names[1].split(","), strict=True))
    assert [found for _, found in read_rows(source)] == [row]


def test_utf_16_without_a_mark_needs_its_byte_order(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, b"a,b\n1,2\n", given=AddOptions(encoding="UTF-16"))
    assert caught.value.message == "data.csv:1: byte 0 is not UTF-16"


def test_bytes_that_are_not_in_the_requested_encoding_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, b"a,b\n1,\x81\n", given=AddOptions(encoding="windows-1252"))
    assert told(caught.value) == (
        "data.csv:2: byte 6 is not windows-1252",
        "Name another encoding, such as: encoding='MACINTOSH'. Or leave out `encoding`.",
    )
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, b"a,b\r1,2\r\n3,\x81\r", given=AddOptions(encoding="windows-1252"))
    assert caught.value.message == "data.csv:3: byte 11 is not windows-1252"
    with pytest.raises(SourceError) as caught:
        read_all(open_files(open_csv, tmp_path, "a,b\n1,é\n".encode("latin-1"), given=AddOptions()))
    assert told(caught.value) == (
        "data.csv:2: byte 6 is not UTF-8",
        "If you know the encoding, name it, such as: encoding='WINDOWS-1252'",
    )


def test_a_malformed_option_is_refused(tmp_path: Path) -> None:
    check_errors(
        GOLDEN / "intake_csv" / "a_malformed_option_is_refused.txt",
        (
            partial(open_files, open_csv, tmp_path, b"a,b\n1,2\n", given=given)
            for given in [
                AddOptions(encoding="latin-0"),
                AddOptions(encoding="hex"),
                AddOptions(encoding="idna"),
                AddOptions(nulls=("NA", "\ud800")),
                AddOptions(delimiter="::"),
                AddOptions(delimiter='"'),
            ]
        ),
        folder=tmp_path,
    )


@pytest.mark.parametrize(
    ("delimiter", "word"), [(",", "comma"), (";", "semicolon"), ("\t", "tab"), ("|", "vertical bar")]
)
def test_the_delimiter_is_found_and_stated(tmp_path: Path, delimiter: str, word: str) -> None:
    content = f"id{delimiter}text\n1{delimiter}a, b; c\n".replace("a, b; c", "a" if delimiter in ",;" else "a, b; c")
    source = open_files(open_csv, tmp_path, content.encode())
    assert source.summary == f"1 CSV file ({word}, UTF-8, with a header)"
    assert read_rows(source)[0][1]["id"] == "1"


def test_a_delimiter_inside_values_does_not_win(tmp_path: Path) -> None:
    assert read(tmp_path, b"id;price, in EUR\n1;2,50\n2;3\n") == [
        {"id": "1", "price, in EUR": "2,50"},
        {"id": "2", "price, in EUR": "3"},
    ]


def test_a_file_of_one_column_needs_no_delimiter(tmp_path: Path) -> None:
    assert read(tmp_path, b"text\nhello\nworld\n") == [{"text": "hello"}, {"text": "world"}]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_is_read(tmp_path: Path, newline: bytes) -> None:
    content = newline.join([b"a,b", b"x,1", b"", b"y,2", b""])
    assert read_rows(open_files(open_csv, tmp_path, content)) == [
        (2, {"a": "x", "b": "1"}),
        (4, {"a": "y", "b": "2"}),
    ]


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 2**20])
def test_lines_count_line_ends_in_quotes_and_blank_lines(tmp_path: Path, block_bytes: int) -> None:
    content = b'\n\na,b\n\n1,"x\ny\n\nz"\n\n\n2\n3,"u""\n"\r\n4,5,6\r\n5,last'
    assert bad_rows(tmp_path, content, block_bytes=block_bytes) == (
        [5, 12, 15],
        ["data.csv:11: expected 2 values, found 1", "data.csv:14: expected 2 values, found 3"],
    )


@pytest.mark.parametrize("block_bytes", [1, 5, 2**20])
def test_quotes_in_the_middle_of_a_field_are_text(tmp_path: Path, block_bytes: int) -> None:
    content = b'size,name\n5" pipe,a\n6" pipe,"b ""c"" \nd"\n"7"" pipe",e"f\n8,"g"\n9,z"'
    assert [(line, list(row.values())) for line, row in read_rows(open_files(open_csv, tmp_path, content))] == [
        (2, ['5" pipe', "a"]),
        (3, ['6" pipe', 'b "c" \nd']),
        (5, ['7" pipe', 'e"f']),
        (6, ["8", "g"]),
        (7, ["9", 'z"']),
    ]
    assert len(read(tmp_path, content, block_bytes=block_bytes)) == 5


@pytest.mark.parametrize("block_bytes", [1, 5, 2**20])
@pytest.mark.parametrize("size", ["5", '5" pipe'])
def test_text_after_a_closing_quote_is_a_bad_row(tmp_path: Path, size: str, block_bytes: int) -> None:
    lines = [
        *("size,said", f'{size},"a ""b"""', r'2,"\"hi\" he said"', "", '3,"x" y', '4,"open', '5,closed" z'),
        *(r'6,"\"', '7,"c\0"d', '8,""'),
    ]
    source = open_files(open_csv, tmp_path, "\n".join(lines).encode(), block_bytes=block_bytes)
    rows, bad = read_all(source)
    assert [tuple(row.values()) for _, row in rows] == [(size, 'a "b"'), ("6", "\\"), ("8", "")]
    assert list(map(str, bad)) == [
        "data.csv:3: text follows the closing quote of a field",
        "data.csv:5: text follows the closing quote of a field",
        "data.csv:6: text follows the closing quote of a field",
        "data.csv:9: contains a NUL byte",
    ]


@pytest.mark.parametrize("content", [b'"a" x,b\n1,2\n', b'\na,"b"x'])
def test_text_after_a_closing_quote_in_the_header_is_refused(tmp_path: Path, content: bytes) -> None:
    line = 1 + content.startswith(b"\n")
    assert refuse(tmp_path, content)[0] == f"data.csv:{line}: text follows the closing quote of a field"


def test_a_quote_that_is_never_closed_is_a_bad_row(tmp_path: Path) -> None:
    assert bad_rows(tmp_path, b'a,b\n1,2\n3,"x\n4,5\n6,7\n', block_bytes=4) == (
        [2],
        ["data.csv:3: a quote in this row is never closed"],
    )
    assert refuse(tmp_path, b'"a,b\n1,2\n') == (
        "data.csv:1: a quote in this row is never closed",
        "Add the missing quote.",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"5.1,a\n4.9,b\n",
        b"a,1\nb,2\n",
        b'"1","a"\n"2","b"\n',
        b"3\n4\n",
        b"NA,5\n3,6\n",
        b"\\N,5\n3,6\n",
        b"1,5;a\n2,5;b\n",
        b"x,2020\ny,5\n",
        b"2020,2019\n5,6\n",
        b"Grant,1923,1931\nLee,1931,1940\n",
        b"x,2000\ny,2000.25\n",
        b"x;2000\ny;2000,25\n",
        b"0\n0.5\n",
    ],
)
def test_a_first_row_with_a_number_is_not_a_header(tmp_path: Path, content: bytes) -> None:
    source = open_files(open_csv, tmp_path, content)
    assert "without a header, because the first row contains the number " in source.summary
    rows = read_rows(source)
    assert len(rows) == 2
    assert list(rows[0][1]) == ["column_1", "column_2", "column_3"][: len(rows[0][1])]


@pytest.mark.parametrize(
    "header", [b"0,1,2", b"country,1990,1991", b'"1","a b","2020"', b'"1","5","9"', b"a,b2,3c", b"2019,2020,2021"]
)
def test_numbers_that_pandas_or_years_put_into_a_header_are_names(tmp_path: Path, header: bytes) -> None:
    source = open_files(open_csv, tmp_path, header + b"\n7,8,9\n")
    assert source.summary == "1 CSV file (comma, UTF-8, with a header)"
    assert list(read_rows(source)[0][1].values()) == ["7", "8", "9"]


@pytest.mark.parametrize(
    "content", [b"state,2018\nMaine,-1.5\nOhio,22.25\n", b"state,2018\nMaine,D+1\n", b"0\nA 2\nB 3\n"]
)
def test_a_single_year_and_a_zero_above_other_values_are_names(tmp_path: Path, content: bytes) -> None:
    source = open_files(open_csv, tmp_path, content)
    assert source.summary == "1 CSV file (comma, UTF-8, with a header)"
    assert [line for line, _ in read_rows(source)] == list(range(2, content.count(b"\n") + 1))


@pytest.mark.parametrize("content", [b"dog,yes\ncat,yes\ndog,no\n", b"x,x\no,o\nx,o\no,x\n"])
def test_a_first_row_whose_texts_occur_again_is_not_a_header(tmp_path: Path, content: bytes) -> None:
    source = open_files(open_csv, tmp_path, content)
    assert source.summary == (
        "1 CSV file (comma, UTF-8, without a header, because the first row has only texts that occur again below them)"
    )
    assert len(read_rows(source)) == content.count(b"\n")


@pytest.mark.parametrize("repeated", [b"pet,good", b'"pet","good"'])
def test_a_header_that_is_repeated_is_a_header(tmp_path: Path, repeated: bytes) -> None:
    source = open_files(open_csv, tmp_path, b"pet,good\ndog,yes\n%b\ncat,yes\npet,good\n" % repeated)
    assert source.summary == "1 CSV file (comma, UTF-8, with a header)"


def test_columns_that_two_colons_separate_are_refused(tmp_path: Path) -> None:
    assert refuse(tmp_path, b"1::1193::5::978300760\n1::661::3::978302109\n") == (
        "data.csv:1: '::' separates the values",
        "registry.add(pandas.read_csv('data.csv', sep='::', engine='python', header=None), 'NAME')",
    )
    assert len(read(tmp_path / "addresses", b"address\nfe80::1\nfe80::2\n")) == 2


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b" 0.1  18.0  2\n 12.5  7.0  3\n", r", sep=r'\s+', header=None"),
        (b"x y\n1 2.5\n3 4\n", r", sep=r'\s+'"),
    ],
)
def test_columns_that_spaces_separate_are_refused(tmp_path: Path, content: bytes, options: str) -> None:
    assert refuse(tmp_path, content) == (
        "data.csv:1: spaces separate the values",
        f"registry.add(pandas.read_csv('data.csv'{options}), 'NAME')",
    )
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, content, given=AddOptions())
    assert (caught.value.hint or "").endswith(". If each line is a value: delimiter=','")
    assert len(read(tmp_path, content, given=AddOptions(delimiter=",", header=False))) == content.count(b"\n")


@pytest.mark.parametrize(
    "content", [b"place\n12 Main St\n7 Lake Rd\n", b"full name\nAnn Li\nBo Ek\n", b"a b\n1 2\n3\n"]
)
def test_a_column_of_texts_with_spaces_is_a_column(tmp_path: Path, content: bytes) -> None:
    assert len(read(tmp_path, content)) == content.count(b"\n") - 1


@pytest.mark.parametrize("content", [b"id,1\n7,8\n9,0\n", b"a;2020\n1,5;7\n", b"city,1990,2000,2020\nRome,1,2,3\n"])
def test_a_text_above_numbers_shows_a_header(tmp_path: Path, content: bytes) -> None:
    source = open_files(open_csv, tmp_path, content)
    assert source.summary.endswith("with a header)")
    assert len(read_rows(source)) == content.count(b"\n") - 1


def test_a_column_without_a_name_is_an_error(tmp_path: Path) -> None:
    assert refuse(tmp_path, b",a,index\n0,1,2\n") == (
        "data.csv:1: column 1 of 3 has no name",
        "Give it a name in the first line of the file.",
    )
    assert refuse(tmp_path, b"\na,b,\n0,1,2\n") == (
        "data.csv:2: column 3 of 3 has no name",
        "Give it a name in the first line of the file.",
    )
    assert refuse(tmp_path, b"Sales,,\nid,x,y\n") == (
        "data.csv:1: columns 2 and 3 have no name",
        "Give each column its own name in the first line of the file, or remove the lines above the header.",
    )


def test_several_columns_without_a_name_can_be_left_out(tmp_path: Path) -> None:
    content = b"id,,n,\n1,,2,\n3,x,4,y\n"
    given = AddOptions(features={"": "skip"})
    source = open_files(open_csv, tmp_path, content, given=given)
    assert [{name: row[name] for name in ("id", "n")} for _, row in read_rows(source)] == [
        {"id": "1", "n": "2"},
        {"id": "3", "n": "4"},
    ]


def test_a_first_column_without_a_name_is_an_index(tmp_path: Path) -> None:
    source = open_files(open_csv, tmp_path, b",a,b\n0,1,2\n3,4,5\n")
    assert source.summary == (
        "1 CSV file (comma, UTF-8, with a header, in which column 1 has no name: it is called index)"
    )
    assert read_rows(source) == [(2, {"index": "0", "a": "1", "b": "2"}), (3, {"index": "3", "a": "4", "b": "5"})]


def test_spaces_around_names_are_stated(tmp_path: Path) -> None:
    source = open_files(open_csv, tmp_path, b"a, b,c \n1, 2,3\n")
    assert source.summary == "1 CSV file (comma, UTF-8, with a header, with spaces around ' b', 'c ')"


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    assert refuse(tmp_path, b"x,a,b,a\n") == (
        "data.csv:1: columns 2 and 4 are both named 'a'",
        "Give each column its own name in the first line of the file.",
    )


@pytest.mark.parametrize(
    ("codec", "encoding"), [("utf-8-sig", "UTF-8"), ("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-8", "UTF-8")]
)
@pytest.mark.parametrize("block_bytes", [3, 2**20])
def test_byte_order_marks_are_read(tmp_path: Path, codec: str, encoding: str, block_bytes: int) -> None:
    content = "naïve,b\n😀,ü\n".encode(codec)
    source = open_files(open_csv, tmp_path, content, block_bytes=block_bytes)
    assert source.summary == f"1 CSV file (comma, {encoding}, with a header)"
    assert read_rows(source) == [(2, {"naïve": "😀", "b": "ü"})]


def test_other_bytes_are_an_error_with_line_and_byte(tmp_path: Path) -> None:
    hint = (
        "If you know the encoding, convert the file, such as: "
        "iconv -f WINDOWS-1252 -t UTF-8 data.csv > converted && mv converted data.csv"
    )
    assert refuse(tmp_path, "a,b\n1,2\n\n3,é\n".encode("latin-1")) == ("data.csv:4: byte 11 is not UTF-8", hint)
    late = b"a,b\n" + b"x,y\n" * 100_000 + b"1,\xff\n"
    assert refuse(tmp_path, late) == ("data.csv:100002: byte 400006 is not UTF-8", hint)
    assert refuse(tmp_path, gzip.compress(late)) == (
        "data.csv:100002: byte 400006 of the decompressed file is not UTF-8",
        hint,
    )
    assert refuse(tmp_path, "\ufeffa,b\n".encode() + b"\xe9,2\n") == ("data.csv:2: byte 7 is not UTF-8", hint)


def test_damaged_utf_16_is_an_error(tmp_path: Path) -> None:
    content = "a,b\n1,2\n".encode("utf-16") + b"\x00\xd8" + "x,3\n".encode("utf-16-le")
    assert refuse(tmp_path, content) == (
        "data.csv:3: byte 18 is not UTF-16",
        "The file is damaged or truncated. Get it again, or save it as UTF-8.",
    )


@pytest.mark.parametrize(("codec", "name"), [("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE")])
def test_utf_16_without_a_mark_is_an_error(tmp_path: Path, codec: str, name: str) -> None:
    assert refuse(tmp_path, "a,b\n1,2\n".encode(codec)) == (
        "data.csv:1: byte 0: the text seems to be UTF-16 without a byte order mark",
        f"Convert it: iconv -f {name} -t UTF-8 data.csv > converted && mv converted data.csv",
    )


@pytest.mark.parametrize("block_bytes", [2, 2**20])
def test_rows_with_nul_bytes_are_bad(tmp_path: Path, block_bytes: int) -> None:
    content = b'a,b\n1,2\n3,\0\n5\n"\n\0",6\n7,"8\n"\n\0\0\0'
    assert bad_rows(tmp_path, content, block_bytes=block_bytes) == (
        [2, 7],
        [
            "data.csv:3: contains a NUL byte",
            "data.csv:4: expected 2 values, found 1",
            "data.csv:5: contains a NUL byte",
            "data.csv:9: contains a NUL byte",
        ],
    )


def test_gzip_is_recognized_by_its_bytes(tmp_path: Path) -> None:
    content = gzip.compress(b"a\tb\n1\t2\n") + gzip.compress(b"3\t4\n")
    assert len(read_rows(open_files(open_csv, tmp_path, {"data.tsv.gz": content}))) == 2


COMPRESSORS: dict[str, Any] = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


@pytest.mark.parametrize("block_bytes", [7, 2**20])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_files_of_other_compressions_are_read_like_plain_ones(tmp_path: Path, name: str, block_bytes: int) -> None:
    compress = COMPRESSORS[name]
    lines = b"".join(b"%d\tx%d\n" % (number, number) for number in range(100))
    content = compress(b"a\tb\n" + lines) + compress(lines)  # of two streams
    source = open_files(open_csv, tmp_path, {f"data.tsv.{name}": content}, block_bytes=block_bytes)
    assert source.summary == "1 CSV file (tab, UTF-8, with a header)"
    assert [row["a"] for _, row in read_rows(source)] == [str(number) for number in range(100)] * 2


@pytest.mark.parametrize(("name", "word"), [("bz2", "bzip2"), ("xz", "xz"), ("zst", "Zstandard")])
def test_a_damaged_stream_of_other_compressions_is_an_error(tmp_path: Path, name: str, word: str) -> None:
    whole = COMPRESSORS[name](b"a,b\n" + bytes(random.Random(0).choices(b"123456789,\n", k=100_000)))
    told_of = f"data.csv: the {word} stream is damaged or ends too early", "Download or create it again."
    assert refuse(tmp_path, whole[:-20]) == told_of
    assert refuse(tmp_path, whole[:8] + b"\xff" * 20 + whole[28:]) == told_of


def test_damaged_gzip_is_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    assert refuse(tmp_path, whole[:-20]) == ("data.csv: the gzip stream ends too early", "Download or create it again.")


def test_a_row_of_any_length_is_read_or_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (text_files, csv_files):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", 5000)
    start = b"a,b\n1,2\n"
    assert len(read(tmp_path, start + b"3," + b"x" * 4997 + b"\n4,5\n", block_bytes=16)) == 3
    message, hint = refuse(tmp_path, start + b'3,"' + b"4,5\n" * 100_000)
    assert message == "data.csv:3: the row that starts here is longer than 5,000 bytes"
    assert hint == "Look at it, and for a quote that is never closed: cat data.csv | sed -n 3p | head -c 1000"
    monkeypatch.setattr(csv_files, "_SAMPLE_BYTES", 100)
    assert refuse(tmp_path, b"x" * 100_000)[0] == "data.csv:1: the row that starts here is longer than 5,000 bytes"


def test_a_line_of_a_gigabyte_is_refused_after_64_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,b\n1,2\n3,")
    with path.open("r+b") as file:
        file.truncate(2**30)  # takes no space on the disk
    files = Files(store=open_store(str(tmp_path)), names=["data.csv"], sizes=[2**30], location=str(path))
    (part,) = open_csv(files, AddOptions()).parts
    rows = part.read()
    assert next(rows).table.num_rows == 1
    with pytest.raises(SourceError) as caught:
        next(rows)
    assert caught.value.message == "data.csv:3: the row that starts here is longer than 67,108,864 bytes"


def test_ten_thousand_columns_are_read(tmp_path: Path) -> None:
    names = [f"feature_{place}" for place in range(10_000)]
    content = "\n".join([",".join(names), *(",".join([str(row)] * 10_000) for row in range(3))]).encode()
    rows = read(tmp_path, content)
    assert list(rows[0]) == names
    assert [row["feature_9999"] for row in rows] == ["0", "1", "2"]


def test_files_with_the_same_columns_in_another_order_are_one_source(tmp_path: Path) -> None:
    source = open_files(open_csv, tmp_path, {"1.csv": b"a,b\n1,2\n", "2.csv": b"b;a\n3;4\n", "3.csv": b"\n\n"})
    assert source.summary == "2 CSV files (comma or semicolon, UTF-8, with a header)"
    tables = [rows.table for part in source.parts for rows in part.read()]
    assert [table.column_names for table in tables] == [["a", "b"], ["a", "b"]]
    assert [row for _, row in read_rows(source)] == [{"a": "1", "b": "2"}, {"a": "4", "b": "3"}]
    assert [(use.name, use.role, use.reason) for use in source.files] == [
        ("1.csv", "records", ""),
        ("2.csv", "records", ""),
        ("3.csv", "skipped", "it has no rows"),
    ]


@pytest.mark.parametrize(
    ("names", "options", "offer"),
    [
        (("train_1.csv", "train_x.csv", "test_1.csv"), AddOptions(), ""),
        (("train/1.csv", "train/x.csv", "test/1.csv"), AddOptions(), ""),
        (
            ("test/1.csv", "test/x.csv", "test/2.csv"),
            AddOptions(),
            " To choose files: splits={'test': 'test/[0-9]*.csv'}",
        ),
        (("1.csv", "x.csv", "b.csv"), AddOptions(splits={"train": "[1x].csv", "test": "b.csv"}), ""),
    ],
)
def test_no_glob_that_loses_a_split_is_offered(
    tmp_path: Path, names: tuple[str, ...], options: AddOptions, offer: str
) -> None:
    contents = dict(zip(names, (b"a\n1\n", b"b\n2\n", b"a\n3\n"), strict=True))
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, contents, given=options)
    assert (caught.value.hint or "").endswith(f"Add the others as another dataset.{offer}")


def test_files_with_other_columns_are_an_error(tmp_path: Path) -> None:
    hint = "The files and splits of a dataset must have the same columns. Add the others as another dataset."
    one, choice = " If they are one table, with null where a file lacks a column:", " To choose files:"
    choice += " splits={'train': '1.csv'}"
    assert refuse(tmp_path / "1", {"1.csv": b"a,b\n1,2\n", "2.csv": b"a,c,d\n3,4,5\n"}) == (
        "1.csv and 2.csv have different columns: 2.csv lacks 'b', and 1.csv lacks 'c', 'd'",
        f"{hint}{one} features={{'b': '?', 'c': '?', 'd': '?'}}.{choice}",
    )
    assert refuse(tmp_path / "2", {"1.csv": b"a,b\n1,2\n", "2.csv": b"a\nx\n"}) == (
        "1.csv and 2.csv have different columns: 2.csv lacks 'b'",
        f"{hint}{one} features={{'b': '?'}}.{choice}",
    )
    tables = {"sales 2023.csv": b"a\nx\n", "sales 2024.csv": b"a\ny\n", "shops.csv": b"b\nz\n"}
    choose = "{'train': 'sales [0-9]*.csv'}"
    assert (refuse(tmp_path / "4", tables)[1] or "").endswith(f"To choose files: splits={choose}")
    source = open_files(open_csv, tmp_path / "4", tables, given=AddOptions(splits=ast.literal_eval(choose)))
    assert [part.name for part in source.parts] == ["sales 2023.csv", "sales 2024.csv"]
    assert refuse(tmp_path / "3", {"1.csv": b"a,b\n1,2\n", "2.csv": b"3,4\n"}) == (
        "1.csv has a header ('a', 'b'), but 2.csv has none: its first row contains the number 3",
        "Write the same header to all files, or remove it from all.",
    )


def test_columns_that_may_be_null_may_be_missing_in_some_files(tmp_path: Path) -> None:
    contents = {"1.csv": b"a,b\n1,2\n", "2.csv": b"c,a\n3,4\n", "3.csv": b"a\n5\n"}
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, contents)
    assert "with null where a file lacks a column: features={'b': '?', 'c': '?'}." in (caught.value.hint or "")
    source = open_files(open_csv, tmp_path, contents, given=AddOptions(features={"b": "?", "c": "int8?"}))
    assert [row for _, row in read_rows(source)] == [{"a": "1", "b": "2"}, {"a": "4", "c": "3"}, {"a": "5"}]
    with pytest.raises(SourceError) as caught:
        open_files(open_csv, tmp_path, contents, given=AddOptions(features={"b": "?", "c": "int8"}))
    assert caught.value.message == "1.csv and 2.csv have different columns: 1.csv lacks 'c'"


def test_files_without_rows_are_an_error(tmp_path: Path) -> None:
    assert refuse(tmp_path, {"1.csv": b"", "2.csv": b"\r\n"}) == (
        f"{tmp_path}: 2 CSV files have no rows",
        "A dataset has at least one record. Check what wrote the file.",
    )


def test_splits_come_from_names_or_globs(tmp_path: Path) -> None:
    contents = {"test.csv": b"a\nx\n", "train.csv": b"a\ny\n"}
    source = open_files(open_csv, tmp_path, contents)
    assert source.splits == ("train", "test")
    assert source.split_reason == "from the names of files"
    source = open_files(open_csv, tmp_path, contents, splits={"some": "test*"})
    assert source.splits == ("some",)
    assert [(use.name, use.role, use.reason, use.split) for use in source.files] == [
        ("test.csv", "records", "", "some"),
        ("train.csv", "skipped", "no glob matches it", None),
    ]


def test_a_header_that_changes_after_opening_is_an_error(tmp_path: Path) -> None:
    source = open_files(open_csv, tmp_path, b"a,b\n1,2\n")
    (tmp_path / "data.csv").write_bytes(b"a,c\n1,2\n")
    with pytest.raises(SourceError) as caught:
        list(source.parts[0].read())
    assert told(caught.value) == (
        "data.csv:1: the header has changed since the file was opened",
        "Wait until the program that writes the file has ended, then try again.",
    )


def test_rows_are_bounded(tmp_path: Path) -> None:
    source = open_files(open_csv, tmp_path, b"a,b\n" + b"1,2\n3\n" * 40_000)
    every = list(source.parts[0].read())
    assert 10_000 < max(len(rows.lines) for rows in every) <= 16_384
    assert 10_000 < max(len(rows.bad) for rows in every) <= 16_384
    assert sum(rows.table.num_rows for rows in every) == 40_000
    assert [one.line for rows in every for one in rows.bad] == list(range(3, 80_003, 2))


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6) | st.text('a",;|\t\n\r ', max_size=6)


@given(
    rows=st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=8)),
    delimiter=st.sampled_from(",;\t|"),
    # Before Python 3.13, csv does not quote a "\\r" if lines end with "\\n": then it ends a line, for pandas, too.
    newline_and_quoting=st.sampled_from([("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL)]),
    block_bytes=st.sampled_from([1, 3, 17, 2**20]),
    data=st.data(),
)
def test_what_csv_writes_is_read_equal(
    rows: list[list[str]],
    delimiter: str,
    newline_and_quoting: tuple[str, Any],
    block_bytes: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if not rows or len(rows[0]) == 1:
        delimiter = ","  # of a file of one column, nothing shows another one
    names = [f"name{place}" for place in range(len(rows[0]) if rows else 1)]
    cut = data.draw(st.integers(0, len(rows)))
    folder = tmp_path_factory.mktemp("written")

    def write(some: list[list[str]]) -> bytes:
        file = io.StringIO(newline="")
        newline, quoting = newline_and_quoting
        writer = csv.writer(file, delimiter=delimiter, lineterminator=newline, quoting=quoting)
        writer.writerows([names, *some])
        return file.getvalue().encode()

    def values(contents: dict[str, bytes]) -> list[list[str]]:
        source = open_files(open_csv, folder, contents, block_bytes=block_bytes)
        return [[value or "" for value in row.values()] for _, row in read_rows(source)]

    assert values({"all.csv": write(rows)}) == rows
    assert values({"1.csv": write(rows[:cut]), "2.csv": write(rows[cut:])}) == rows


@given(
    rows=st.lists(st.tuples(*[st.text('a" é,', max_size=5)] * 2).filter(any), max_size=8),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    block_bytes=st.sampled_from([1, 3, 2**20]),
)
def test_quotes_are_text_on_request(
    rows: list[tuple[str, str]], newline: str, block_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = ['x\t"y', *map("\t".join, rows), '"', '\0"\t']
    source = open_files(
        open_csv,
        tmp_path_factory.mktemp("quotes"),
        {"data.tsv": newline.join(lines).encode()},
        given=AddOptions(quotes=False, header=True),
        block_bytes=block_bytes,
    )
    assert source.summary == "1 CSV file (tab, quotes are text, UTF-8, with a header, as requested)"
    found, bad = read_all(source)
    assert found == [
        (line, {"x": first or None, '"y': second or None}) for line, (first, second) in enumerate(rows, start=2)
    ]
    assert list(map(str, bad)) == [
        f"data.tsv:{len(rows) + 2}: expected 2 values, found 1",
        f"data.tsv:{len(rows) + 3}: contains a NUL byte",
    ]


@given(
    content=st.text('a",\n\r', max_size=30).map(str.encode),
    block_bytes=st.sampled_from([1, 2, 5]),
    quotes=st.booleans(),
)
def test_blocks_make_no_difference(
    content: bytes, block_bytes: int, quotes: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, options = tmp_path_factory.mktemp("blocks"), AddOptions(quotes=quotes)
    content = b"x,y\n" + content
    whole = read_all(open_files(open_csv, folder, content, given=options))
    assert read_all(open_files(open_csv, folder, content, given=options, block_bytes=block_bytes)) == whole


@pytest.mark.long
def test_lines_are_right_at_row_900_000(tmp_path: Path) -> None:
    content = b"a,b\n" + b'1,"x\ny"\n' * 300_000 + b"2,z\n\n" * 600_000 + b"3\n" + b"4,u\n" * 100_000
    rows, bad = read_all(open_files(open_csv, tmp_path, content))
    assert len(rows) == 1_000_000
    assert [str(one) for one in bad] == ["data.csv:1800002: expected 2 values, found 1"]
    assert [rows[place][0] for place in (0, 299_999, 300_000, 899_999, 900_000, -1)] == [
        2,
        600_000,
        600_002,
        1_800_000,
        1_800_003,
        1_900_002,
    ]
