"""What a search finds, in which order, and what it says: the same on both databases."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from catalog_samples import execute, publish, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import search_texts

from registry.catalog import SqlCatalog, open_catalog, schema
from registry.catalog.rows import encode_metadata
from registry.catalog.search import SCORES, refresh
from registry.catalog.search_words import document_words, parse_search
from registry.catalog.session import open_engine, write
from registry.errors import CatalogError, UsageError
from registry.model import DatasetMetadata, Version, VersionStatus

FEATURES = {
    "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
    "featuresDict": {
        "features": {
            "lung_scan": {
                "pythonClassName": "tensorflow_datasets.core.features.image_feature.Image",
                "description": "taken at night",
                "image": {"dtype": "uint16", "encodingFormat": "png"},
            },
            "findings": {
                "pythonClassName": "tensorflow_datasets.core.features.sequence_feature.Sequence",
                "sequence": {
                    "feature": {
                        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
                        "featuresDict": {
                            "features": {
                                "where": {
                                    "pythonClassName": "tensorflow_datasets.core.features.bounding_boxes.BBoxFeature"
                                }
                            }
                        },
                    }
                },
            },
        }
    },
}
METADATA = DatasetMetadata(
    description="Pictures of lungs.\nFrom São Paulo.",
    config_description="Reduced to gray.",
    config_tags=("medical", "multi-centre"),
    homepage="https://www.lungs.example.org/data?year=2020",
    license="CC BY-SA 4.0",
    citation="@article{silva2020, author = {Müller and Silva}}",
)
LABELS = {"kind": ("benign", "giant cell, primary")}


def about(catalog: SqlCatalog, reference: str, description: str = "", **changes: Any) -> None:
    """Publish a dataset with a description, tags and names of features, and nothing else that a word is found in."""
    options = {name: changes.pop(name) for name in ("promote", "default_config") if name in changes}
    features = {name: {} for name in changes.pop("features", ())}
    publish(
        catalog,
        reference,
        metadata=DatasetMetadata(description=description, **changes),
        features_json=json.dumps({"featuresDict": {"features": features}}),
        content=description,
        **options,
    )


def found(catalog: SqlCatalog, text: str, **options: int) -> list[str]:
    return [hit.dataset for hit in catalog.search(text, **options)]


def set_state(url: str, number: str, state: str) -> None:
    """Change a version's state as a lifecycle command does: what is searched is refreshed in the same transaction."""

    def action(connection: sa.Connection) -> None:
        major, minor, patch = number.split(".")
        connection.execute(
            sa.text(
                "UPDATE dataset_version SET state = :state WHERE major = :major AND minor = :minor AND patch = :patch"
            ),
            {"state": state, "major": int(major), "minor": int(minor), "patch": int(patch)},
        )
        refresh(connection, 1)

    engine = open_engine(url)
    write(engine, action)
    engine.dispose()


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("chest_xrays", "name"),
        ("xrays", "name"),
        ("chestxrays", "name"),
        ("small", "name"),
        ("14", "name"),
        ("medical", "tags"),
        ("centre", "tags"),
        ("lung_scan", "features description details"),
        ("scan", "features"),
        ("where", "features"),
        ("bbox", "features"),
        ("uint16", "features"),
        ("png", "features"),
        ("night", "features"),
        ("kind", "features"),
        ("giant", "features"),
        ("pictures", "description"),
        ("gray", "description"),
        ("sa", "description details"),
        ("example.org", "details"),
        ("silva", "details"),
    ],
)
def test_a_word_is_found_in_every_field(catalog: SqlCatalog, text: str, matched: str) -> None:
    publish(
        catalog,
        "chest_xrays14/small+v2:1.0.0",
        metadata=METADATA,
        features_json=json.dumps(FEATURES),
        labels=LABELS,
    )

    (hit,) = catalog.search(text)

    assert (hit.dataset, hit.version, hit.status) == (
        "chest_xrays14/small+v2",
        Version(1, 0, 0),
        VersionStatus.CANONICAL,
    )
    assert hit.matched == tuple(matched.split())
    assert hit.description == METADATA.description


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("digits", True),
        ("DIGITS", True),
        ("dig", True),
        ("d", True),
        ("igits", False),
        ("digitss", False),
        ("hand dig", True),
        ("dig hand dig", True),
        ("handwritten letters", False),
        ("sao paulo", True),
        ("SÃO", True),
        ("são", True),
        ("strasse", True),
        ("STRASSE", True),
        ("straße", True),
        ("lodz", True),
        ("fine", True),
        ("数字", True),
        ("き", True),
        ("ελλαδα", True),
        ("хинди", False),
        ("e\u0301cole", True),
        ("database", True),
        ("tel", True),
    ],
)
def test_case_accents_and_endings_do_not_matter(catalog: SqlCatalog, text: str, is_found: bool) -> None:
    about(
        catalog, "d:1.0.0", "Handwritten Digits, são Paulo, Straße, Łódź, ﬁne 手書き数字 ΕΛΛΆΔΑ École ℡ data\u00adbase"
    )

    assert found(catalog, text) == (["d"] if is_found else [])


@pytest.mark.parametrize(
    "text",
    [
        '"digits"',
        "'digits'",
        'digits"',
        "digits*",
        "*digits",
        "^digits",
        "(digits",
        "digits)",
        "+digits",
        "-digits",
        "digits -",
        "digits:*A",
        "digits;",
        "digits & !",
        "digits\0",
        "\0digits",
        "digits\ud800",
        "digits \U0001f522",
        "digits\\",
        "digits' --",
        "{digits}",
        "digits\n\tdigits",
        "digits %s %(x)s :x ?",
    ],
)
def test_no_sign_has_a_meaning(catalog: SqlCatalog, text: str) -> None:
    about(catalog, "d:1.0.0", "Digits s and x.", features=["A"])
    about(catalog, "other:1.0.0")

    assert found(catalog, text) == ["d"]


@pytest.mark.parametrize("text", ["AND", "cats OR dogs", "NOT cats", "NEAR(cats dogs)", "description:cats", "cats AND"])
def test_operators_are_words_like_others(catalog: SqlCatalog, text: str) -> None:
    about(catalog, "plain:1.0.0", "cats dogs")
    about(catalog, "wordy:1.0.0", "Cats and dogs, or cats near dogs; a description, not more.")

    assert found(catalog, text) == ["wordy"]


@pytest.mark.parametrize("text", ["", " ", "\0", "***", "-", "\U0001f522 ¡!", "\ud800", "\u0301", "_"])
def test_a_search_without_a_word_is_refused(catalog: SqlCatalog, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.search(text)

    assert str(caught.value) == f"no word to search for in {text!r}"
    assert caught.value.hint == "A word has letters or digits, e.g. handwritten digits."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x" * 1_000_000, "a search has at most 1,000 characters, this one has 1,000,000"),
        (" ".join(f"w{n}" for n in range(33)), "a search has at most 32 words, this one has 33"),
        (None, "a search is a text, not NoneType"),
    ],
)
def test_more_than_a_person_types_is_refused(catalog: SqlCatalog, text: Any, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.search(text)
    assert str(caught.value) == problem


def test_as_much_as_a_person_may_type_is_searched(catalog: SqlCatalog) -> None:
    words = " ".join(f"w{n:028}" for n in range(32))
    about(catalog, "all:1.0.0", words)
    about(catalog, "but_one:1.0.0", words[:-1])
    about(catalog, "long:1.0.0", "x" * 3000)  # longer than a word may be in PostgreSQL

    assert found(catalog, words) == ["all"]
    assert found(catalog, "x" * 1000) == ["long"]
    assert found(catalog, "digits " * 100) == []


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_limit_without_a_hit_is_refused(catalog: SqlCatalog, limit: int) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.search("digits", limit=limit)
    assert str(caught.value) == f"a search shows from 1 to 2,147,483,647 hits, not {limit}"


def test_the_best_come_first(catalog: SqlCatalog) -> None:
    about(catalog, "a_cited:1.0.0", citation="@misc{cats}", license="cats", homepage="cats.org")
    about(catalog, "b_described:1.0.0", "Cats, cats and more cats.", citation="cats")
    about(catalog, "c_featured:1.0.0", features=["cats"])
    about(catalog, "d_tagged:1.0.0", config_tags=("cats",))
    about(catalog, "e_catsup:1.0.0", "cats", config_tags=("cats",), features=["cats"], citation="cats")
    about(catalog, "f_cats:1.0.0")
    about(catalog, "g_cats:1.0.0", "About cats.")
    about(catalog, "cats:1.0.0")

    hits = catalog.search("cats")

    assert [hit.dataset for hit in hits] == [
        "cats",  # which is called so
        "g_cats",
        "f_cats",
        "e_catsup",  # which only begins so, above what has it everywhere but in its name
        "c_featured",  # a tag or a feature, equals by name
        "d_tagged",
        "b_described",
        "a_cited",
    ]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert [hit.dataset for hit in catalog.search("cats", limit=2)] == ["cats", "g_cats"]


@pytest.mark.parametrize(
    ("above", "below"),
    [
        # What only begins with the word, in a better place, stands above the whole word in all the places below it.
        ({"reference": "z_catsup:1.0.0"}, {"features": ["cats"], "config_tags": ("cats",), "description": "Cats."}),
        ({"config_tags": ("catsup",)}, {"description": "Cats, cats.", "license": "cats", "citation": "cats"}),
        ({"features": ["catsup"]}, {"description": "Cats, cats.", "license": "cats", "citation": "cats"}),
        ({"description": "Catsup."}, {"license": "cats", "citation": "cats", "homepage": "https://cats.org"}),
        ({"license": "Catsup."}, {"description": "dogs"}),
        ({"description": "Cats."}, {"description": "Catsup."}),
    ],
)
def test_a_better_place_stands_above_all_places_below(catalog: SqlCatalog, above: Any, below: Any) -> None:
    about(catalog, **{"reference": "z:1.0.0", **above})
    about(catalog, "a:1.0.0", **below)

    hits = catalog.search("cats")

    assert hits[0].name[0] == "z"
    assert len(hits) == 1 or hits[0].score > hits[1].score


def in_groups_of_equals(catalog: SqlCatalog) -> None:
    names = ["Zoo", "a1", "a_b", "aa", "ab"]
    for name in reversed(names):
        about(catalog, f"{name}:1.0.0", "animals, Größe 手書き")
    for config in ("b", "B", "a-b", "a.b"):
        about(catalog, f"kinds/{config}:1.0.0", "animals, Größe 手書き")

    configs = ["kinds/B", "kinds/a-b", "kinds/a.b", "kinds/b"]
    for text in ("animals", "grosse 書"):
        assert found(catalog, text) == [*names, *configs]
        assert found(catalog, text, limit=6) == [*names, *configs[:1]]


def test_equals_come_by_name(catalog: SqlCatalog) -> None:
    in_groups_of_equals(catalog)


def test_a_locale_of_the_server_changes_nothing(postgres_server: Any) -> None:
    postgres_server.execute(
        "CREATE DATABASE of_another_locale TEMPLATE template0 LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"
    )
    url = postgres_server.url("of_another_locale")
    schema.upgrade(url)
    with open_catalog(url) as catalog:
        in_groups_of_equals(catalog)
    assert schema.check(url) == []


def test_the_dataset_that_is_called_so_is_first_with_its_configs(catalog: SqlCatalog) -> None:
    about(catalog, "fashion_mnist:1.0.0", "MNIST again", config_tags=("mnist",))
    about(catalog, "mnist_corrupted/blur:1.0.0", "MNIST, blurred")
    about(catalog, "mnist/plain:1.0.0")
    about(catalog, "mnist/inverse:1.0.0")
    about(catalog, "open_images_v4:1.0.0")

    assert found(catalog, "mnist") == ["mnist/inverse", "mnist/plain", "fashion_mnist", "mnist_corrupted/blur"]
    assert found(catalog, "mnist/plain") == ["mnist/plain"]
    assert found(catalog, "Open-Images V4") == ["open_images_v4"]
    assert catalog.search("openimagesv4")[0].score > 10_000


def test_a_hit_shows_where_the_words_are(catalog: SqlCatalog) -> None:
    about(catalog, "one:1.0.0", "A first sentence that is quite long. Then, " + "far behind it, " * 5 + "some Zebras.")
    about(catalog, "two:1.0.0", "Nothing of it here.", config_tags=("zebra",))
    about(catalog, "three:1.0.0", config_tags=("zebra",))

    shown = {hit.dataset: (hit.matched, hit.snippet) for hit in catalog.search("zebra")}

    assert shown == {
        "one": (("description",), "… it, far behind it, far behind it, far behind it, far behind it, some Zebras."),
        "two": (("tags",), "Nothing of it here."),
        "three": (("tags",), ""),
    }


def test_the_version_that_stands_for_a_config_is_searched(catalog: SqlCatalog, catalog_url: str) -> None:
    def shown() -> list[tuple[str, str]]:
        return [(str(hit.version), hit.status.value) for text in words for hit in catalog.search(text)]

    words = ["first", "second", "third", "fourth"]
    about(catalog, "mnist:1.0.0", "first", promote=False)
    assert shown() == [("1.0.0", "experimental")]
    about(catalog, "mnist:3.0.0", "third", promote=False)
    about(catalog, "mnist:2.0.0", "second", promote=False)
    assert shown() == [("3.0.0", "experimental")]
    set_state(catalog_url, "3.0.0", "yanked")
    assert shown() == [("2.0.0", "experimental")]
    set_state(catalog_url, "2.0.0", "deprecated")
    assert shown() == [("2.0.0", "deprecated")]
    set_state(catalog_url, "2.0.0", "dropped")
    set_state(catalog_url, "1.0.0", "yanked")
    assert shown() == [("3.0.0", "yanked")]
    set_state(catalog_url, "3.0.0", "dropped")
    assert shown() == [("3.0.0", "dropped")]
    about(catalog, "mnist:0.9.0", "fourth", promote=True)
    assert shown() == [("0.9.0", "canonical")]
    set_state(catalog_url, "3.0.0", "supported")
    assert shown() == [("0.9.0", "canonical")]
    assert schema.check(catalog_url) == []


def test_a_publication_that_fails_is_not_found(catalog: SqlCatalog) -> None:
    about(catalog, "mnist:1.0.0", "first")
    broken, shards = sample(
        "mnist:2.0.0", experiments={"bad\0name": True}, metadata=DatasetMetadata(description="second")
    )

    with pytest.raises(UsageError):
        catalog.publish(broken, shards, promote=True, actor="ann")

    assert found(catalog, "first") == ["mnist"]
    assert found(catalog, "second") == []


def test_refreshing_a_config_without_versions_leaves_nothing(catalog: SqlCatalog, catalog_url: str) -> None:
    execute(catalog_url, "INSERT INTO builder (id, name, has_configs, created_at) VALUES (1, 'x', false, '2020-01-01')")
    execute(
        catalog_url,
        "INSERT INTO builder_config (id, builder_id, name, is_default, created_at) "
        "VALUES (1, 1, '', true, '2020-01-01')",
    )
    set_state(catalog_url, "1.0.0", "yanked")

    assert catalog.search("x") == ()
    assert schema.check(catalog_url) == []


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_of_two_writers_at_once_the_second_sees_what_the_first_wrote(catalog: SqlCatalog, catalog_url: str) -> None:
    about(catalog, "mnist:1.0.0", "first", promote=False)
    about(catalog, "mnist:2.0.0", "second", promote=False)
    rival = threading.Thread(target=lambda: about(catalog, "mnist:1.5.0", "between", promote=False))

    def yank_slowly(connection: sa.Connection) -> None:
        connection.exec_driver_sql("UPDATE dataset_version SET state = 'yanked' WHERE major = 2")
        refresh(connection, 1)
        rival.start()
        while execute(catalog_url, "SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            assert rival.is_alive()

    engine = open_engine(catalog_url)
    write(engine, yank_slowly)
    rival.join()
    engine.dispose()

    assert [str(hit.version) for hit in catalog.search("mnist")] == ["1.5.0"]
    assert schema.check(catalog_url) == []


def test_a_search_that_finds_nothing_is_explained(catalog: SqlCatalog) -> None:
    assert catalog.explain_no_hits("digits") == "The catalog is empty. Start with: registry quickstart"
    about(catalog, "fashion_mnist:1.0.0", "clothes")
    about(catalog, "mnist:1.0.0", "digits")
    about(catalog, "open_images_v4:1.0.0")

    assert found(catalog, "digits clothes") == []
    assert catalog.explain_no_hits("Digits clothes") == (
        "Nothing has all of these words: digits, clothes. Each of them is found alone."
    )
    assert catalog.explain_no_hits("mnits clothes") == "Nothing matches 'mnits'. Did you mean mnist?"
    assert catalog.explain_no_hits("imagse fasion") == (
        "Nothing matches 'imagse', 'fasion'. Did you mean open_images_v4, fashion_mnist?"
    )
    assert catalog.explain_no_hits("qqq '") == "Nothing matches 'qqq'."


@pytest.mark.parametrize(
    "letters", ["abcdefghij", "数字手書日本語中文国", "アイウエオカキクケコ", "\ufdfa\ufdfb \ufdfa"]
)
def test_a_description_of_any_size_is_published_and_found_by_its_beginning(catalog: SqlCatalog, letters: str) -> None:
    long = " ".join("".join(letters[int(digit) % len(letters)] for digit in str(number)) for number in range(60_000))
    features = {f"{letters[0]}{number}": {} for number in range(30_000)}
    publish(
        catalog,
        "vast:1.0.0",
        metadata=DatasetMetadata(
            description=f"Beginning {long}",
            config_description=long,
            citation=long,
            license=long,
            config_tags=tuple(long.split()),
        ),
        features_json=json.dumps({"featuresDict": {"features": features}}),
        labels={"label": tuple(long.split())},
    )

    assert found(catalog, "vast beginning") == ["vast"]
    assert len(catalog.search("beginning")[0].snippet) <= 80


@pytest.mark.parametrize(
    "features_json",
    ["", "[]", "null", '"text"', "{", '{"featuresDict": 1}', '{"featuresDict": {"features": {"a": 1}}}', "[" * 100_000],
)
def test_a_schema_that_does_not_read_is_no_reason_to_refuse(catalog: SqlCatalog, features_json: str) -> None:
    publish(catalog, "odd:1.0.0", features_json=features_json)

    assert found(catalog, "odd") == ["odd"]


def test_a_missing_index_is_an_error_of_the_catalog(catalog: SqlCatalog, catalog_url: str) -> None:
    about(catalog, "mnist:1.0.0")
    is_sqlite = catalog_url.startswith("sqlite")
    execute(catalog_url, "DROP TABLE search_index" if is_sqlite else "ALTER TABLE search_document DROP COLUMN vector")

    with pytest.raises(CatalogError, match="refuses: ") as caught:
        catalog.search("mnist")

    assert caught.value.hint == "Compare it with its schema: registry db check."


NAMES = ["digits", "open_images_v4", "ImageNet2012/small-4", "x/dig", "x/and_digits"]
NUMBERS = count(1)
documents = st.fixed_dictionaries(
    {
        "description": search_texts(),
        "config_description": search_texts(),
        "citation": search_texts(),
        "homepage": search_texts(),
        "config_tags": st.lists(search_texts(), max_size=2).map(tuple),
    }
).map(lambda texts: DatasetMetadata(**texts))
schemas = st.dictionaries(search_texts(), st.just({"pythonClassName": "x.DigitFeature"}), max_size=2).map(
    lambda features: json.dumps({"featuresDict": {"features": features}})
)


@pytest.fixture(scope="module")
def both(
    postgres_server: Any, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SqlCatalog, SqlCatalog]]:
    """Two catalogs, one of each kind, that the examples of the law below share."""
    path = shutil.copy(sqlite_template, tmp_path_factory.mktemp("both") / "catalog.db")
    with open_catalog(path) as sqlite, open_catalog(postgres_server.create_database(template="catalog_template")) as pg:
        yield sqlite, pg


@settings(max_examples=30)
@given(
    metadata=st.lists(documents, min_size=len(NAMES), max_size=len(NAMES)),
    features=st.lists(schemas, min_size=len(NAMES), max_size=len(NAMES)),
    texts=st.lists(search_texts(), min_size=1, max_size=12),
    limit=st.integers(1, 7),
)
def test_both_databases_find_what_the_words_say(
    both: tuple[SqlCatalog, SqlCatalog],
    metadata: list[DatasetMetadata],
    features: list[str],
    texts: list[str],
    limit: int,
) -> None:
    """The law: a hit has, for each word asked for, a word that begins with it; scores add up; equals come by name."""
    stored = {}
    for name, one, features_json in zip(NAMES, metadata, features, strict=True):
        builder, _, config = name.partition("/")
        stored[builder, config] = document_words(
            builder, config, metadata_json=encode_metadata(one), features_json=features_json, labels_json="{}"
        )
        reference = f"{name}:1.0.{next(NUMBERS)}"
        for catalog in both:
            publish(catalog, reference, metadata=one, features_json=features_json)
    for text in texts:
        try:
            asked = parse_search(text)
        except UsageError:
            continue
        expected = sorted(
            (-score(asked.words, asked.joined, document), *key)
            for key, document in stored.items()
            if all(any(word.startswith(begin) for word in every(document)) for begin in asked.words)
        )
        for catalog in both:
            hits = catalog.search(text, limit=limit)
            assert [(-hit.score, hit.name, hit.config or "") for hit in hits] == expected[:limit]
        first, second = (catalog.search(text, limit=limit) for catalog in both)
        assert first == second


def every(document: dict[str, str]) -> list[str]:
    return " ".join(document.values()).split()


def score(words: tuple[str, ...], joined: str, document: dict[str, str]) -> int:
    """What ``SCORES`` says of a document, counted word by word."""
    classes = {
        "A": document["name"],
        "B": f"{document['tags']} {document['features']}",
        "C": document["description"],
        "D": document["details"],
    }
    points = 10_000 if document["name"].split()[0] == joined else 0
    for begin in words:
        for weight, text in classes.items():
            points += SCORES[weight] * any(word.startswith(begin) for word in text.split())
            points += SCORES[weight] * (begin in text.split())
    return points
