"""The public calls agree: each that takes a dataset accepts the same four forms, and long calls report progress."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import click
import numpy as np
import pytest
from support.golden import check_errors

import registry
from registry.api.adding import Addition
from registry.api.lifecycle import Aliases, Experiments, Lifecycle, Reservations
from registry.api.mirrors import Mirrors
from registry.api.pinning import CatalogPins
from registry.api.team import Tokens
from registry.argument_types import typed_methods
from registry.cli.main import cli
from registry.errors import ConflictError, NotFoundError, PartialFailureError, StorageError, UsageError, WrongTypeError

Call = Callable[[registry.Catalog, Any], Any]

GOLDEN = Path(__file__).with_name("golden")
EXACT = "digits:1.0.0"
DATASET = "digits"
ALIAS = "digits@paper"


def _home(catalog: registry.Catalog) -> str:
    return f"{catalog.data_dir}/digits/1.0.0"


def remove(catalog: registry.Catalog, reference: Any) -> None:
    """Look at what would be removed of a version, which is dropped meanwhile."""
    catalog.lifecycle.drop(EXACT, reason="bad")
    try:
        catalog.remove(reference, force=True, dry_run=True)
    finally:
        catalog.lifecycle.undo("drop", EXACT)


# Each public parameter that names a dataset: how to call it, and the text for the forms str and Reference.
CALLS: dict[str, tuple[Call, str]] = {
    "Catalog.dataset(reference)": (lambda catalog, given: catalog.dataset(given), EXACT),
    "Catalog.look_up(reference)": (lambda catalog, given: catalog.look_up(given), EXACT),
    "Catalog.versions(reference)": (lambda catalog, given: catalog.versions(given), EXACT),
    "Catalog.standing(reference)": (lambda catalog, given: catalog.standing(given), EXACT),
    "Catalog.remove(reference)": (remove, EXACT),
    "Catalog.usage(reference)": (lambda catalog, given: catalog.usage(given), EXACT),
    "Catalog.published_digest(reference)": (lambda catalog, given: catalog.published_digest(given), EXACT),
    "Catalog.protection(reference)": (lambda catalog, given: catalog.protection(given), EXACT),
    "Catalog.diff(old)": (lambda catalog, given: catalog.diff(given, EXACT), EXACT),
    "Catalog.diff(new)": (lambda catalog, given: catalog.diff(EXACT, given), EXACT),
    "Catalog.follow(dataset)": (lambda catalog, given: next(catalog.follow(after=0, dataset=given)), DATASET),
    "Catalog.log(dataset)": (lambda catalog, given: list(catalog.log(dataset=given)), DATASET),
    "Catalog.build(reference)": (lambda catalog, given: catalog.build(given), EXACT),
    "Catalog.preview_build(reference)": (lambda catalog, given: catalog.preview_build(given), EXACT),
    "Catalog.describe(reference)": (
        lambda catalog, given: catalog.describe(given, license="MIT", dry_run=True),
        EXACT,
    ),
    "Catalog.rename(dataset)": (lambda catalog, given: catalog.rename(given, "numerals", dry_run=True), DATASET),
    "Lifecycle.promote(reference)": (lambda catalog, given: catalog.lifecycle.promote(given), EXACT),
    "Lifecycle.deprecate(reference)": (
        lambda catalog, given: catalog.lifecycle.deprecate(given, reason="old", dry_run=True),
        EXACT,
    ),
    "Lifecycle.yank(reference)": (
        lambda catalog, given: catalog.lifecycle.yank(given, reason="bad", dry_run=True),
        EXACT,
    ),
    "Lifecycle.drop(reference)": (
        lambda catalog, given: catalog.lifecycle.drop(given, reason="bad", dry_run=True),
        EXACT,
    ),
    "Lifecycle.undo(reference)": (lambda catalog, given: catalog.lifecycle.undo("yank", given), EXACT),
    "Lifecycle.promote(uses)": (lambda catalog, given: catalog.lifecycle.promote(EXACT, uses=[given]), EXACT),
    "Lifecycle.configs(dataset)": (lambda catalog, given: catalog.lifecycle.configs(given), DATASET),
    "Lifecycle.protect(dataset)": (lambda catalog, given: catalog.lifecycle.protect(given, dry_run=True), DATASET),
    "Lifecycle.unprotect(dataset)": (lambda catalog, given: catalog.lifecycle.unprotect(given, dry_run=True), DATASET),
    "Lifecycle.set_default_config(dataset)": (
        lambda catalog, given: catalog.lifecycle.set_default_config(given),
        DATASET,
    ),
    "Aliases.set(reference)": (lambda catalog, given: catalog.aliases.set("best", given, dry_run=True), EXACT),
    "Aliases.remove(reference)": (lambda catalog, given: catalog.aliases.remove(given, dry_run=True), ALIAS),
    "Aliases.list(dataset)": (lambda catalog, given: catalog.aliases.list(given), DATASET),
    "Aliases.history(reference)": (lambda catalog, given: catalog.aliases.history(given), ALIAS),
    "Mirrors.list(reference)": (lambda catalog, given: catalog.mirrors.list(given), EXACT),
    "Mirrors.add(reference)": (lambda catalog, given: catalog.mirrors.add(given, _home(catalog)), EXACT),
    "Mirrors.remove(reference)": (lambda catalog, given: catalog.mirrors.remove(given, _home(catalog)), EXACT),
    "Mirrors.check(reference)": (lambda catalog, given: catalog.mirrors.check(given), EXACT),
    "Mirrors.relocate(reference)": (lambda catalog, given: catalog.mirrors.relocate(given, _home(catalog)), EXACT),
    "Lifecycle.proposals(dataset)": (lambda catalog, given: catalog.lifecycle.proposals(given), DATASET),
    "Reservations.list(dataset)": (lambda catalog, given: catalog.reservations.list(given), DATASET),
    "Reservations.release(reference)": (lambda catalog, given: catalog.reservations.release(given), EXACT),
    "Reservations.clear(reference)": (lambda catalog, given: catalog.reservations.clear(given), EXACT),
    "CatalogPins.preview_update(to)": (
        lambda catalog, given: catalog.pins.preview_update(catalog.dataset(EXACT).pin("train[:1%]"), to=given),
        EXACT,
    ),
    "load(reference)": (lambda catalog, given: registry.load(given, "train[:1]", catalog=catalog), EXACT),
    "load(name)": (lambda catalog, given: registry.load(name=given, split="train[:1]", catalog=catalog), EXACT),
    "builder(name)": (lambda catalog, given: registry.builder(given, catalog=catalog), EXACT),
}

# What these calls say of this catalog when they understood the argument: digits has no configs, no reservation, and is
# stored on this machine; a Dataset is a version and not an alias.
UNDERSTOOD = {
    "Lifecycle.set_default_config(dataset)": (UsageError, "digits does not name a config"),
    "Mirrors.remove(reference)": (ConflictError, "digits/1.0.0 is the only location of digits:1.0.0"),
    "Reservations.release(reference)": (NotFoundError, "digits:1.0.0 has no reservation"),
    "Reservations.clear(reference)": (UsageError, "is on this machine"),
    "Aliases.remove(reference)": (UsageError, "digits:1.0.0"),
    "Aliases.history(reference)": (UsageError, "digits:1.0.0"),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    folder = tmp_path_factory.mktemp("face")
    with registry.connect(folder / "catalog.db") as opened:
        opened.build("digits", processes=1)
        opened.aliases.set("paper", EXACT, reason="As submitted.")
        yield opened


def forms(catalog: registry.Catalog, text: str) -> dict[str, Any]:
    dataset = catalog.dataset(EXACT)
    return {
        "str": text,
        "Reference": registry.Reference.parse(text),
        "Dataset": dataset,
        "DatasetVersion": dataset.facts,
    }


@pytest.mark.parametrize("form", ["str", "Reference", "Dataset", "DatasetVersion"])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_accepts_the_four_forms_of_a_dataset(catalog: registry.Catalog, name: str, form: str) -> None:
    call, text = CALLS[name]
    given = forms(catalog, text)[form]
    error, message = UNDERSTOOD.get(name, (None, ""))
    if error is None or (text == ALIAS and form in ("str", "Reference")):
        call(catalog, given)
        return
    with pytest.raises(error, match=message):
        call(catalog, given)


@pytest.mark.parametrize("wrong", [5, b"digits", ("digits", None), ["digits"], object], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_every_call_refuses_other_types_with_one_error(catalog: registry.Catalog, name: str, wrong: Any) -> None:
    call, _ = CALLS[name]
    with pytest.raises(WrongTypeError) as caught:
        call(catalog, wrong)
    assert isinstance(caught.value, UsageError)
    builders = ", or a DatasetBuilder class or instance" if "build(" in name else ""
    accepted = "str, Reference, Dataset, DatasetVersion" if builders else "str, Reference, Dataset or DatasetVersion"
    kind = type(wrong).__name__ if wrong is not object or not builders else "the class object"
    assert caught.value.message == f"expected a {accepted}{builders}, not {kind}"


# Here None means "every dataset", "every alias" or "look the pin's own request up".
_NONE_HAS_A_MEANING = {name for name in CALLS if name.endswith("(dataset)") and "config" not in name} | {
    "CatalogPins.preview_update(to)",
    "Catalog.usage(reference)",
}


@pytest.mark.parametrize("name", sorted(set(CALLS) - _NONE_HAS_A_MEANING))
def test_none_is_refused_if_it_has_no_meaning(catalog: registry.Catalog, name: str) -> None:
    call, _ = CALLS[name]
    with pytest.raises(UsageError) as caught:
        call(catalog, None)
    missing = "no dataset was given"
    assert caught.value.message == missing if name.startswith("load") else isinstance(caught.value, WrongTypeError)


def test_no_parameter_that_names_a_dataset_is_missing_above() -> None:
    """Every parameter annotated with DatasetLike, and every one with a name that such a parameter has."""
    classes = (registry.Catalog, Lifecycle, Aliases, Experiments, Mirrors, Reservations, Tokens, CatalogPins)
    functions = {
        f"{one.__name__}.{name}": method
        for one in classes
        for name, method in inspect.getmembers(one, inspect.isfunction)
        if not name.startswith("_")
    } | {name: getattr(registry, name) for name in registry.__all__ if inspect.isfunction(getattr(registry, name))}
    found = set()
    for name, function in functions.items():
        for parameter in inspect.signature(function).parameters.values():
            if "DatasetLike" in str(parameter.annotation) or parameter.name in ("reference", "dataset", "config_of"):
                found.add(f"{name}({parameter.name})")
    found -= {"as_dataframe(dataset)"}  # a reader, under the name that TFDS uses
    found -= {"Catalog.copy(references)"}  # one or several; see test_copy.py
    assert found == set(CALLS) - {"Lifecycle.promote(uses)"}


def test_versions_and_standing_ignore_the_version_of_a_reference(catalog: registry.Catalog) -> None:
    dataset = catalog.dataset("digits")
    assert catalog.versions(dataset) == catalog.versions("digits") == catalog.versions(dataset.reference)
    assert catalog.standing(dataset.facts) == catalog.standing("digits:^1")


def test_a_digest_needs_an_exact_version(catalog: registry.Catalog) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.published_digest("digits:1.*")
    assert caught.value.message == "digits:1.*.* does not name one version by its number"
    assert caught.value.hint == "Write digits:1.0.0. List the versions: registry versions digits"


def test_a_call_about_all_versions_refuses_a_version_in_text(catalog: registry.Catalog) -> None:
    for given in (EXACT, registry.Reference.parse(EXACT), ALIAS):
        with pytest.raises(UsageError, match=r"name a dataset without a version(?m:$)"):
            catalog.lifecycle.protect(given)


@pytest.mark.parametrize("wrong", [5, b"1.0.0"])
def test_an_expected_version_of_another_type_is_a_typed_error(catalog: registry.Catalog, wrong: Any) -> None:
    with pytest.raises(WrongTypeError) as caught:
        catalog.aliases.set("best", EXACT, expect=wrong)
    assert caught.value.message == f"expected a version as str or Version, not {type(wrong).__name__}"


def test_every_long_call_reports_progress(catalog: registry.Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("digits")
    prepared = Path(dataset.local_folder or "")
    num_bytes = sum(shard.num_bytes for shard in dataset.shards("train"))
    with registry.connect(tmp_path / "other.db") as other:
        calls: dict[str, tuple[Callable[..., Any], str, str, int | None]] = {
            "build": (lambda **to: other.build("digits", processes=1, **to), "verifying", "records", None),
            "verify": (dataset.verify, "verifying", "records", 1797),
            "verify_all": (catalog.verify_all, "verifying", "records", 1797),
            "verify_log": (catalog.verify_log, "verifying", "rows", None),
            "pin": (lambda **to: dataset.pin("train", **to), "hashing", "bytes", None),
            "export_tfds": (lambda **to: dataset.export_tfds(tmp_path / "out", **to), "exporting", "bytes", num_bytes),
            "import_tfds": (lambda **to: other.import_tfds(prepared, **to), "importing", "records", 2 * 1797),
            "publish": (lambda **to: other.publish(prepared, **to), "verifying", "records", None),
            "preview": (lambda **to: other.preview(prepared, **to), "verifying", "records", None),
        }
        for name, (call, stage, unit, total) in calls.items():
            seen: list[registry.Progress] = []
            call(progress=seen.append)
            assert seen, name
            assert (seen[-1].stage, seen[-1].unit) == (stage, unit), name
            assert total is None or (seen[-1].total == total and seen[-1].done <= total), name
            for before, after in pairwise(seen):
                is_same = (before.stage, before.subject) == (after.stage, after.subject)
                assert after.done >= before.done if is_same else after.done >= 0, name


def test_progress_reads_as_a_sentence() -> None:
    one = registry.Progress(stage="verifying", subject="digits:1.0.0", done=1200, total=1797)
    assert str(one) == "verifying digits:1.0.0: 1,200 of 1,797 records"
    assert str(registry.Progress(stage="hashing", done=5, unit="bytes")) == "hashing: 5 bytes"


def test_no_public_call_has_another_word_for_progress_or_hides_its_options() -> None:
    for name in registry.__all__:
        value = getattr(registry, name)
        functions = dict(inspect.getmembers(value, inspect.isfunction)) if inspect.isclass(value) else {name: value}
        for word, function in functions.items():
            if word.startswith("_") or not inspect.isfunction(function):
                continue
            parameters = inspect.signature(function).parameters
            others = {"advance", "message", "wanted", "exactly", "given"} & set(parameters)
            assert not others, f"{name}.{word}"
            assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values()), f"{name}.{word}"


def test_an_import_acts_when_it_is_called_and_returns_a_report(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = catalog.dataset("digits").local_folder or ""
    with registry.connect(tmp_path / "catalog.db") as other:
        assert repr(other.import_tfds(folder, dry_run=True)) == "<ImportReport: 1 found>"
        other.import_tfds(folder)  # as a statement, without iterating
        assert [str(one.version) for one in other.versions("digits")] == ["1.0.0"]
        again = other.import_tfds(folder)
        assert (len(again), repr(again), dict(again.counts)) == (1, "<ImportReport: 1 known>", {"known": 1})
        assert again.require_all() is again
        assert again[0].reference == again[:1][0].reference == registry.Reference.parse(EXACT)
        assert (again.failed, list(again) == [again[0]], hash(again) == hash(again)) == ((), True, True)


def test_a_report_of_refused_versions_names_them(catalog: registry.Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("digits")
    dataset.export_tfds(tmp_path / "out")
    (shard,) = (tmp_path / "out").glob("**/*00001-of-00004")
    shard.write_bytes(shard.read_bytes()[:-1])
    with registry.connect(tmp_path / "catalog.db") as other:
        report = other.import_tfds(tmp_path / "out")
        (refused,) = report.failed
        assert (repr(report), refused.outcome) == ("<ImportReport: 1 refused>", "refused")
        with pytest.raises(PartialFailureError) as caught:
            report.require_all()
        assert caught.value.message == f"1 of 1 version could not be imported:\n  digits:1.0.0: {refused.error.message}"
        assert caught.value.details == {"failed": [{"version": "digits:1.0.0", "code": refused.error.code}]}
        assert caught.value.__cause__ is refused.error


def test_verify_all_returns_a_report(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build("digits", processes=1)
        reported: list[Any] = []
        report = catalog.verify_all(each=reported.append)
        assert (repr(report), report.is_sound, reported) == (
            "<CatalogReport: 1 of 1 version match what was published>",
            True,
            list(report),
        )
        assert report.require_sound() is report
        shard = Path(catalog.dataset("digits").local_folder or "") / "digits-train.tfrecord-00002-of-00004"
        shard.unlink()
        report = catalog.verify_all()
        assert (report.num_sound, len(report.failed)) == (0, 1)
        with pytest.raises(PartialFailureError) as caught:
            report.require_sound()
        assert caught.value.message.startswith("1 of 1 version could not be verified:\n  digits:1.0.0: ")


def test_load_refuses_a_batch_of_no_examples(catalog: registry.Catalog) -> None:
    with pytest.raises(UsageError) as caught:
        registry.load("digits", split="train", batch_size=0, catalog=catalog)
    assert caught.value.message == "batch_size must be at least 1, not 0"
    assert caught.value.hint == "Pass None for single examples, or -1 for all examples at once."


def test_surplus_names_are_gone(catalog: registry.Catalog) -> None:
    removed = {"indexes", "version_store", "data_store", "num_logged_rows", "explain_no_hits"}
    assert not [name for name in removed if hasattr(catalog, name)]
    assert not hasattr(registry, "as_numpy")
    assert not [name for name in ("joined", "read_plan") if hasattr(registry.Pin, name)]
    assert not hasattr(registry.PinFile, "name_taken")


def test_everything_exported_exists_and_hints_resolve() -> None:
    for name in registry.__all__:
        assert getattr(registry, name) is not None
    assert set(get_type_hints(registry.Progress)) == {
        *("stage", "subject", "done", "total", "unit"),
        *("num_bytes", "tasks"),
    }
    assert issubclass(StorageError, registry.RegistryError)
    assert issubclass(ConflictError, registry.RegistryError)


WRONG_TYPES: list[Callable[[registry.Catalog, Path], Any]] = [
    lambda catalog, _: catalog.publish(5),  # a path
    lambda catalog, _: catalog.preview(b"x"),  # a path of bytes
    lambda *_: registry.connect(5),  # a URL
    lambda catalog, folder: catalog.publish(folder, promote="no"),  # a flag
    lambda catalog, folder: catalog.publish(folder, progress=5),  # a callback
    lambda catalog, _: catalog.lifecycle.yank(EXACT, reason=None),  # a reason
    lambda catalog, _: catalog.lifecycle.promote(EXACT, uses="digits:1.*"),  # uses
    lambda catalog, _: catalog.log(since="x"),  # a moment of the log
    lambda catalog, _: catalog.log(actions="yank"),  # names of actions
    lambda catalog, _: catalog.search("digits", limit="5"),  # a limit
    lambda catalog, _: list(catalog.log(limit=1.5)),  # a limit of the log
    lambda catalog, _: catalog.pins.audit("paper"),  # a pin file
    lambda catalog, _: catalog.dataset(EXACT).pin("train", into={}),  # a pin file to add to
    lambda *_: registry.load("digits", catalog="x"),  # a catalog
    lambda _, folder: registry.load_pin(folder, allow_hosts=["x", 5]),  # hosts
    lambda catalog, _: catalog.dataset(EXACT).implements([]),  # a flag of an experiment
    lambda *_: registry.Reference.parse(5),  # a reference
    lambda *_: registry.Reference.exactly(5, None, registry.Version(1, 0, 0)),  # a name
    lambda *_: registry.VersionRequest.parse([]),  # a request
    lambda *_: registry.VersionRequest.parse("1").allows("1.0.0"),  # a version
    lambda *_: registry.Version(1, 0, 0).bump(""),  # a part
    lambda catalog, _: catalog.dataset(EXACT).splits["train"].filename(float("inf")),  # a shard
    lambda catalog, _: catalog.dataset(EXACT).read("train").select(5),  # a feature
    lambda catalog, _: catalog.dataset(EXACT).read("train").as_supervised("image", 5),  # supervised keys
    lambda catalog, _: catalog.dataset(EXACT).read("train").fill_missing(5),  # values
    lambda catalog, _: catalog.dataset(EXACT).read("train").seek("1"),  # an epoch
    lambda *_: registry.ReadInstruction("train").part("0", of=2),  # a part of a split
    lambda *_: registry.even_splits("train", n=2**63),  # more parts than can be listed
    lambda *_: registry.k_fold("train", k=2**63),  # more folds than can be listed
    lambda catalog, folder: (
        (folder / "a.csv").write_text("a\n1\n"),
        catalog.add(folder / "a.csv", nulls=[1]),
    ),  # a text that means null
    lambda catalog, _: catalog.publish("\ud800"),  # a path that cannot be encoded
]


def test_an_argument_of_a_wrong_type_is_an_error_of_its_own(catalog: registry.Catalog, tmp_path: Path) -> None:
    check_errors(
        GOLDEN / "public_face" / "an_argument_of_a_wrong_type.txt",
        (partial(call, catalog, tmp_path) for call in WRONG_TYPES),
    )


def test_a_pin_names_the_seed_that_its_shuffle_needs(catalog: registry.Catalog) -> None:
    for config, hint in (
        (registry.ReadConfig(shuffle_files=True), "Add shuffle_seed=42."),
        (registry.ReadConfig(shuffle="global"), "Add seed=42."),
    ):
        with pytest.raises(UsageError, match="a pinned shuffle needs a seed") as caught:
            catalog.dataset(EXACT).pin("train", read_config=config)
        assert caught.value.hint == hint


def test_the_argument_of_an_engine_is_spelled() -> None:
    with pytest.raises(UsageError) as caught, registry.use_engine("local", address="10.0.0.1:6379"):
        pass
    assert caught.value.hint == "Use engine='ray'."


def test_each_of_several_arguments_is_checked() -> None:
    @typed_methods
    class Choice:
        def take(self, *names: str) -> int:
            return len(names)

    assert (Choice().take(), Choice().take("a", "b")) == (0, 2)
    with pytest.raises(WrongTypeError, match=r"^names must be str, not int$"):
        Choice().take("a", 5)  # type: ignore[arg-type] # the mistake


def test_a_state_and_a_share_are_read_from_json(catalog: registry.Catalog) -> None:
    dataset = catalog.dataset(EXACT)
    for source in (partial(dataset.read, "train"), dataset.pin("train")["train"].read):
        reader = source(process=[0, 2])  # JSON has no tuples
        state = reader.state()
        for process in ((0, 2), np.array([0, 2])):
            assert len(source(process=process, state=state)) == len(reader) == 899
        assert len(reader.reopened(process=[1, 2])) == 898  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"process must be \(index, count\), two whole numbers, not 5"):
            source(process=5)


def test_every_flag_of_a_public_method_refuses_text() -> None:
    owners = (registry.Catalog, registry.Dataset, registry.Pin, registry.PinFile, Addition)
    num_flags = 0
    for owner in (*owners, Lifecycle, Aliases, Experiments, Mirrors, Reservations, Tokens, CatalogPins):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            parameters = inspect.signature(method).parameters.values()
            required = {
                each.name: "x" for each in parameters if each.default is each.empty and each.kind != each.VAR_POSITIONAL
            }
            for flag in parameters:
                if not name.startswith("_") and "bool" in str(flag.annotation).split(" | "):
                    num_flags += 1
                    with pytest.raises(WrongTypeError):  # "no" is a true value
                        method(**required | {flag.name: "no"})
    assert num_flags > 50


def test_a_call_refuses_a_wrong_type_before_it_changes_anything(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = catalog.dataset(EXACT).local_folder or ""
    with registry.connect(tmp_path / "catalog.db", create=True) as other:
        with pytest.raises(WrongTypeError) as caught:
            other.import_tfds(folder, dry_run="no")  # type: ignore[arg-type]
        assert caught.value.details == {"argument": "dry_run", "accepted": "True or False", "type": "str"}
        assert other.datasets() == ()


def test_swapped_shards_of_different_lengths_are_named(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build("digits", processes=1)
        dataset = catalog.dataset(EXACT)
        folder = Path(dataset.local_folder or "")
        short, long = (folder / f"digits-train.tfrecord-0000{index}-of-00004" for index in (0, 2))
        assert [shard.num_examples for shard in dataset.shards("train")] == [449, 449, 450, 449]
        short.rename(folder / "aside")
        long.rename(short)
        (folder / "aside").rename(long)
        first, second = dataset.verify().faults
        assert (first.code, second.code) == ("foreign_shard", "foreign_shard")
        assert f"with its builder: registry build {EXACT} --rebuild" in dataset.verify().recovery
        other = "the file is intact, but is another file: shard"
        assert first.problem == f"{short}: expected 449 records, found 450; {other} 2 of split train"
        assert second.problem == f"{long}: expected 450 records, found 449; {other} 0 of split train"


def test_a_shard_that_lost_its_last_record_is_not_called_foreign(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build("digits", processes=1)
        dataset = catalog.dataset(EXACT)
        shard = Path(dataset.local_folder or "") / "digits-train.tfrecord-00000-of-00004"
        content = shard.read_bytes()
        end = 0
        for _ in range(448):
            end += 16 + int.from_bytes(content[end : end + 8], "little")
        shard.write_bytes(content[:end])
        (fault,) = dataset.verify().faults
        assert (fault.code, fault.foreign_sha256 is None) == ("shard_mismatch", False)
        assert fault.problem == f"{shard}: expected 449 records, found 448"


# A command, the call that does its work, and the options of the command that are not arguments of this call: they
# choose the output or another call (``--dry-run`` of ``build`` calls ``preview_build``), or are named otherwise
# (``--shards`` is ``num_shards``).
COLUMNS = "keep-columns", "with-columns"  # a step after the publication, which is a method of the dataset in Python
OPTIONS_OF_CALLS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "build": (registry.Catalog.build, {"shards", "dry-run", "show", *COLUMNS}),
    "publish": (registry.Catalog.publish, {"dry-run", "show", *COLUMNS}),
    "import tfds": (registry.Catalog.import_tfds, set()),
    "import parquet": (registry.Catalog.import_parquet, {"dry-run"}),
    "search": (registry.Catalog.search, {"all"}),
    "diff": (registry.Catalog.diff, {"html", "force"}),
    "describe": (registry.Catalog.describe, set()),
    "deprecate": (Lifecycle.deprecate, {"undo"}),
    "yank": (Lifecycle.yank, {"undo"}),
    "drop": (Lifecycle.drop, {"undo"}),
    "promote": (Lifecycle.promote, set()),
    "config protect": (Lifecycle.protect, set()),
    "config set-default": (Lifecycle.set_default_config, set()),
    "alias set": (Aliases.set, set()),
    "alias rm": (Aliases.remove, set()),
    "experiment set-default": (Experiments.set_default, set()),
    "experiment add": (Experiments.add, set()),
    "reservation clear": (Reservations.clear, set()),
    "reservation release": (Reservations.release, set()),
    "token create": (Tokens.create, set()),
    "token revoke": (Tokens.revoke, set()),
    "versions": (registry.Catalog.versions, set()),
    "du": (registry.Catalog.usage, {"by"}),
    "gc": (registry.Catalog.collect_garbage, set()),
    "remove": (registry.Catalog.remove, set()),
    "rename": (registry.Catalog.rename, set()),
    "backup": (registry.Catalog.backup, set()),
    "restore": (registry.restore, {"no-verify"}),
    "log verify": (registry.Catalog.verify_log, set()),
    "resolve": (registry.Dataset.resolve, {"at", "locked", "why"}),
    "pin restore": (registry.load_pin, {"to", "force", "dry-run"}),
    "pin read": (registry.load_pin, {"limit", "ids", "catalog", "columns", "names", "pixels", "where"}),
}
COMMON = {"catalog", "data-dir", "format", "engine", "address", "runtime-env", "task-memory", "object-store-memory"}
PLURALS = {
    "allow-host": "allow_hosts",
    "tag": "tags",
    "dataset": "datasets",
    "remove-tag": "remove_tags",
}  # an option is given once for each value


@pytest.mark.parametrize("command", OPTIONS_OF_CALLS)
def test_an_option_has_one_word_in_python_and_on_the_command_line(command: str) -> None:
    call, others = OPTIONS_OF_CALLS[command]
    found: click.Command = cli
    for word in command.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word) or pytest.fail(word)
    options = {
        name.removeprefix("--")
        for one in found.params
        if isinstance(one, click.Option)
        for name in one.opts[-1:] + [long for long in one.opts if long.startswith("--")][:1]
        if name.startswith("--")
    } - {"data", "take"}  # second spellings
    words = {PLURALS.get(option, option.replace("-", "_")) for option in options - others - COMMON}
    assert words <= set(inspect.signature(call).parameters), command


def test_the_engine_of_a_command_is_that_of_a_block_and_no_argument_of_its_call() -> None:
    calls = {name: call for name, (call, _) in OPTIONS_OF_CALLS.items()} | {
        "add": registry.Catalog.add,
        "copy": registry.Catalog.copy,
        "verify": registry.Dataset.verify,
        "pin create": registry.Dataset.pin,
        "pin verify": registry.Pin.verify,
    }
    found = set()
    for name, call in calls.items():
        command: click.Command = cli
        for word in name.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word) or pytest.fail(word)
        if "--engine" in {option for one in command.params for option in one.opts}:
            found.add(name)
            assert "engine" not in inspect.signature(call).parameters, name
    assert found == {
        *("add", "build", "copy", "import parquet", "import tfds", "pin create", "pin verify", "publish", "verify")
    }
