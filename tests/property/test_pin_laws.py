"""A changed pin file is refused with the place of the change; an unchanged one reads the pinned records."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from support.pin_law_samples import make_source, pin, whole_file

from registry.errors import PinChangedError, PinFormatError, RegistryError, SliceError
from registry.model import SlicingRule
from registry.order import ReadConfig
from registry.pins import PinFile
from registry.pins.document import PinDocument, canonical_json, seal
from registry.pins.yaml_text import iter_leaves, join_key, read_yaml, write_yaml
from registry.splits import resolve

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Mutation:
    """The sample with one change, the kind of change, and its place."""

    path: Path
    kind: str
    changed: dict[str, Any] = field(repr=False)


@cache
def content() -> dict[str, Any]:
    """The values of the sample file; copied before they are changed."""
    found: dict[str, Any] = read_yaml(whole_file().encode(), "f").value
    return found


def yaml_of(value: Any) -> bytes:
    """JSON is YAML, and is written a hundred times as fast."""
    return json.dumps(value, indent=1, ensure_ascii=False).replace("\x85", "\\N").encode()


def load(value: Any) -> PinFile:
    return PinFile.from_yaml(yaml_of(value), "f")


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    digest, finder = seal(value)
    return value | {"digest": digest, "finder": finder}


def iter_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in ``value``, but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from iter_paths(inner, (*path, key))


def key_path(path: Path) -> str:
    text = ""
    for key in path:
        text = join_key(text, key)
    return text


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**16, 2**24 + 1, 2**63 - 1, 2**63, 2**64, 10**90, 1.5, 1e300),
    *("", "x", "no", "1", "../x", "a\nb", "\x85", "😀", "numbers", "train", "sha256:" + "0" * 64, "s3://me:pw@host/x"),
    *([], {}, [None], ["x"], [[]], {"a": 1}, {"": ""}),
]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    found = copy.deepcopy(content())
    path = draw(st.sampled_from(PATHS))
    holder, key = at(found, path[:-1]), path[-1]
    old = holder[key]
    kinds = ["value", "remove"]
    if isinstance(old, str | int) and not isinstance(old, bool):
        kinds += ["tweak"] * 3
    if isinstance(holder, dict):
        kinds.append("rename")
    if isinstance(old, dict):
        kinds.append("add")
    if isinstance(old, list) and old:
        kinds += ["duplicate", "swap"]
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "value":
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        case "remove":
            del holder[key]
        case "tweak":
            holder[key] = draw(tweaks(old))
        case "rename":
            new = draw(st.sampled_from([*holder, f"{key}x", str(key).upper(), "", "json_", "a.b", "[key]", "x[0]"]))
            holder[new] = holder.pop(key)
        case "add":
            new = draw(st.sampled_from(["", "json_", "digest", "finder", "model_config", "__class__", "a.b", "[key]"]))
            old[new] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        case "duplicate":
            place = draw(st.integers(0, len(old) - 1))
            old.insert(draw(st.integers(0, len(old))), copy.deepcopy(old[place]))
        case "swap":
            first, second = draw(st.integers(0, len(old) - 1)), draw(st.integers(0, len(old) - 1))
            old[first], old[second] = old[second], old[first]
    return Mutation(path, kind, found)


ODD_BYTES = [b"", *(bytes([byte]) for byte in b" \n'\"#:-!&*\t\0\xff")]


def tweaks(old: str | int) -> st.SearchStrategy[Any]:
    if isinstance(old, int):
        return st.sampled_from([old + 1, old - 1, -old, old * 2, old + 2**32])
    places = st.integers(0, max(len(old) - 1, 0))
    return st.one_of(
        st.builds(lambda place, new: old[:place] + new + old[place + 1 :], places, st.sampled_from("0a f:/.+[%é\n")),
        st.builds(lambda place: old[:place] + old[place + 1 :], places),
        st.sampled_from([old.upper(), old + " ", " " + old, old * 2, old + "\n"]),
    )


PATHS: list[Path] = list(iter_paths(content()))
# Fields that occur once are drawn as often as the files of all pins together.
PATHS += [path for path in PATHS if "files" not in path and "splits" not in path] * 3


def leaf_changes(old: Any, new: Any) -> list[str]:
    """The key paths of the values that were changed, added or removed."""
    before, after = (dict(iter_leaves(value)) for value in (old, new))
    gone = object()
    return [
        path
        for path in {**before, **after}
        if repr(before.get(path, gone)) != repr(after.get(path, gone))  # 1, 1.0 and True are not the same
    ]


def named_by(error: RegistryError) -> list[str]:
    """The key paths that a refusal names."""
    if isinstance(error, PinChangedError):
        return [key for key in [error.details["key"]] if key is not None]
    return [fault["key"] for fault in error.details["faults"]]


def is_near(key: str, place: str) -> bool:
    """Whether ``key`` is ``place``, contains it or is in it."""
    return any(one == two or one.startswith((f"{two}.", f"{two}[")) for one, two in ((key, place), (place, key)))


@given(mutation=mutations())
def test_every_change_of_a_pin_file_is_refused_and_one_of_a_single_value_is_named(
    mutation: Mutation,
) -> None:
    path, changed = mutation.path, mutation.changed
    if canonical_json(changed) == canonical_json(content()):
        assert load(changed) == PinFile.from_yaml(whole_file().encode(), "f")
        return
    with pytest.raises((PinFormatError, PinChangedError)) as caught:
        load(changed)
    keys = named_by(caught.value)
    moved = leaf_changes(content(), changed)
    is_there = {key for key, _ in iter_leaves(changed)}
    if isinstance(caught.value, PinFormatError):
        assert keys
    if len(moved) == 1 and moved[0] in is_there:  # one value for another, or one more
        assert any(is_near(key, moved[0]) for key in keys), (path, keys, moved)
        assert caught.value.message.count(keys[0])
    elif keys and isinstance(caught.value, PinChangedError):
        assert any(is_near(keys[0], one) for one in moved)


KNOWN_PATHS = [
    path for path in PATHS if not {"future", "later", "experiments", "labels", "packages"} & {*map(str, path)}
]


@given(
    path=st.sampled_from([path for path in KNOWN_PATHS if isinstance(path[-1], str) and path[-2:-1] != ("features",)])
)
def test_a_field_that_was_removed_is_named_or_its_file_refused(path: Path) -> None:
    changed = copy.deepcopy(content())
    removed = at(changed, path[:-1]).pop(path[-1])
    with pytest.raises((PinFormatError, PinChangedError)) as caught:
        load(changed)
    keys = named_by(caught.value)
    if isinstance(removed, dict | list) and removed and isinstance(caught.value, PinChangedError):
        assert not keys  # an optional field that was removed with its content: more than one value
    else:
        assert any(is_near(key, key_path(path)) for key in keys), (path, keys)


@given(place=st.integers(0, len(whole_file().encode()) - 1), data=st.data())
def test_a_changed_byte_is_refused_or_changes_no_value(place: int, data: st.DataObject) -> None:
    text = whole_file().encode()
    new = data.draw(st.sampled_from(ODD_BYTES) | st.binary(max_size=2))
    changed = text[:place] + new + text[place + data.draw(st.integers(0, 2)) :]
    try:
        found = PinFile.from_yaml(changed, "f")
    except (PinFormatError, PinChangedError):
        return
    assert canonical_json(found.content) == canonical_json(content())


def use(file: PinFile) -> None:
    """Everything that a pin file provides without its records; impossible values raise an error of the registry."""
    assert load(json.loads(file.to_json())) == file
    for entry in file.values():
        repr(entry)
        try:
            plan = entry.plan
            assert plan.num_examples == entry.num_examples
            assert entry.features.labels() is not None
            assert entry.version.reference == entry.reference
            entry.plan.order(entry.read_config).locate((0, min(entry.num_examples, 3)))
        except RegistryError as error:
            raise AssertionError(f"{entry.name} was read and cannot be used") from error


@given(mutation=mutations())
def test_a_file_that_is_sealed_anew_is_refused_or_can_be_used(mutation: Mutation) -> None:
    changed = sealed(mutation.changed)
    try:
        found = load(changed)
    except PinFormatError as error:
        keys = named_by(error)
    else:
        use(found)
        return
    assert keys
    assert all(keys)


@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), data=st.data())
def test_a_pin_reads_the_pinned_records_in_every_order(lengths: list[int], data: st.DataObject) -> None:
    slicing = data.draw(st.sampled_from(SlicingRule))
    source = make_source({"train": lengths, "test": [2, 0, 1]}, slicing=slicing)
    total = sum(lengths)
    bounds = st.one_of(
        st.tuples(st.integers(0, total), st.integers(0, total), st.just("")),
        st.tuples(st.integers(0, len(lengths)), st.integers(0, len(lengths)), st.just("shard")),
        st.tuples(st.integers(0, 100), st.integers(0, 100), st.just("%")),
    )
    slices = bounds.map(lambda one: f"train[{min(one[:2])}{one[2]}:{max(one[:2])}{one[2]}]")
    units, places = st.sampled_from(["", "shard"]), st.integers(0, 2)
    parts = st.builds(lambda inner, unit, place: f"even({inner}, 3{unit})[{place}]", slices, units, places)
    terms = slices | parts | st.sampled_from(["test", "train", "all", "test[:1]", "all[1shard:]", "train[-1shard]"])
    expression = data.draw(st.lists(terms, min_size=1, max_size=3).map("+".join))
    try:
        plan = resolve(expression, source.readable.facts.layout, slicing=slicing)
    except SliceError:  # TFDS 4 reads no empty slice
        reject()
    text = PinFile.of([pin(source, "p", expression)], created_by="x").to_yaml()
    found = PinFile.from_yaml(text.encode(), "f")["p"].plan
    assert list(found) == list(plan)
    assert found.ranges == plan.ranges
    for config in (ReadConfig(), ReadConfig(shuffle_files=True, shuffle_seed=7), ReadConfig(shuffle="global", seed=3)):
        if plan.num_examples:
            wanted, given_ = (one.order(config).locate((0, plan.num_examples)) for one in (plan, found))
            assert [part.tolist() for part in wanted] == [part.tolist() for part in given_]


def test_the_sample_is_read_written_and_used_without_a_change() -> None:
    file = PinFile.from_yaml(whole_file().encode(), "f")
    assert file.to_yaml() == whole_file()
    assert json.loads(file.to_json()) == content()
    use(file)


def test_pinning_twice_gives_the_same_text_with_the_fields_in_their_order() -> None:
    texts = []
    for _ in range(2):
        source = make_source({"train": [3, 2]})
        texts.append(PinFile.of([pin(source, "a", "train[1:]"), pin(source, "b", "train")], created_by="x").to_yaml())
    assert texts[0] == texts[1]
    found = read_yaml(texts[0].encode(), "f").value
    assert [*found] == [*PinDocument.model_fields]
    entry = PinDocument.model_fields["pins"]
    assert entry is not None
    schema = PinDocument.model_json_schema(by_alias=True)["$defs"]
    for name, value in (
        ("PinEntry", found["pins"][0]),
        ("RecordsEntry", found["pins"][0]["records"]),
        ("FileEntry", found["pins"][0]["files"][0]),
        ("FeaturesEntry", found["pins"][0]["features"]),
        ("OrderEntry", found["pins"][0]["order"]),
        ("ProvenanceEntry", found["pins"][0]["provenance"]),
    ):
        assert [*value] == [*schema[name]["properties"]]


def test_unknown_fields_count_and_are_kept_by_reading_writing_and_merging() -> None:
    file = PinFile.from_yaml(whole_file().encode(), "f")
    source = make_source({"train": [3]})
    other = content() | {"pins": [pin(source, "new", "train")], "future": "another", "newest": [1]}
    merged = file.merged(load(sealed(other)))
    found = read_yaml(merged.to_yaml().encode(), "f").value
    assert found["pins"][:-1] == content()["pins"]
    assert (found["future"], found["later"], found["newest"]) == (content()["future"], content()["later"], [1])
    unknown = [key for key, _ in iter_leaves(content()) if "future" in key or "later" in key]
    assert len(unknown) == 15
    for key in ("future.a", "pins[0].future.float", "pins[0].files[0].future[0]", "pins[0].records.first.future"):
        assert key in unknown


def test_a_name_that_is_taken_by_another_pin_is_not_merged() -> None:
    file = PinFile.from_yaml(whole_file().encode(), "f")
    assert file.merged(file) == file
    assert (
        hashlib.sha256(file.merged(file).to_yaml().encode()).digest() == hashlib.sha256(whole_file().encode()).digest()
    )
    assert write_yaml(content()).splitlines() == whole_file().splitlines()[2:]
