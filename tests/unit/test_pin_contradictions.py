"""A pin file with a valid seal and contradictory fields is refused with the key path of one of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_texts
from support.pin_law_samples import make_source, pin, whole_file

from registry.errors import PinChangedError, PinFormatError
from registry.model import SlicingRule
from registry.pins import PinFile, choose_names
from registry.pins.consistency import location_problem
from registry.pins.document import seal
from registry.pins.yaml_text import read_yaml

GOLDEN = Path(__file__).with_name("golden")


SHA = "sha256:" + "0" * 64
Change = Callable[[dict[str, Any]], Any]


@cache
def whole() -> Any:
    return read_yaml(whole_file().encode(), "f").value


def sample() -> dict[str, Any]:
    return copy.deepcopy(whole())  # type: ignore[no-any-return]


def refusal(content: dict[str, Any]) -> PinFormatError:
    content["digest"], content["finder"] = seal(content)
    with pytest.raises(PinFormatError) as caught:
        PinFile.from_yaml(json.dumps(content, ensure_ascii=False).encode(), "f")
    return caught.value


def by_name(content: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in content["pins"] if entry["name"] == name)
    return found


def setting(*path: str | int, to: Any) -> Change:
    def change(entry: Any) -> None:
        for key in path[:-1]:
            entry = entry[key]
        entry[path[-1]] = to

    return change


def take_split(name: str) -> Change:
    return lambda entry: entry.update(splits=[split for split in entry["splits"] if split["name"] != name])


PLACES = {"most": 0, "union": 1, "gap": 2, "none": 3, "shards": 4, "rich": 6}
ONES = "1" * 64 + "-" + "1" * 64

CONTRADICTIONS: list[tuple[str, Change]] = [
    ("most", setting("name", to="gap")),
    ("most", setting("request", to="numbers:2.*")),
    ("most", setting("request", to="letters")),
    ("most", setting("request", to="numbers/rich")),
    ("most", setting("request", to="numbers@paper")),
    ("rich", setting("alias", to=None)),
    ("rich", setting("alias", "name", to="other")),
    ("rich", setting("dataset", to="numbers2")),
    ("most", setting("version", to="01.2.3")),
    ("most", setting("split", to="train[:90%]")),
    ("most", setting("split", to="train[:9]")),
    ("most", setting("split", to="test")),
    ("most", setting("split", to="train[:8")),
    ("rich", setting("rounding", to=None)),
    ("shards", setting("ranges", 0, "start", to=3)),
    ("most", setting("ranges", 0, "stop", to=13)),
    ("most", setting("ranges", 0, "start", to=11)),
    ("most", setting("ranges", 0, "split", to="test")),
    ("most", setting("num_examples", to=9)),
    ("union", take_split("test")),
    ("union", lambda e: e["splits"].append(e["splits"][0])),
    ("union", lambda e: e["files"].reverse()),
    ("union", lambda e: e["files"].insert(1, e["files"].pop())),
    ("most", lambda e: e["files"].pop()),
    ("most", lambda e: e["files"].append(e["files"][2])),
    ("most", setting("files", 0, "name", to="other")),
    ("most", setting("files", 1, "index", to=1)),
    ("most", setting("files", 1, "first_example", to=5)),
    ("most", setting("files", 1, "num_examples", to=2**62)),
    ("most", setting("splits", 0, "num_examples", to=13)),
    ("none", setting("splits", 0, "num_shards", to=0)),
    ("gap", setting("files", 1, "index", to=4)),
    ("most", setting("splits", 0, "template", to="../{SHARD_INDEX}")),
    ("most", setting("locations", 0, to="../elsewhere")),
    ("most", setting("locations", 0, to="s3://me:pass@host/x")),
    ("most", setting("files", 0, "locations", to=["a/.."])),
    ("most", setting("records", "first", "id", to="x")),
    ("most", setting("records", "last", to=None)),
    ("gap", setting("records", "middle", "sha256", to=SHA)),
    ("none", setting("records", "ordered", to=SHA)),
    ("none", setting("records", "unordered", to=SHA)),
    ("none", setting("records", "finder", to=ONES)),
    ("none", setting("records", "features", to={"id": SHA})),
    ("none", setting("records", "middle", to={"id": "x", "sha256": SHA})),
    ("most", setting("order", "seed", to=3)),
    ("most", setting("order", "global_seed", to=3)),
    ("gap", setting("order", "seed", to=None)),
    ("gap", setting("order", "seed", to=2**64)),
    ("gap", setting("order", "shuffle", to="files")),
    ("rich", setting("features", "labels", to={})),
    ("rich", setting("features", "json", to="[" * 100_000)),
]


def test_a_contradiction_is_refused_with_its_place() -> None:
    lines = []
    for name, change in CONTRADICTIONS:
        content = sample()
        change(by_name(content, name))
        fault = refusal(content).details["faults"][0]
        assert fault["line"] == 1
        lines.append(f"{name} ({PLACES[name]}): {fault['key']}: {fault['problem']}\n")
    check_texts(Path(__file__).with_name("golden") / "pin_contradictions.txt", lines)


def test_shards_of_all_pins_are_counted_before_they_are_laid_out() -> None:
    content = sample()
    for entry in content["pins"][:2]:
        entry["splits"][0]["num_shards"] = 2**23
    message = "f: line 1, pins[1].splits[1].num_shards: expected at most 16777216 shards in all splits"
    assert refusal(content).message == message


def test_one_of_many_slices_of_shards_is_held_to_the_shards_that_the_pin_names() -> None:
    source = make_source({"train": [4, 0, 3, 5, 0, 2]})
    content = PinFile.of([pin(source, "a", "train[2shard:4shard]+train[:1shard]")], created_by="x").content
    content = copy.deepcopy(dict(content))
    content["pins"][0]["split"] = "train[1shard:5shard]+train[:1shard]"  # the same records: shards 1 and 4 are empty
    content["digest"], content["finder"] = seal(content)
    assert PinFile.from_yaml(json.dumps(content).encode(), "f")["a"].num_examples == 12
    content["pins"][0]["split"] = "train[2shard:3shard]+train[:1shard]"
    wanted = "f: line 1, pins[0].ranges: train[2shard:3shard]+train[:1shard] gives train 4..7 train 0..4"
    assert refusal(content).message == wanted


def test_an_empty_pin_that_tfds_slicing_once_placed_at_zero_is_still_read() -> None:
    source = make_source({"train": [60, 41]}, slicing=SlicingRule.TFDS_4)
    content = copy.deepcopy(dict(PinFile.of([pin(source, "a", "train[100%:]")], created_by="x").content))
    assert content["pins"][0]["ranges"] == [{"split": "train", "start": 101, "stop": 101}]
    content["pins"][0]["ranges"] = [{"split": "train", "start": 0, "stop": 0}]
    content["digest"], content["finder"] = seal(content)
    assert PinFile.from_yaml(json.dumps(content).encode(), "f")["a"].num_examples == 0
    content["pins"][0]["ranges"] = [{"split": "train", "start": 7, "stop": 7}]
    assert refusal(content).message == "f: line 1, pins[0].ranges: train[100%:] gives train 101..101"


def test_files_of_two_splits_with_one_name_are_refused() -> None:
    content = PinFile.of([pin(make_source({"train": [2], "test": [2]}), "a", "train+test")], created_by="x").content
    content = copy.deepcopy(dict(content))
    for split, file in zip(content["pins"][0]["splits"], content["pins"][0]["files"], strict=True):
        split["template"] = "{DATASET}-{SHARD_X_OF_Y}"
        file["name"] = "numbers-00000-of-00001"
    assert (
        refusal(content).message == "f: line 1, pins[0].files[1].name: two splits have the file numbers-00000-of-00001"
    )


def test_one_field_that_was_changed_is_named_before_what_it_contradicts() -> None:
    text = whole_file().replace("stop: 10\n", "stop: 9\n", 1)
    with pytest.raises(PinChangedError) as caught:
        PinFile.from_yaml(text.encode(), "f")
    line = text[: text.index("stop: 9")].count("\n") + 1
    assert caught.value.message == (
        f"f: line {line}, pins[0].ranges[0].stop: this was changed since the file was written: "
        "its digest does not match its content"
    )


def test_optional_fields_are_named_if_one_was_removed() -> None:
    text = whole_file().replace("    status_message: a label was wrong\n", "", 1)
    with pytest.raises(PinChangedError) as caught:
        PinFile.from_yaml(text.encode(), "f")
    assert caught.value.details["key"] == "pins[6].status_message"


KINDS: list[dict[str, Any]] = [
    *({"why": [1]}, {"num_examples": 10.0}, {"num_examples": True}, {"num_examples": 2**63}, {"ranges": {}}),
    *({"experiments": {"": True}}, {"experiments": {"a": 1}}, {"experiments": {"[key]": 1}}),
    *({"alias": {"name": "a"}}, {"config": "a\nb"}),
]


def test_a_value_of_another_kind_is_refused_by_its_key_path() -> None:
    def problems(content: dict[str, Any]) -> str:
        return "".join(f"{fault['key']}: {fault['problem']}\n" for fault in refusal(content).details["faults"])

    lines = []
    for value in KINDS:
        content = sample()
        content["pins"][0] |= value
        lines.append(f"{value}: {problems(content)}")
    lines += [
        f"{version!r}: {problems(sample() | {'lock_version': version})}" for version in (0, True, 1.0, "1", None, 2)
    ]
    check_texts(GOLDEN / "pin_contradictions_kinds.txt", lines)


def test_a_name_that_a_file_cannot_store_is_refused_before_writing() -> None:
    source = make_source({"train": [2]})
    for name in ("", "a\nb"):
        with pytest.raises(PinFormatError) as caught:
            pin(source, name, "train")
        assert [fault["key"] for fault in caught.value.details["faults"]] == ["name"]
    union = "+".join(["train[:1]"] * 500)
    assert PinFile.of([pin(source, union, union)], created_by="x")[union].num_examples == 500


@pytest.mark.parametrize("text", ["/data", "s3://bucket/folder", "https://example.org/a?b", "a/b", "memory://x"])
def test_a_location_is_a_url_a_path_or_a_folder_below_another(text: str) -> None:
    assert location_problem(text) is None


@pytest.mark.parametrize("text", ["", "..", "../a", "a/..", "a//b", "./a", "a\\b", "https://u@h/x", "http://[x", "a/"])
def test_a_path_outside_its_folder_or_with_a_secret_is_not_a_location(text: str) -> None:
    assert location_problem(text)


def test_pins_are_named_after_their_splits_if_each_split_has_one_slice() -> None:
    def split_of(text: str) -> str:
        return "+".join(part.partition("[")[0] for part in text.split("+"))

    def names(texts: list[str], named: dict[str, str] | None = None, taken: tuple[str, ...] = ()) -> list[str]:
        return [*choose_names(named or {}, texts, split_of, taken, "numbers:1.2.3")]

    assert names(["train[:80%]", "test"]) == ["train", "test"]
    assert names(["train[:80%]", "train[80%:]"]) == ["train[:80%]", "train[80%:]"]
    assert names(["train[:80%]"], {"train": "train[80%:]"}) == ["train[:80%]", "train"]
    assert names(["train[:80%]"], taken=("train",)) == ["train[:80%]"]
    assert names(["train"], taken=("train",)) == ["numbers:1.2.3 train"]
    assert names(["train", "train[:1]"]) == ["train", "train[:1]"]
    assert names(["train[:1]", "train"]) == ["train[:1]", "train"]


def test_the_default_pinned_order_is_the_reading_order_of_the_version() -> None:
    for disable_shuffling, cycle_length in ((False, 16), (True, 1)):
        source = make_source({"train": [4, 3]}, disable_shuffling=disable_shuffling)
        order = pin(source, "train", "train")["order"]
        assert (order["shuffle"], order["cycle_length"], order["block_length"]) == ("none", cycle_length, 16)
