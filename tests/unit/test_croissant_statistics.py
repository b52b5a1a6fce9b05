"""Statistics in Croissant documents: the annotations of the specification, which MLCommons' package accepts."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import pytest
from support.croissant_samples import describe, fields_of, read_by_mlcroissant

from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Sequence, Tensor, Text, codec_of
from registry.features.fold import SplitFold
from registry.images import encode_png
from registry.intake.croissant_document import parse_document
from registry.interop.croissant import croissant_to_json
from registry.statistics import Statistics, StatisticsFold, statistics_of
from registry.tfrecord import frame_records

PICTURE = encode_png(np.zeros((2, 3, 3), np.uint8))
FEATURES = FeaturesDict(
    {
        "price": Scalar("float64", optional=True),
        "count": "int64",
        "shop": Text(),
        "label": ClassLabel(names=["null", "eins"]),
        "image": Image(),
        "box": {"sizes": Sequence("int64"), "a/b": "bool"},
    }
)


def row(price: float | None, shop: str = "north", label: int = 1, sizes: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    box = {"sizes": list(sizes), "a/b": label == 1}
    return {"price": price, "count": 2**60, "shop": shop, "label": label, "image": PICTURE, "box": box}


ROWS = [row(1.5), row(2.5), row(2.5, "south"), row(None, label=0), row(math.nan)]


def statistics(**splits: list[dict[str, Any]]) -> Statistics:
    results = {}
    for name, rows in splits.items():
        fold = SplitFold(FEATURES, [StatisticsFold])
        fold.add(*frame_records([codec_of(FEATURES).encode(each) for each in rows]).payloads())
        (results[name],) = fold.results() or ()
    return statistics_of(results)


def document(**splits: list[dict[str, Any]]) -> dict[str, Any]:
    lengths = {name: (len(rows),) for name, rows in splits.items()}
    return describe(FEATURES, lengths=lengths, statistics=statistics(**splits), creators=("Ada",))


def facts(annotated: dict[str, Any], inner: str = "annotation") -> dict[str, Any]:
    return {note["name"]: note["value"] for note in annotated.get(inner, ()) if "value" in note}


def test_the_statistics_of_a_field_are_annotations_with_the_terms_of_the_specification() -> None:
    found = document(train=ROWS)
    assert found["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert found["@context"]["ddi-stats"] == "http://rdf-vocabulary.ddialliance.org/cv/SummaryStatisticType/2.1.2/"
    *terms, histogram = fields_of(found)["examples/price"]["annotation"]
    place = {"@type": "cr:Field"}
    assert terms == [
        place | {"@id": f"examples/price/{name}", "name": name, "value": value, "dataType": f"ddi-stats:{code}"} | more
        for name, value, code, more in (
            ("valid", 3, "c646dd8", {}),
            ("invalid", 2, "6459c62", {}),
            ("min", 1.5, "a1d0ec6", {"equivalentProperty": "sc:minValue"}),
            ("max", 2.5, "8321e79", {"equivalentProperty": "sc:maxValue"}),
            ("mean", 13 / 6, "7975ed0", {}),
            ("std", float(np.std([1.5, 2.5, 2.5])), "690ab50", {}),
            ("first_quartile", 1.5, "350c70a", {}),
            ("median", 2.5, "66851a3", {"equivalentProperty": "sc:median"}),
            ("third_quartile", 2.5, "ebe9990", {}),
            ("mode", 2.5, "650be61", {}),
        )
    ]
    value = json.loads(histogram["value"])
    assert [(field["@id"], field["arrayShape"]) for field in histogram["subField"]] == [
        ("examples/price/histogram/bin_edges", str(len(value["bin_edges"]))),
        ("examples/price/histogram/counts", str(len(value["counts"]))),
    ]
    assert sum(value["counts"]) == 3


def test_what_has_no_term_and_what_means_nothing_is_left_out() -> None:
    fields = fields_of(document(train=ROWS))
    assert facts(fields["examples/shop"]) == {"valid": 5, "invalid": 0, "mode": "north"}
    assert facts(fields["examples/label"]) == {
        "valid": 5,
        "invalid": 0,
        "mode": 1,
        "class_counts": '{"counts":[1,4]}',
    }
    assert facts(fields["examples/image"]) == {"valid": 5, "invalid": 0}
    sizes, flag = fields["examples/box"]["subField"]
    assert (facts(sizes)["valid"], facts(sizes)["max"], facts(flag)["mean"]) == (10, 2, 0.8)
    assert facts(fields["examples/count"])["max"] == 2**60
    assert "annotation" not in fields["examples/box"]
    assert "annotation" not in fields["examples/split"]


def test_the_records_are_counted_beside_a_feature_of_that_name() -> None:
    (examples,) = [each for each in document(train=ROWS)["recordSet"] if each["@id"] == "examples"]
    assert examples["annotation"] == [
        {
            "@type": "cr:Field",
            "@id": "examples/count_",
            "name": "count",
            "value": 5,
            "dataType": "http://www.wikidata.org/entity/Q4049983",
        }
    ]


def test_several_splits_have_the_statistics_of_all_values_and_of_each_split() -> None:
    test = [row(7.25), row(-1.0, "west", 0)]
    price = fields_of(document(train=ROWS, test=test))["examples/price"]
    prices = [1.5, 2.5, 2.5, 7.25, -1.0]
    found = facts(price)
    assert found == {
        "valid": 5,
        "invalid": 2,
        "min": -1.0,
        "max": 7.25,
        "mean": pytest.approx(np.mean(prices), rel=1e-15),
        "std": pytest.approx(np.std(prices), rel=1e-15),
    }
    train, other = [note for note in price["annotation"] if "subField" in note]
    assert (train["@id"], other["@id"]) == ("examples/price/splits/train", "examples/price/splits/test")
    assert facts(train, "subField")["median"] == 2.5
    assert (facts(other, "subField")["min"], facts(other, "subField")["max"]) == (-1.0, 7.25)


def test_the_deviation_of_several_splits_is_that_of_numbers_of_any_size() -> None:
    def fold(size: float) -> Any:
        result = SplitFold(features, [StatisticsFold])
        result.add(
            *frame_records([codec_of(features).encode({"small": size / 1e300 / 1e200, "large": size})]).payloads()
        )
        return (result.results() or ())[0]

    features = FeaturesDict({name: Tensor(shape=(), dtype="float64", encoding="bytes") for name in ("small", "large")})
    folds = statistics_of({"train": fold(-1e300), "test": fold(1e300)})
    fields = fields_of(describe(features, lengths={"train": (1,), "test": (1,)}, statistics=folds, creators=("Ada",)))
    assert facts(fields["examples/small"])["std"] == pytest.approx(1e-200, abs=0)
    assert facts(fields["examples/large"]) == {
        "valid": 2,
        "invalid": 0,
        "min": -1e300,
        "max": 1e300,
        "mean": 0,
        "std": 1e300,
    }


def test_the_deviation_of_the_greatest_floats_is_a_float() -> None:
    def fold(size: float) -> Any:
        result = SplitFold(features, [StatisticsFold])
        rows = [{"x": size}] * 3 + [{"x": -size}] * 17
        result.add(*frame_records([codec_of(features).encode(row) for row in rows]).payloads())
        return (result.results() or ())[0]

    features = FeaturesDict({"x": Tensor(shape=(), dtype="float64", encoding="bytes")})
    most = sys.float_info.max
    folds = statistics_of({"train": fold(most), "test": fold(-most)})
    fields = fields_of(describe(features, lengths={"train": (20,), "test": (20,)}, statistics=folds, creators=("Ada",)))
    assert facts(fields["examples/x"])["std"] == most


def test_a_split_without_values_changes_nothing() -> None:
    price = fields_of(document(train=ROWS, test=[row(None)]))["examples/price"]
    assert (facts(price)["valid"], facts(price)["invalid"], facts(price)["mean"]) == (3, 3, 13 / 6)
    nothing = fields_of(document(train=[row(None)], test=[row(None)]))["examples/price"]
    assert facts(nothing) == {"valid": 0, "invalid": 2}


@pytest.mark.parametrize("splits", [{"train": ROWS}, {"train": ROWS, "test": ROWS[:2]}])
def test_mlcroissant_accepts_the_annotations_and_their_terms(splits: dict[str, Any]) -> None:
    read = read_by_mlcroissant(document(**splits))
    assert not read.metadata.ctx.issues.errors
    assert not read.metadata.ctx.issues.warnings
    (examples,) = [each for each in read.metadata.record_sets if each.id == "examples"]
    assert [note.id for note in examples.annotations] == ["examples/count_"]
    (price,) = [field for field in examples.fields if field.id == "examples/price"]
    types = {note.name: list(map(str, note.data_types)) for note in price.annotations}
    assert types["mean"] == ["http://rdf-vocabulary.ddialliance.org/cv/SummaryStatisticType/2.1.2/7975ed0"]


def test_ids_are_unique_and_our_own_reader_sees_the_same_fields() -> None:
    described = document(train=ROWS, test=ROWS[:2])
    ids: list[str] = []

    def collect(node: Any) -> None:
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            collect(inner)
        if isinstance(node, dict) and "@type" in node and "@id" in node:
            ids.append(node["@id"])

    collect(described["recordSet"])
    assert len(ids) == len(set(ids))
    plain = describe(FEATURES, lengths={"train": (5,), "test": (2,)}, creators=("Ada",))
    assert "ddi-stats" not in plain["@context"]
    assert parse_document(croissant_to_json(described).encode(), "a") == parse_document(
        croissant_to_json(plain).encode(), "a"
    )
