"""Compares versions, names, picks and folders with TFDS 4.9.10: equal, or different for a checked, named reason.

Each section has one function that returns the outcome of a case. A reason is given only if its condition holds for this
case and our answer is the one that the reason promises; everything else is "different", and no case may be different.
The end of the test run's output counts the outcomes.
"""

from __future__ import annotations

import ast
import functools
import gzip
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from registry.building import BuilderConfig, DatasetBuilder
from registry.errors import (
    BuildError,
    ConfigNotFoundError,
    NotFoundError,
    ReferenceSyntaxError,
    UsageError,
    VersionNotFoundError,
)
from registry.model import Reference, Version, VersionRequest
from registry.prepared import find_prepared
from registry.storage import open_store

VECTORS = json.loads(gzip.decompress((Path(__file__).parent / "versions.json.gz").read_bytes()))
SHORT = re.compile(r"(\*|[0-9]+)(\.(\*|[0-9]+))?")
"""One or two parts, which TFDS refuses and a request takes for a series."""


def request_of(text: str) -> VersionRequest | None:
    """The version request in ``text``, or None if it is invalid."""
    try:
        return VersionRequest.parse(text)
    except ReferenceSyntaxError:
        return None


def version_of(value: Any) -> list[int] | None:
    try:
        return list(Version(value).parts)
    except ReferenceSyntaxError:
        return None


def refused_text(text: str) -> str | None:
    """Why a text that TFDS accepts as a version is invalid here."""
    if text.endswith("\n"):
        return "no newline at the end"
    if not text.isascii():
        return "ASCII digits only"
    if any(int(part) > 2**31 - 1 for part in text.split(".") if part.isdigit()):
        return "parts that a database holds"
    return None


def judge_version(case: Any) -> str:
    expected, found = case["version"], version_of(case["s"])
    if found == expected.get("ok"):
        return "equal" if found else "both refuse"
    return (refused_text(case["s"]) if found is None else None) or "different"


def judge_wildcard(case: Any) -> str:
    expected, found = case["wildcard"], request_of(case["s"])
    if found is None:
        return "both refuse" if "err" in expected else refused_text(case["s"]) or "different"
    if "err" in expected:
        if str(found) == case["s"].strip(" "):
            return "space around a request"
        is_series = SHORT.fullmatch(case["s"]) and str(found) == ".".join([*case["s"].split("."), "*", "*"][:3])
        return "short form" if is_series else "different"
    return "equal" if str(found) == ".".join(map(str, expected["ok"])) else "different"


def judge_validity(case: Any) -> str:
    found = Version.is_valid(case["s"])
    if found is case["is_valid"]:
        return "equal"
    return (refused_text(case["s"]) if case["is_valid"] else None) or "different"


def judge_value(case: Any) -> str:
    """A Python value that is not text: it is never a version, and checking it is not an error."""
    value = ast.literal_eval(case["s"])
    if Version.is_valid(value) or version_of(value) is not None or "err" not in case["version"]:
        return "different"
    return "equal" if case["is_valid"] == {"ok": False} else "is_valid answers instead of failing"


def judge_match(case: Any) -> str:
    version, pattern = Version(case["version"]), case["pattern"]
    try:
        found = version.match(pattern)
    except ReferenceSyntaxError:
        return "both refuse" if "err" in case else "different"
    if "ok" in case:
        return "equal" if found is case["ok"] else "different"
    series = zip(pattern.split("."), case["version"].split("."), strict=False)
    is_in_series = all(part in ("*", other) for part, other in series)
    return "short form" if SHORT.fullmatch(pattern) and found is is_in_series else "different"


def plain_reference(expected: Any) -> Reference | None:
    """The reference that TFDS parsed, or None if it has invalid parts or parts that a reference cannot have."""
    kwargs = expected["kwargs"]
    if expected["namespace"] is not None or not kwargs.keys() <= {"config", "version"}:
        return None
    request = kwargs.get("version")
    try:
        return Reference(
            expected["name"], kwargs.get("config"), None if request is None else VersionRequest.parse(request)
        )
    except ReferenceSyntaxError:
        return None


def judge_name(case: Any) -> str:
    text, expected = case["s"], case.get("ok")
    try:
        found = Reference.parse(text)
    except ReferenceSyntaxError as error:
        return "both refuse" if expected is None else refused_name(text, expected, error) or "different"
    if expected is None:
        name, _, request = text.partition(":")
        meant = Reference(name, None, request_of(request))
        return "short form" if SHORT.fullmatch(request) and found == meant else "different"
    return "equal" if found == plain_reference(expected) else "different"


def refused_name(text: str, expected: Any, error: ReferenceSyntaxError) -> str | None:
    """Why a name string that TFDS accepts is refused here, if the error gives the same reason."""
    if expected["namespace"] is not None:
        is_named = "namespace" in error.message or "namespaces are not supported" in str(error.hint)
        return "no namespaces" if is_named else None
    if not expected["kwargs"].keys() <= {"config", "version"}:
        return "only config and version" if "expected config or version" in error.message else None
    if text.endswith("\n"):
        return "no newline at the end"
    version = expected["kwargs"].get("version")
    if version is not None and not Version.is_valid(version) and "*" not in version:
        return "refused where it is parsed" if error.message == f"invalid version request {version!r}" else None
    return None


def builder_of(canonical: Any, supported: Iterable[Any], configs: Iterable[Any] = (), default: Any = None) -> Any:
    """The builder class of a spec."""
    attributes = {
        "VERSION": canonical,
        "SUPPORTED_VERSIONS": tuple(supported),
        "BUILDER_CONFIGS": tuple(BuilderConfig(**config) for config in configs),
        "DEFAULT_CONFIG": default,
        "features": lambda _: None,
        "splits": lambda _: None,
    }
    made = type("Ds", (DatasetBuilder,), attributes)
    made.configs()  # raises if an attribute is refused
    return made


def judge_pick(case: Any, request: str | None, versions: list[str], pick: Callable[[str | None], Version]) -> str:
    """The outcome of picking a version from ``versions``, of which the first is canonical."""
    answer, refusal = case.get("ok"), case.get("err", [None])[0]
    expected = answer["version"] if isinstance(answer, dict) else answer
    try:
        found = pick(request)
    except ReferenceSyntaxError:
        if request == "experimental_latest":
            return "experimental_latest is written *" if pick("*") == expected else "different"
        return "both refuse" if refusal == "ValueError" and request_of(str(request)) is None else "different"
    except VersionNotFoundError as error:
        if not all(version in str(error.hint) for version in versions):  # as in TFDS, it lists those that exist
            return "different"
        if refusal == "ValueError":
            return "short form" if SHORT.fullmatch(str(request)) else "different"
        return "both refuse" if refusal == "AssertionError" else "different"
    if expected == found:
        return "equal"
    allowed = [Version(version) for version in versions if VersionRequest.parse(str(request)).allows(Version(version))]
    if refusal is not None:
        return "short form" if SHORT.fullmatch(str(request)) and found == max(allowed) else "different"
    is_first = expected == allowed[0] and found == max(allowed)
    return "the highest, not the first in the list" if is_first else "different"


def judge_code(case: Any) -> str:
    builder = builder_of(case["canonical"], case["supported"])
    versions = [case["canonical"], *case["supported"]]
    return judge_pick(case, case["request"], versions, lambda request: builder(version=request).version)


def lay_out(data_dir: Path, case: Any) -> None:
    """The folders of a case, as TFDS leaves them."""
    dataset = data_dir / "ds"
    parent = dataset / case["config_on_disk"] if case["config_on_disk"] else dataset
    for name in case["dirs"]:
        folder = parent / name.removesuffix("!nofeat")
        folder.mkdir(parents=True)
        (folder / "dataset_info.json").write_text("{}")
        if not name.endswith("!nofeat"):
            (folder / "features.json").write_text("{}")
    if case["default_config"]:
        (dataset / ".config").mkdir()
        (dataset / ".config" / "metadata.json").write_text(json.dumps({"default_config_name": case["default_config"]}))


def judge_disk(data_dir: Path, case: Any) -> str:
    text, expected = case["request"], case.get("ok")
    request = None if text is None else request_of(text)
    if text is not None and request is None:
        if "err" in case:
            return "both refuse"
        if text == "":
            return "an empty request is none"
        # TFDS checks a request only if there is a folder to compare it with.
        return "refused where it is parsed" if expected is None else "different"
    allowed = [
        Version(name.removesuffix("!nofeat"))
        for name in case["dirs"]
        if Version.is_valid(name.removesuffix("!nofeat"))
        and (request is None or request.allows(Version(name.removesuffix("!nofeat"))))
    ]
    whole = [version for version in allowed if f"{version}!nofeat" not in case["dirs"]]
    try:
        found = find_prepared(open_store(data_dir), Reference("ds", case["ask_config"], request))
    except NotFoundError:
        if "err" in case:
            return "short form" if SHORT.fullmatch(str(text)) and not whole else "different"
        return "equal" if expected is None else "different"
    if found == expected:
        return "equal"
    if found.rpartition("/")[-1] != max(whole):
        return "different"
    if "err" in case:
        return "short form" if SHORT.fullmatch(str(text)) else "different"
    # TFDS took the highest, which is not whole, and then found nothing.
    is_passed = expected is None and max(allowed) not in whole
    return "a folder that is not whole is passed over" if is_passed else "different"


def judge_config(case: Any) -> str:
    canonical, supported, configs, *rest = case["spec"]
    default = rest[0] if rest else None
    names = [config["name"] for config in configs]
    expected = case.get("ok")
    try:
        builder = builder_of(canonical, supported, configs, default)
    except (BuildError, UsageError) as error:
        if "two configs have this name" in error.message:
            return judge_twice(case, names)
        if default not in names and "no config has this name" in error.message:
            return "both refuse" if expected is None else "a wrong default is refused when the class is used"
        return "different"
    if ":" in str(case["config"]):
        return judge_config_with_version(builder, case)
    chosen: list[Any] = []

    def pick(request: str | None) -> Version:
        chosen[:] = [builder(config=case["config"], version=request)]
        version: Version = chosen[0].version
        return version

    try:
        verdict = judge_pick(case, case["version"], known_versions(builder, case["config"]), pick)
    except ConfigNotFoundError:
        return "both refuse" if expected is None else "different"
    except (BuildError, UsageError) as error:
        return "both refuse" if expected is None and "a builder needs a version" in error.message else "different"
    if verdict != "equal":
        return verdict
    (one,) = chosen
    answer = {
        "config": one.config_name,
        "version": str(one.version),
        "canonical": str(one.canonical_version),
        "versions": [str(version) for version in one.versions(one.config_name)],
    }
    return "equal" if answer == {name: expected[name] for name in answer} else "different"


def known_versions(builder: Any, config: str | None) -> list[str]:
    return [str(version) for version in builder.versions(config)]


def judge_twice(case: Any, names: list[str]) -> str:
    """Configs of one name: refused when the class is used. The case is then tried with one config."""
    if case["builder"] == "dup":  # the very same config twice: TFDS notices when one is looked up by its name
        return "both refuse" if "ok" not in case else "a name twice is refused when the class is used"
    assert names == ["en", "en", "fr"]
    english = {"name": "en", "version": "2.0.0", "supported_versions": ("1.0.0",)}
    once = builder_of("2.0.0", (), [english, {"name": "fr", "version": "1.0.0"}])
    expected = case.get("ok")
    config, _, in_config = str(case["config"] or "en").partition(":")
    if in_config and case["version"] is not None:
        with pytest.raises(ReferenceSyntaxError, match="names its version twice"):
            Reference.parse(f"ds/{case['config']}/version={case['version']}")
        return "both refuse" if expected is None else "the version is named once"
    request = in_config or ("*" if case["version"] == "experimental_latest" else case["version"])
    try:
        found = once(config=config, version=request).version
    except NotFoundError:
        return "both refuse" if expected is None else "different"
    if expected is not None:
        return "one config with several versions" if found == expected["version"] else "different"
    # TFDS finds no config of that name and that very version, or keeps the default config's first one.
    known = once.versions(config)
    meant = known[0] if request is None else VersionRequest.parse(request).highest(known)
    return "a request among the versions of one config" if found == meant else "different"


def judge_config_with_version(builder: Any, case: Any) -> str:
    """``config="en:1.0.0"``: a version belongs in the reference, not in the config's name."""
    with pytest.raises(ConfigNotFoundError):
        builder(config=case["config"], version=case["version"])
    if "ok" not in case:
        return "both refuse"
    written = builder.pick(f"ds/{case['config']}")  # as a reference it means 1.0.0; TFDS gives 2.0.0 for both
    return "a version stands in the reference" if case["config"].endswith(str(written.version)) else "different"


def count(record_property: Callable[[str, object], None], what: str, verdicts: Iterable[str]) -> dict[str, int]:
    counts = dict(Counter(verdicts))
    record_property(f"TFDS 4.9.10, {sum(counts.values())} {what}", counts)
    return counts


TEXTS = [case for case in VECTORS["parse"] if not case.get("python")]


def test_versions_are_read_as_tfds_reads_them(record_property: Callable[[str, object], None]) -> None:
    assert count(record_property, "texts of versions", map(judge_version, TEXTS)) == {
        "equal": 3,
        "both refuse": 22,
        "no newline at the end": 1,
        "ASCII digits only": 1,
        "parts that a database holds": 1,
    }
    assert count(record_property, "texts of wildcards", map(judge_wildcard, TEXTS)) == {
        "equal": 7,
        "both refuse": 14,
        "short form": 2,
        "space around a request": 2,
        "no newline at the end": 1,
        "ASCII digits only": 1,
        "parts that a database holds": 1,
    }
    assert count(record_property, "texts asked for validity", map(judge_validity, TEXTS)) == {
        "equal": 25,
        "no newline at the end": 1,
        "ASCII digits only": 1,
        "parts that a database holds": 1,
    }
    values = [case for case in VECTORS["parse"] if case.get("python")]
    assert count(record_property, "values that are no text", map(judge_value, values)) == {
        "equal": 1,
        "is_valid answers instead of failing": 4,
    }


def test_versions_match_patterns_as_in_tfds(record_property: Callable[[str, object], None]) -> None:
    assert count(record_property, "matches", map(judge_match, VECTORS["match"])) == {
        "equal": 27,
        "short form": 9,
        "both refuse": 3,
    }


def test_versions_are_ordered_as_in_tfds() -> None:
    expected = VECTORS["sorted"]
    for order in itertools.permutations(expected):
        assert [str(version) for version in sorted(map(Version, order))] == expected
    for first, second in itertools.pairwise(expected):
        assert Version(first) < second
        assert Version(second) > first


def test_name_strings_are_parsed_as_tfds_parses_them(record_property: Callable[[str, object], None]) -> None:
    assert count(record_property, "name strings", map(judge_name, VECTORS["names"])) == {
        "equal": 16,
        "both refuse": 25,
        "no namespaces": 5,
        "only config and version": 12,
        "short form": 2,
        "no newline at the end": 1,
        "refused where it is parsed": 1,
    }


def test_versions_are_picked_from_code_as_tfds_picks_them(record_property: Callable[[str, object], None]) -> None:
    assert count(record_property, "picks from code", map(judge_code, VECTORS["code"])) == {
        "equal": 116,
        "both refuse": 178,
        "the highest, not the first in the list": 22,
        "experimental_latest is written *": 22,
        "short form": 22,
    }


def test_versions_are_found_on_disk_as_tfds_finds_them(
    record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    @functools.cache
    def data_dir(layout: str) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        lay_out(folder, json.loads(layout))
        return folder

    def judge(case: Any) -> str:
        layout = {name: case[name] for name in ("dirs", "config_on_disk", "default_config")}
        return judge_disk(data_dir(json.dumps(layout)), case)

    assert count(record_property, "picks from disk", map(judge, VECTORS["disk"])) == {
        "equal": 342,
        "both refuse": 64,
        "a folder that is not whole is passed over": 7,
        "an empty request is none": 35,
        "refused where it is parsed": 17,
        "short form": 18,
    }


def test_configs_and_versions_are_picked_as_tfds_picks_them(record_property: Callable[[str, object], None]) -> None:
    assert count(record_property, "configs with versions", map(judge_config, VECTORS["configs"])) == {
        "equal": 38,
        "both refuse": 352,
        "the highest, not the first in the list": 4,
        "experimental_latest is written *": 10,
        "one config with several versions": 10,
        "a request among the versions of one config": 15,
        "a version stands in the reference": 2,
        "the version is named once": 7,
        "a name twice is refused when the class is used": 5,
        "a wrong default is refused when the class is used": 5,
    }
