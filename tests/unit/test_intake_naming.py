"""The name of a dataset from a path, and the form of a place in which two texts for it are equal."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import OtherSourceError, UsageError
from registry.intake.listing import derive_name, name_of_path, place_of
from registry.model import NameUse, Producer, Reference, Version, check_continues, check_new_name, is_generic

GENERIC = (
    *("train", "training", "data", "test", "val", "valid", "validation", "dev", "eval", "dataset", "datasets", "input"),
    *("output", "file", "part-00000", "train-00000-of-00002", "index", "metadata", "default", "images", "Train"),
    *("TRAINING", "data (1)", "data-2024", "2024-01-31", "train_1", "x_train", "train.v2", "val2017", "test_images"),
    *("testset", "trainset", "train_set", "test_set", "my_dataset", "MyDataset", "mydata", "df", "values", "book1"),
    *("Book12", "sheet1", "Sheet 2", "untitled", "Untitled-3", "new", "tmp", "download", "downloads (2)", "export"),
    *("exports_2024", "final", "final_v2", "copy", "data copy", "new_data_final", "latest"),
    "part-00000-4b3f1c2a-9d1e-4a6b-8f57-2c1d9e0a7b66-c000.snappy",
)


def test_a_generic_name_is_that_of_the_folder_above() -> None:
    for stem, ending in product(GENERIC, (".csv", ".tar.gz", ".JSONL.gz", ".parquet", "")):
        assert name_of_path(f"/srv/flowers/{stem}{ending}") == "flowers"
        assert name_of_path(f"/srv/flowers/data/images/{stem}{ending}") == "flowers"
        assert name_of_path(f"https://host/flowers/{stem}{ending}") == "flowers"
        assert name_of_path(f"s3://flowers/{stem}{ending}") == "flowers"
        for location in (f"/{stem}{ending}", f"/data/{stem}{ending}", f"https://host/{stem}{ending}"):
            with pytest.raises(UsageError) as caught:
                name_of_path(location)
            assert caught.value.message == f"no name can be derived from {location!r}"
            assert caught.value.hint == "Name the dataset: name=NAME"


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/a/prices.csv", "prices"),
        ("/a/cars_train.csv", "cars_train"),
        ("/a/open_images", "open_images"),
        ("/a/text", "text"),
        ("/a/données.csv", "donnees"),
        ("/a/donne\u0301es.csv", "donnees"),
        ("/a/Straßen-Łódź.csv", "strassen_lodz"),
        ("/a/smørrebrød.csv", "smorrebrod"),
        ("/a/new_york.csv", "new_york"),
        ("/a/books.csv", "books"),
        ("/a/my_pets.csv", "my_pets"),
        ("/a/OldData", "a"),
        ("/a/MyPets.zip", "my_pets"),
        ("/a/3d models/", "data_3d_models"),
        ("https://host/my%20pets.csv?download=1#x", "my_pets"),
        ("https://huggingface.co/datasets/ann/pets/resolve/main/data/train-00000-of-00001.parquet", "pets"),
        ("abfss://pets@account.dfs.core.windows.net/train.csv", "pets"),
        ("file:///a/pets/train.csv", "pets"),
        ("https://host/pets/metadata.json", "pets"),
        ("C:\\data\\pets\\train.csv", "pets"),
    ],
)
def test_other_names_are_derived_as_they_are(location: str, name: str) -> None:
    assert name_of_path(location) == name


@pytest.mark.parametrize("location", ["/a/数据.csv", "/数据/train.csv", "/a/___.csv"])
def test_a_name_without_letters_is_asked_for(location: str) -> None:
    with pytest.raises(UsageError, match=r"^no name can be derived"):
        name_of_path(location)


@pytest.mark.parametrize(
    ("location", "origin"),
    [
        ("/a/pets.csv", ""),
        ("/a/pets/", ""),
        ("/a/Pets (new).csv", ""),
        ("/a/pets/train.csv", "from the folder 'pets' above 'train'"),
        ("/a/titanic/meta", "from the folder 'titanic' above 'meta'"),
        ("s3://pets/data/train.csv.gz", "from the folder 'pets' above 'train'"),
    ],
)
def test_the_folder_that_gives_a_name_is_known(location: str, origin: str) -> None:
    assert derive_name(location) == (name_of_path(location), origin)


def test_the_working_folder_names_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pets/data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "pets/data")
    assert {name_of_path(one) for one in (".", "./", "train.csv", "../train.csv", "../../pets", "..")} == {"pets"}


parts = st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters="/\0"), min_size=1, max_size=12)


@given(st.lists(parts | st.sampled_from(GENERIC), min_size=1, max_size=4))
def test_every_derived_name_is_valid_and_not_generic(path: list[str]) -> None:
    try:
        name = name_of_path("/" + "/".join(path))
    except UsageError:  # no part has letters or digits, and says which data it is
        return
    assert check_new_name(name) == name
    assert not is_generic(name)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("https://ann:PW@host/a.csv", "https://host/a.csv"),
        ("HTTPS://Host:443/b/../a.csv#x", "https://host/a.csv"),
        ("http://host:80/./a/", "http://host/a"),
        ("http://host:8080/a", "http://host:8080/a"),
        ("https://host/a.csv?page=2&token=PW", "https://host/a.csv?page=2"),
        (
            "https://b.s3.amazonaws.com/a.csv?X-Amz-Date=1&X-Amz-Expires=60&X-Amz-Signature=PW&versionId=3",
            "https://b.s3.amazonaws.com/a.csv?versionId=3",
        ),
        (
            "https://acc.blob.core.windows.net/c/a.csv?sv=1&se=2026&sp=r&sr=b&sig=PW",
            "https://acc.blob.core.windows.net/c/a.csv",
        ),
        ("s3://bucket/a/", "s3://bucket/a"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_two_texts_for_a_url_are_one_place_without_secrets(text: str, place: str) -> None:
    assert place_of(text) == place_of(place) == place


@given(st.text(max_size=30), st.sampled_from(["sig", "token", "password", "X-Amz-Signature"]))
def test_no_secret_of_a_url_is_kept(text: str, name: str) -> None:
    assert "S3CR3T" not in place_of(f"https://host/{text.encode('utf-8', 'replace').hex()}?{name}=S3CR3T&page=1")


sources = st.builds(
    Producer,
    action=st.sampled_from(["add", "add", "build", "import", "publish", "copy", ""]),
    kind=st.sampled_from(["csv", "json", ""]),
    place=st.sampled_from([None, "/a", "/b"]),
)


@given(
    st.lists(sources, max_size=4), st.builds(Producer, action=st.just("add"), kind=st.just("csv"), place=st.just("/a"))
)
def test_only_replace_follows_whatever_there_is(earlier: list[Producer], producer: Producer) -> None:
    numbered = [
        (Reference.exactly("pets", None, Version(len(earlier) - place, 0, 0)), one) for place, one in enumerate(earlier)
    ]

    def is_allowed(name_use: NameUse) -> bool:
        try:
            check_continues(name_use, producer, numbered)
        except OtherSourceError:
            return False
        return True

    assert is_allowed("replace")
    assert is_allowed("derived") == (not earlier or earlier[0].is_source_of(producer))
    knows = any(one.is_source_of(producer) for one in earlier)
    assert is_allowed("given") == (not earlier or earlier[0].action == "add" or knows)
