"""``registry add``: what is shown, what is written, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

PRICES = "item,price,zip,sold\nlamp,19.5,01069,2020-01-31\nchair,42.0,10115,\ndesk,120.25,80331,2021-03-01\n"
TABLE = """\
found csv: 1 CSV file (comma, UTF-8, with a header)
splits: train (one split: no folder or file is named after a split)
keys: the content of the record (there is no key column)

FEATURE  TYPE     EXAMPLE       NULLS  REASON
item     Text     "lamp"            0  the values are text
price    float64  19.5              0  every value is a decimal number
zip      Text     "01069"           0  "01069" at prices.csv:2 is not a plain decimal number
sold     Text?    "2020-01-31"      1  ISO dates or times; to convert them: --feature sold=date32, or --dates

"""


@pytest.fixture
def folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with ``prices.csv``."""
    (workspace / "here").mkdir()
    (workspace / "here/prices.csv").write_text(PRICES)
    monkeypatch.chdir(workspace / "here")
    return workspace / "here"


def rows(name: str, split: str = "train") -> list[dict[str, Any]]:
    """The records in their stored order, with text as ``str``."""
    with registry.connect() as catalog:
        return [
            {
                key: value.decode() if isinstance(value, bytes) else value.item() if hasattr(value, "item") else value
                for key, value in example.items()
            }
            for example in catalog.dataset(name).read(split)
        ]


def test_a_csv_is_published_with_one_line(cli: Cli, folder: Path) -> None:
    ran = cli("add", "prices.csv")
    assert ran.out == (
        TABLE + "published prices:1.0.0: 3 examples in 1 shard, 280 B, sha256:caba5276a07c\n"
        "canonical: prices:1.0.0, the first\n"
    )
    assert (ran.code, ran.err) == (0, "")
    assert sorted(rows("prices"), key=lambda one: one["price"]) == [
        {"item": "lamp", "price": 19.5, "zip": "01069", "sold": "2020-01-31"},
        {"item": "chair", "price": 42.0, "zip": "10115", "sold": None},
        {"item": "desk", "price": 120.25, "zip": "80331", "sold": "2021-03-01"},
    ]


def test_the_same_content_publishes_nothing(cli: Cli, folder: Path) -> None:
    cli("add", "prices.csv")
    ran = cli("add", "prices.csv")
    same = TABLE.replace("there is no key column", "the same columns as in the version before")
    assert ran.out == same + "prices:1.0.0 has this content already: nothing was published\n"
    assert ran.code == 0


def test_content_that_is_withdrawn_is_noted(cli: Cli, folder: Path) -> None:
    cli("add", "prices.csv")
    cli("yank", "prices:1.0.0", "--reason", "wrong")
    assert cli("add", "prices.csv").err == (
        "note: prices:1.0.0 is yanked (wrong); --bump patch publishes the content again\n"
    )


def test_a_dry_run_shows_the_change_and_publishes_nothing(cli: Cli, folder: Path) -> None:
    cli("add", "prices.csv")
    (folder / "prices.csv").write_text(PRICES + "shelf,75.0,20095,\n")
    ran = cli("add", "prices.csv", "--dry-run")
    assert ran.out.partition("\n\nprices:")[2] == (
        "1.0.0 -> prices:2.0.0: MAJOR\n"
        "  MAJOR  split train has 4 records, had 3\n"
        "  train: 1 added, 3 unchanged\n"
        "    record 2 is new: item 'shelf', price 75.0, sold null, zip '20095'\n"
        "smallest number after prices:1.0.0: 2.0.0\n"
        "would publish prices:2.0.0: 4 examples\n"
        "only records were added: `prices`, an alias or `prices:>=1` names growing data; `prices:1.*` stays at 1.0.0, "
        "whose slices do not change\n"
    )
    assert cli("versions", "prices", "--format", "json").json()["data"][0]["version"] == "1.0.0"


def test_a_first_dry_run_shows_the_examples_of_each_split(cli: Cli, folder: Path) -> None:
    for split, count in (("train", 3), ("val", 2)):
        (folder / f"words/{split}").mkdir(parents=True)
        (folder / f"words/{split}/a.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(count)))
    ran = cli("add", "words", "--dry-run")
    assert ran.out.endswith(
        "\n\nexamples: train 3, validation 2\nwould publish words:1.0.0: 5 examples, the first version\n"
    )


def test_a_schema_file_that_a_dry_run_wrote_gives_the_same_version(cli: Cli, folder: Path) -> None:
    wishes = ("--feature", "sold=date32", "--feature", "item=ClassLabel", "--feature", "zip=skip")
    ran = cli("add", "prices.csv", "--dry-run", "--schema-out", "prices.yaml", *wishes)
    assert "\n\ncolumns left out, as requested: zip\n" not in ran.out
    assert "\ncolumns left out, as requested: zip\n\nwould publish prices:1.0.0: 3 examples" in ran.out
    assert (folder / "prices.yaml").read_text() == (
        "# The types of columns: registry add SOURCE --schema FILE\n"
        "# A type that ends with ? may be null.\n"
        "columns:\n  item: ClassLabel(chair, desk, lamp)\n  price: float64\n  sold: date32?\n  zip: skip\n"
    )
    first = cli("add", "prices.csv", "--schema", "prices.yaml", "--format", "json").json()["data"]
    again = cli("add", "prices.csv", *wishes, "--format", "json").json()["data"]
    assert (first["outcome"], again["outcome"]) == ("published", "unchanged")
    assert [(one["name"], one["type"]) for one in first["features"]] == [
        ("item", "ClassLabel(chair, desk, lamp)"),
        ("price", "float64"),
        ("sold", "date32?"),
    ]
    ran = cli("add", "prices.csv", "--dry-run", "--schema-out", "prices.yaml")
    assert (ran.code, ran.err) == (1, "error: prices.yaml exists\nhint: Choose another file, or remove it.\n")


def test_a_column_decides_the_split_and_another_the_key(cli: Cli, folder: Path) -> None:
    (folder / "people.csv").write_text("id,part,name\n1,train,Ada\n2,test,Alan\n3,train,Grace\n")
    ran = cli("add", "people.csv", "--split-by", "part", "--key", "id")
    assert ran.out.splitlines()[1:3] == [
        "splits: by the column 'part', which is not stored",
        "keys: the column 'id' (as requested)",
    ]
    assert "\nexamples: train 2, test 1\npublished people:1.0.0: 3 examples in 2 shards" in ran.out
    assert rows("people", "test") == [{"id": 2, "name": "Alan"}]
    again = cli("add", "people.csv", "--split-by", "part")
    assert "\nkeys: the column 'id' (as in the version before)\n" in again.out
    (folder / "people.csv").write_text("id,part,name\n1,train,Ada\n2,test,Alan\n4,train,Grace\n")
    diff = cli("add", "people.csv", "--split-by", "part", "--dry-run").out
    assert sorted(re.findall("    record [0-9] (.*)", diff)) == [
        "with id 3 is gone: name 'Grace'",
        "with id 4 is new: name 'Grace'",
    ]
    back = cli("add", "people.csv", "--split-by", "part", "--key-by", "content")
    assert "\nkeys: the content of the record (as requested)\n" in back.out


def test_a_holdout_stays_when_rows_are_added(cli: Cli, folder: Path) -> None:
    def add(count: int) -> set[int]:
        (folder / "n.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(count)))
        ran = cli("add", "n.csv", "--holdout", "test=10%", "--seed", "7")
        assert "\nholdout: 10% for test, seed 7\n" in ran.out
        return {one["n"] for one in rows("n", "test")}

    few, many = add(200), add(300)
    assert 10 <= len(few) <= 30
    assert {n for n in many if n < 200} == few


def test_globs_name_the_files_of_splits(cli: Cli, folder: Path) -> None:
    for year in (2019, 2020):
        (folder / f"text/{year}").mkdir(parents=True)
        (folder / f"text/{year}/a.txt").write_text(f"{year}\n")
    cli("add", "text", "--split", "train=2019/*", "--split", "test=2020/*")
    assert [rows("text", split)[0]["text"] for split in ("train", "test")] == ["2019\n", "2020\n"]
    ran = cli("add", "text", "--split", "train=2018/*")
    assert ran.err == (
        "error: --split train=2018/* matches none of 2 files, such as '2019/a.txt', '2020/a.txt'\n"
        "hint: A glob is compared with the whole name below the source; * also matches /.\n"
    )


def test_unusable_rows_end_the_run_or_are_left_out_and_named(cli: Cli, folder: Path) -> None:
    (folder / "bad.csv").write_text("a,b\n1,x\n2\n3,y,z\n4,w\n")
    ran = cli("add", "bad.csv")
    places = "  bad.csv:3: expected 2 values, found 1\n  bad.csv:4: expected 2 values, found 3\n"
    assert (ran.code, ran.err) == (
        1,
        f"error: 2 rows or files cannot be used\n{places}hint: Correct them, or leave them out: --skip-bad 2\n",
    )
    ran = cli("add", "bad.csv", "--skip-bad", "2")
    assert (ran.code, ran.err) == (0, f"note: 2 rows or files were left out:\n{places}")
    assert [one["a"] for one in rows("bad")] in ([1, 4], [4, 1])
    stored = cli("show", "bad", "--format", "json").json()["data"]["metadata"]["skipped_rows"]
    assert len(stored) == 2


def test_the_format_of_a_csv_can_be_named(cli: Cli, folder: Path) -> None:
    (folder / "old.csv").write_bytes("NA:é\n7:\\N\n".encode("windows-1252"))
    options = ("--null", "NA", "--null", "\\N", "--no-header", "--delimiter", ":", "--encoding", "windows-1252")
    ran = cli("add", "old.csv", *options)
    assert ran.out.startswith("found csv: 1 CSV file (':', windows-1252, without a header, as requested)\n")
    assert sorted(rows("old"), key=str) == [{"column_1": 7, "column_2": None}, {"column_1": None, "column_2": "é"}]
    with registry.connect() as catalog:
        report = catalog.add(
            folder / "old.csv", nulls=["NA", "\\N"], header=False, delimiter=":", encoding="windows-1252"
        )
    assert report.outcome == "unchanged"


CARD = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: z.csv\n---\n# Gaps\n"


def test_a_repository_with_a_dataset_card_is_added_with_the_options_of_its_files(cli: Cli, folder: Path) -> None:
    (folder / "gaps").mkdir()
    (folder / "gaps/README.md").write_text(CARD)
    (folder / "gaps/z.csv").write_text("a,b\nNA,2\n")
    cli("add", "gaps")
    assert rows("gaps") == [{"a": "NA", "b": 2}]
    cli("add", "gaps", "--null", "NA", "--feature", "a=int64")
    assert rows("gaps") == [{"a": None, "b": 2}]
    ran = cli("add", "gaps", "--split", "train=*")
    assert ran.err == (
        "error: gaps: the dataset card names the files of each split\n"
        "hint: Leave out --split, or remove `configs` from README.md.\n"
    )


def test_options_for_csv_are_refused_for_other_files(cli: Cli, folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"x": 1}\n')
    ran = cli("add", "a.jsonl", "--null", "NA", "--no-header")
    assert (ran.code, ran.err) == (
        2,
        "error: only CSV files can be read with these options, and the kind of this source is json: --null, --header\n"
        "hint: Leave it out. If the files are CSV: --from csv\n",
    )


def test_a_column_without_a_name_can_be_left_out(cli: Cli, folder: Path) -> None:
    (folder / "named.jsonl").write_text('{"x": 1, "": "a"}\n')
    ran = cli("add", "named.jsonl")
    assert (ran.code, ran.err) == (
        1,
        "error: named.jsonl:1: a column has no name\n"
        "hint: Rename it: --rename-column =NAME. Or leave it out: --feature =skip\n",
    )
    cli("add", "named.jsonl", "--feature", "=skip")
    assert rows("named") == [{"x": 1}]


def test_a_number_a_part_a_reason_and_a_config_are_accepted(cli: Cli, folder: Path) -> None:
    assert cli("add", "prices.csv", "--as", "shop", "--config", "de", "--number", "0.2.0").out.splitlines()[-1] == (
        "canonical: shop/de:0.2.0, the first"
    )
    (folder / "prices.csv").write_text(
        "\n".join(f"{line},{word}" for line, word in zip(PRICES.splitlines(), ("n", 1, 2, 3), strict=True))
    )
    line = ("add", "prices.csv", "--as", "shop", "--config", "de")
    ran = cli(*line, "--bump", "patch")
    assert ran.err == (
        "error: PATCH is too small a step from shop/de:0.2.0: more has changed than it allows\n"
        "  feature n is new (Tensor int64)\n"
        "hint: Leave out --bump, or write --bump minor.\n"
    )
    assert cli(*line, "-m", "Stock is counted").out.splitlines()[-1] == "canonical: shop/de:0.3.0, replacing 0.2.0"
    notes = cli("show", "shop/de", "--format", "json").json()["data"]["release_notes"]
    assert notes == {"0.3.0": "Stock is counted"}


def test_parquet_stays_where_it_is(cli: Cli, folder: Path) -> None:
    (folder / "rows").mkdir()
    pq.write_table(pa.table({"n": [3, 1, 2]}), folder / "rows/train.parquet")
    ran = cli("add", "rows", "--in-place")
    assert ran.out.startswith("found parquet: 1 Parquet file, which stays where it is\n")
    assert [one["n"] for one in rows("rows")] == [3, 1, 2]
    assert not (folder.parent / "datasets/rows").exists()
    ran = cli("add", "rows/train.parquet", "--in-place")
    assert (ran.code, ran.err) == (
        2,
        "error: files that are read in place must be in a folder: rows/train.parquet is a file\n"
        "hint: Name the folder of the files, or leave out --in-place: then the records are copied.\n",
    )


def test_a_folder_of_images_accounts_for_every_file(cli: Cli, folder: Path) -> None:
    for number, name in enumerate(("train/cat/1.png", "train/dog/1.png", "val/cat/photo of a train.png")):
        (folder / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / "pets" / name)
    (folder / "pets/train/Thumbs.db").write_bytes(b"x")
    (folder / "pets/.DS_Store").write_bytes(b"x")
    ran = cli("add", "pets", "--format", "json").json()["data"]
    assert ran["splits"] == {"train": 2, "validation": 1}
    assert [(one["name"], one["role"]) for one in ran["source"]["files"] if one["role"] != "records"] == [
        (".DS_Store", "skipped"),
        ("train/Thumbs.db", "skipped"),
    ]
    with registry.connect() as catalog:
        pets = catalog.dataset("pets")
        assert pets.features["label"].names == ("cat", "dog")  # type: ignore[attr-defined]
        (example,) = pets.read("validation")
        assert (example["image"] == [2, 0, 0]).all()


def test_nested_messages_keep_their_types(cli: Cli, folder: Path) -> None:
    chats = [
        {"id": f"c{n}", "messages": [{"role": "user", "content": "ü"}] * n, "score": n / 7, "source": "web" * (n % 2)}
        for n in range(1, 4)
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    ran = cli("add", "chats.jsonl")
    assert ran.out.splitlines()[4:9] == [
        "FEATURE   TYPE                                 EXAMPLE                         NULLS  REASON",
        'id        Text                                 "c1"                                0  as in the source',
        'messages  list of {role: Text, content: Text}  [{role: "user", content: "ü"}]      0  as in the source',
        "score     float64                              0.14285714285714285                 0  as in the source",
        'source    Text                                 "web"                               0  as in the source',
    ]
    exported = cli("export", "jsonl", "chats", "out")
    assert exported.code == 0
    written = [json.loads(line) for line in (folder / "out/train.jsonl").read_text().splitlines()]
    assert sorted(written, key=lambda one: one["id"]) == chats


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("price.csv",),
            1,
            "error: no file or folder 'price.csv'\nhint: Did you mean 'prices.csv'? {folder} contains prices.csv.\n",
        ),
        (
            ("prices.csv", "--as", "My Prices"),
            2,
            "error: invalid dataset name 'My Prices'\n"
            "hint: A dataset name is a letter, then letters, digits and '_', e.g. mnist.\n",
        ),
        (
            ("prices.csv", "--feature", "item"),
            2,
            "error: --feature item: expected COLUMN=TYPE\nhint: For example: --feature label=ClassLabel\n",
        ),
        (
            ("prices.csv", "--split", "train"),
            2,
            "error: --split train: expected NAME=GLOB\nhint: For example: --split 'train=2019/*'\n",
        ),
        (
            ("prices.csv", "--feature", "item=Text", "--feature", "item=skip"),
            2,
            "error: --feature item is given twice\nhint: Leave one of them out.\n",
        ),
        (
            ("prices.csv", "--key", "itm"),
            2,
            "error: --key itm: there is no such column\n"
            "hint: Did you mean 'item'? The columns are: item, price, zip, sold.\n",
        ),
        (
            ("prices.csv", "--feature", "itm=Text"),
            2,
            'error: a type is requested for "itm", and there is no such column\n'
            "hint: Did you mean 'item'? The columns are: item, price, zip, sold.\n",
        ),
        (
            ("prices.csv", "--key", "content"),
            2,
            "error: --key content: there is no such column\n"
            "hint: For keys that are not in a column: --key-by content\n",
        ),
        (
            ("prices.csv", "--holdout", "test=10"),
            2,
            "error: invalid holdout 'test=10': expected NAME=PERCENT%, with a percentage above 0 and below 100\n"
            "hint: For example: test=10%\n",
        ),
        (
            ("prices.csv", "--from", "jsonl"),
            2,
            "error: 'jsonl' is not a kind of source\nhint: Did you mean 'json'? The kinds are: csv, json, parquet, "
            "arrow, images, audio, videos, text, arrays, webdataset, hugging_face, croissant.\n",
        ),
        (
            ("prices.csv", "--schema-out", "x.yaml"),
            2,
            "error: --schema-out needs --dry-run\nhint: Add --dry-run, edit the file, and pass it to --schema.\n",
        ),
        (
            ("prices.csv", "--in-place", "--key", "item"),
            2,
            "error: files that are read in place cannot be changed by these options: key\n"
            "hint: Leave out --in-place, or these options.\n",
        ),
    ],
)
def test_what_is_refused_says_what_to_do(
    empty: Cli, folder: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ran = empty("add", *arguments)
    assert (ran.code, ran.out, ran.err) == (code, "", message.format(folder=folder))
    assert empty("list", "--format", "json").json()["data"] == []


def test_a_config_that_is_left_out_is_noted_before_the_rows_are_read(cli: Cli, folder: Path) -> None:
    cli("add", "prices.csv", "--config", "small")
    for arguments in ((), ("--dry-run",)):
        ran = cli("add", "prices.csv", *arguments)
        assert (ran.code, ran.out, ran.err) == (
            4,
            "",
            "error: prices is published with configs: small\n"
            "hint: Name the config: --config NAME. Or choose another name: --as NAME\n",
        )


@pytest.mark.parametrize("has_mirror", [False, True])
def test_a_version_without_a_builder_is_mended_as_verify_says(cli: Cli, folder: Path, has_mirror: bool) -> None:
    cli("add", "prices.csv")
    home = folder.parent / "datasets/prices/1.0.0"
    shutil.copytree(home, folder / "mirror")
    if has_mirror:
        assert cli("mirror", "add", "prices", "mirror").code == 0
    (folder / "other.csv").write_text(PRICES.replace("lamp", "sofa"))
    cli("add", "other.csv", "--as", "other")
    (shard,) = home.glob("prices-train*")
    (changed,) = (folder.parent / "datasets/other/1.0.0").glob("other-train*")
    shutil.copy(changed, shard)

    ran = cli("verify", "prices")

    assert ran.code == 5
    told = ran.out.splitlines()
    copy = (
        f"its mirror: registry publish {folder}/mirror"
        if has_mirror
        else "a copy of its folder: registry publish FOLDER"
    )
    assert told[-3:] == [
        "Files that were not published are among those of this version. To restore its own, which moves them aside:",
        f"  from {copy}",
        "  from the same source: registry add SOURCE --as prices --number 1.0.0 --catalog new.db --data-dir NEW, then: "
        "registry publish NEW/prices/1.0.0",
    ]
    if has_mirror:
        assert cli("publish", str(folder / "mirror")).code == 0
    else:
        line = told[-1].partition("registry ")[2].partition(", then: registry ")
        for command in (line[0].replace("SOURCE", "prices.csv"), line[2]):
            assert cli(*command.split()).code == 0
    assert cli("verify", "prices").code == 0


def test_equal_records_of_two_splits_are_noted(cli: Cli, workspace: Path) -> None:
    folder = workspace / "rows"
    folder.mkdir()
    for split, numbers in {"train": [1, 2, 3], "test": [3, 4]}.items():
        (folder / f"{split}.jsonl").write_text("".join(f'{{"a": {n}}}\n' for n in numbers))
    dry = cli("add", str(folder), "--dry-run")
    assert dry.code == 0
    assert dry.err.startswith("note: train and test share 1 equal record, such as train ")
    assert dry.err.endswith(".\n")
    ran = cli("add", str(folder), "--format", "json")
    (note,) = ran.json()["warnings"]
    assert note.endswith(" To list them: registry split check rows:1.0.0 train test --by content")
    assert ran.json()["data"]["overlap"] == [
        {"first": "train", "second": "test", "num_values": 1, "num_first": 1, "num_second": 1}
    ]
    command = note.rpartition(": registry ")[2].split()
    assert "train and test share 1 equal record: " in cli(*command).out
    (folder / "test.jsonl").write_text('{"a": 4}\n')
    again = cli("add", str(folder), "--format", "json")
    assert (again.json()["warnings"], again.json()["data"]["overlap"]) == ([], [])


def test_a_name_that_is_not_the_last_part_of_the_path_says_where_it_comes_from(cli: Cli, workspace: Path) -> None:
    for folder, name in (("titanic", "meta.csv"), ("titanic", "ships.csv")):
        (workspace / folder).mkdir(exist_ok=True)
        (workspace / folder / name).write_text("a\n1\n")
    ran = cli("add", str(workspace / "titanic/meta.csv"), "--dry-run")
    assert ran.out.splitlines()[0] == "name: titanic (from the folder 'titanic' above 'meta'; another: --as NAME)"
    for arguments in (("ships.csv",), ("meta.csv", "--as", "titanic")):
        ran = cli("add", str(workspace / "titanic" / arguments[0]), *arguments[1:], "--dry-run")
        assert ran.out.startswith("found csv: ")
