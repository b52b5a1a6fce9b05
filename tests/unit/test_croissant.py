"""Croissant documents: held against the specification's words, and read by MLCommons' own package."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.croissant_samples import PLAIN, TOLD, describe, fields_of, published, read_by_mlcroissant, shards_of

from registry.errors import UsageError
from registry.features import BBox, ClassLabel, FeaturesDict, Image, Sequence, Tensor, Text
from registry.interop.croissant import croissant_to_json, describe_croissant, id_part, missing_properties
from registry.model import DatasetMetadata


def test_a_document_says_what_the_catalog_has() -> None:
    document = describe(config="plain", creators=("Yann LeCun",))
    assert {
        name: value for name, value in document.items() if name not in ("@context", "distribution", "recordSet")
    } == {
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "mnist/plain",
        "description": "Handgeschriebene Ziffern, größer als früher.",
        "version": "3.0.1",
        "identifier": "mnist/plain:3.0.1",
        "datePublished": "2026-11-21T10:30:00+00:00",
        "license": "CC-BY-4.0",
        "url": "https://example.org/mnist",
        "citeAs": "@misc{mnist}",
        "keywords": ["images", "größe"],
        "creator": [{"@type": "sc:Person", "name": "Yann LeCun"}],
        "publisher": {"@type": "sc:Person", "name": "ada"},
        "isLiveDataset": False,
    }
    assert missing_properties(document) == []


def test_every_shard_is_named_with_its_size_and_sha256() -> None:
    first, second, third, *sets = describe(base_url="https://example.org/data/")["distribution"]
    assert first == {
        "@type": "cr:FileObject",
        "@id": "shards/mnist-train.tfrecord-00000-of-00002",
        "name": "mnist-train.tfrecord-00000-of-00002",
        "contentUrl": "https://example.org/data/mnist-train.tfrecord-00000-of-00002",
        "contentSize": "10 B",
        "encodingFormat": "https://www.tensorflow.org/tutorials/load_data/tfrecord",
        "sha256": f"{0:064x}",
    }
    assert (second["contentSize"], second["sha256"]) == ("11 B", f"{1:064x}")
    assert third["name"] == "mnist-test.tfrecord-00000-of-00001"
    assert [(one["@id"], one["includes"]) for one in sets] == [
        ("train-shards", "mnist-train.tfrecord-*-of-00002"),
        ("test-shards", "mnist-test.tfrecord-*-of-00001"),
        ("shards", ["mnist-test.tfrecord-*-of-00001", "mnist-train.tfrecord-*-of-00002"]),
    ]
    assert sets[2]["containedIn"] == [{"@id": "train-shards"}, {"@id": "test-shards"}]


def test_without_an_address_files_are_named_relative_to_the_document() -> None:
    document = describe(template="part #1/{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}", file_format="parquet")
    first, *_, whole = document["distribution"]
    assert first["@id"] == "shards/part~20~~23~1/train-00000-of-00002.parquet"
    assert first["contentUrl"] == "part%20%231/train-00000-of-00002.parquet"
    assert first["encodingFormat"] == "application/x-parquet"
    assert whole["includes"] == ["part #1/test-*-of-00001.parquet", "part #1/train-*-of-00002.parquet"]
    source = fields_of(document)["examples/split"]["source"]
    assert source["extract"] == {"fileProperty": "fullpath"}
    assert source["transform"] == {"regex": r"^(?:.*/)?part #1/(train|test)-[0-9]+-of-[0-9]+\.parquet$"}
    read_by_mlcroissant(document)


def test_splits_have_sizes_and_a_meaning_if_all_have_one() -> None:
    splits = describe()["recordSet"][0]
    assert (splits["@id"], splits["dataType"], splits["key"]) == ("splits", "cr:Split", {"@id": "splits/name"})
    assert splits["data"][0] == {
        "splits/name": "train",
        "splits/url": "cr:TrainingSplit",
        "splits/num_examples": 5,
        "splits/num_bytes": 100,
        "splits/num_shards": 2,
    }
    others = describe(lengths={"train": (1,), "extra": (0, 1)})["recordSet"][0]
    assert others["data"][1] == {
        "splits/name": "extra",
        "splits/num_examples": 1,
        "splits/num_bytes": 100,
        "splits/num_shards": 2,
    }


def test_the_split_of_an_example_comes_from_its_filename() -> None:
    field = fields_of(describe())["examples/split"]
    assert field["source"] == {
        "fileSet": {"@id": "shards"},
        "extract": {"fileProperty": "filename"},
        "transform": {"regex": r"^mnist-(train|test)\.tfrecord-[0-9]+-of-[0-9]+$"},
    }
    assert field["references"] == {"field": {"@id": "splits/name"}}
    assert "examples/split_" in fields_of(describe(FeaturesDict({"split": Text()})))
    nameless = describe(lengths={"train": (1,)}, template="{DATASET}.{FILEFORMAT}-{SHARD_X_OF_Y}")
    assert set(fields_of(nameless)) == {"examples/image", "examples/label"}


def test_the_names_of_a_label_are_an_enumeration_that_its_field_references() -> None:
    document = describe(FeaturesDict({"box": {"kind/of": Sequence(ClassLabel(names=["Löwe", "cat"]))}}))
    labels = document["recordSet"][1]
    assert (labels["@id"], labels["dataType"]) == ("labels/box-kind.of", "sc:Enumeration")
    assert labels["data"] == [
        {"labels/box-kind.of/index": 0, "labels/box-kind.of/name": "Löwe"},
        {"labels/box-kind.of/index": 1, "labels/box-kind.of/name": "cat"},
    ]
    assert fields_of(document)["examples/box"]["subField"] == [
        {
            "@type": "cr:Field",
            "@id": "examples/box/kind~2f~of",
            "name": "kind/of",
            "dataType": ["cr:Int64", "sc:Integer", "cr:Label"],
            "isArray": True,
            "arrayShape": "-1",
            "source": {"fileSet": {"@id": "shards"}, "extract": {"column": "box/kind/of"}},
            "references": {"field": {"@id": "labels/box-kind.of/index"}},
        }
    ]
    assert list(read_by_mlcroissant(document).records("labels/box-kind.of"))[1]["labels/box-kind.of/name"] == "cat"


@pytest.mark.parametrize(
    ("feature", "told"),
    [
        (Text(), {"dataType": "sc:Text"}),
        ("bool", {"dataType": "sc:Boolean"}),
        ("uint8", {"dataType": ["cr:UInt8", "sc:Integer"]}),
        ("int64", {"dataType": ["cr:Int64", "sc:Integer"]}),
        ("float16", {"dataType": ["cr:Float16", "sc:Float"]}),
        (ClassLabel(num_classes=3), {"dataType": ["cr:Int64", "sc:Integer", "cr:Label"]}),
        (
            Tensor(shape=(3, None), dtype="float32"),
            {"dataType": ["cr:Float32", "sc:Float"], "isArray": True, "arrayShape": "3,-1"},
        ),
        (
            Sequence(Tensor(shape=(2,), dtype="float64"), length=4),
            {"dataType": ["cr:Float64", "sc:Float"], "isArray": True, "arrayShape": "4,2"},
        ),
        (Sequence(Sequence(Text())), {"dataType": "sc:Text", "isArray": True, "arrayShape": "-1,-1"}),
        (Image(), {"dataType": "sc:ImageObject"}),
        (Sequence(Image()), {"dataType": "sc:ImageObject", "isArray": True, "arrayShape": "-1"}),
    ],
)
def test_a_leaf_has_the_type_and_the_shape_of_its_values(feature: Any, told: dict[str, Any]) -> None:
    document = describe(FeaturesDict({"it": feature}))
    field = fields_of(document)["examples/it"]
    assert {name: field[name] for name in ("dataType", "isArray", "arrayShape") if name in field} == told
    assert field["source"] == {"fileSet": {"@id": "shards"}, "extract": {"column": "it"}}
    read_by_mlcroissant(document)


def test_a_sequence_of_dicts_is_an_array_with_subfields() -> None:
    features = FeaturesDict(
        {
            "objects": Sequence(
                {"bbox": BBox(), "parts": Sequence({"ids": Sequence("int32")}), "nothing": {}},
                description="What is seen.",
                value_range="0 to 9",
            ),
            "empty": {},
        }
    )
    document = describe(features)
    assert set(fields_of(document)) == {"examples/split", "examples/objects"}
    read_by_mlcroissant(document)
    field = fields_of(document)["examples/objects"]
    bbox, parts = field.pop("subField")
    assert field == {
        "@type": "cr:Field",
        "@id": "examples/objects",
        "name": "objects",
        "description": "What is seen. Values: 0 to 9.",
        "isArray": True,
        "arrayShape": "-1",
    }
    assert (bbox["dataType"], bbox["source"]["format"]) == ("cr:BoundingBox", "REL_YXYX")
    assert "isArray" not in bbox
    assert (parts["isArray"], parts["subField"][0]["arrayShape"]) == (True, "-1")
    assert parts["subField"][0]["source"]["extract"] == {"column": "objects/parts/ids"}


def test_what_is_not_known_is_left_out_and_named() -> None:
    version = replace(published(metadata=DatasetMetadata()), published_at=None, published_by="")
    document = describe_croissant(version, PLAIN, shards_of(version))
    assert missing_properties(document) == ["license", "url", "creator", "datePublished"]
    assert document["description"] == "mnist:3.0.1: 6 examples, 5 in train, 1 in test."
    assert not {"citeAs", "keywords", "publisher", "license", "url", "creator"} & set(document)
    read_by_mlcroissant(document)


def test_a_licence_in_words_is_a_work_of_that_name() -> None:
    document = describe(metadata=replace(TOLD, license=" CC BY 4.0\n"))
    assert document["license"] == {"@type": "sc:CreativeWork", "name": "CC BY 4.0"}
    read_by_mlcroissant(document)


@pytest.mark.parametrize("homepage", ["javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "example.org"])
def test_a_homepage_that_is_not_a_url_is_left_out(homepage: str) -> None:
    document = describe(metadata=replace(TOLD, homepage=homepage), base_url=None)
    assert "url" not in document
    assert "url" in missing_properties(document)


@pytest.mark.parametrize("address", ["http://a", "HTTPS://a", "s3://a/b", "gs://a/b", "file:///a"])
def test_a_homepage_and_a_folder_may_be_anywhere_that_files_are_fetched_from(address: str) -> None:
    assert describe(metadata=replace(TOLD, homepage=address))["url"] == address
    assert describe(metadata=replace(TOLD, homepage=""), base_url=address)["url"] == address


def test_a_licence_that_is_a_script_url_is_not_a_link() -> None:
    document = describe(metadata=replace(TOLD, license="javascript:alert(1)"))
    assert document["license"] == {"@type": "sc:CreativeWork", "name": "javascript:alert(1)"}
    assert describe(metadata=replace(TOLD, license="https://a/b"))["license"] == "https://a/b"


def test_a_document_may_be_embedded_in_a_page() -> None:
    document = describe(metadata=replace(TOLD, description="</script><script>alert(1)</script><!-- größer"))
    text = croissant_to_json(document)
    assert "<" not in text
    assert "\\u003c/script>\\u003cscript>alert(1)\\u003c/script>\\u003c!-- größer" in text
    assert json.loads(text) == document


def test_the_url_replaces_a_missing_homepage() -> None:
    document = describe(metadata=replace(TOLD, homepage=""), base_url="https://example.org/data/")
    assert document["url"] == "https://example.org/data"


def test_names_in_any_script_and_with_any_sign_are_read() -> None:
    names = ["größe", "日本", "a b", "a~b", "..", "x:y", "@id", "a%20b", "é", "tab\t"]
    document = describe(FeaturesDict(dict.fromkeys(names, "int32")))
    found = [field.name for field in read_by_mlcroissant(document).metadata.record_sets[1].fields]
    assert found == ["split", *names]


def test_other_names_have_other_ids() -> None:
    names = ["a/b", "a~2f~b", "a b", "a", "..", ".", "~", "a.b", "a-b"]
    assert len({id_part(name) for name in names}) == len(names)


def test_mlcroissant_reads_a_whole_document_without_an_error_or_a_warning() -> None:
    dataset = read_by_mlcroissant(describe(base_url="https://example.org/data", creators=("Yann LeCun",)))
    assert not dataset.metadata.ctx.issues.errors
    assert not dataset.metadata.ctx.issues.warnings
    assert str(dataset.metadata.version) == "3.0.1"
    assert [one.uuid for one in dataset.metadata.record_sets] == ["splits", "labels/label", "examples"]
    assert [one["splits/num_examples"] for one in dataset.records("splits")] == [5, 1]


def test_thousands_of_shards_are_named_one_by_one_below_one_pattern() -> None:
    document = describe(lengths={"train": (1,) * 2000})
    files = [one for one in document["distribution"] if one["@type"] == "cr:FileObject"]
    assert len({one["contentUrl"] for one in files}) == 2000
    assert document["distribution"][-1]["includes"] == ["mnist-train.tfrecord-*-of-02000"]


def test_a_version_without_examples_has_a_document() -> None:
    read_by_mlcroissant(describe(lengths={"train": ()}))
    assert "recordSet" not in describe(lengths={})


def test_the_same_version_gives_the_same_bytes() -> None:
    assert croissant_to_json(describe()) == croissant_to_json(describe())
    assert "größer" in croissant_to_json(describe())
    assert croissant_to_json(describe()).endswith("}\n")


@pytest.mark.parametrize("base_url", ["data", "/data", "https://example.org/a b"])
def test_an_invalid_url_is_refused(base_url: str) -> None:
    with pytest.raises(UsageError) as caught:
        describe(base_url=base_url)
    assert caught.value.message == f"{base_url!r} is not the URL of a folder"
    assert caught.value.hint == ("Use the URL of the folder with the shards, e.g. https://example.org/mnist/3.0.1")


@pytest.mark.parametrize("base_url", ["javascript:alert(1)", "data:text/html,x", "ftp://example.org/x"])
def test_an_address_that_no_file_is_fetched_from_is_refused(base_url: str) -> None:
    with pytest.raises(UsageError) as caught:
        describe(base_url=base_url)
    assert caught.value.message == f"files cannot be downloaded from {base_url!r}"
    assert caught.value.hint == (
        "Use a URL with one of the schemes http, https, s3, gs, file, e.g. https://example.org/mnist/3.0.1"
    )
