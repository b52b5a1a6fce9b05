"""What a search finds, in which order, and what it says: the same on both databases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.catalog_samples import execute, publish
from support.catalog_search import about, found

from registry.catalog import CatalogBackend, open_catalog, schema
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
def test_a_word_is_found_in_every_field(catalog: CatalogBackend, text: str, matched: str) -> None:
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
def test_case_accents_and_endings_do_not_matter(catalog: CatalogBackend, text: str, is_found: bool) -> None:
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
def test_search_has_no_special_characters(catalog: CatalogBackend, text: str) -> None:
    about(catalog, "d:1.0.0", "Digits s and x.", features=["A"])
    about(catalog, "other:1.0.0")

    assert found(catalog, text) == ["d"]


@pytest.mark.parametrize("text", ["AND", "cats OR dogs", "NOT cats", "NEAR(cats dogs)", "description:cats", "cats AND"])
def test_operators_are_words_like_others(catalog: CatalogBackend, text: str) -> None:
    about(catalog, "plain:1.0.0", "cats dogs")
    about(catalog, "wordy:1.0.0", "Cats and dogs, or cats near dogs; a description, not more.")

    assert found(catalog, text) == ["wordy"]


@pytest.mark.parametrize("text", ["", " ", "\0", "***", "-", "\U0001f522 ¡!", "\ud800", "\u0301", "_"])
def test_a_search_without_a_word_is_refused(catalog: CatalogBackend, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.search(text)

    assert str(caught.value) == f"no word to search for in {text!r}"
    assert caught.value.hint == "A word has letters or digits, e.g. handwritten digits."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x" * 1_000_000, "a search has at most 1,000 characters, this one has 1,000,000"),
        (" ".join(f"w{n}" for n in range(33)), "a search has at most 32 words, this one has 33"),
        (None, "a search must be a str, not NoneType"),
    ],
)
def test_more_than_a_person_types_is_refused(catalog: CatalogBackend, text: Any, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.search(text)
    assert str(caught.value) == problem


def test_as_much_as_a_person_may_type_is_searched(catalog: CatalogBackend) -> None:
    words = " ".join(f"w{n:028}" for n in range(32))
    about(catalog, "all:1.0.0", words)
    about(catalog, "but_one:1.0.0", words[:-1])
    about(catalog, "long:1.0.0", "x" * 3000)  # longer than a word may be in PostgreSQL

    assert found(catalog, words) == ["all"]
    assert found(catalog, "x" * 1000) == ["long"]
    assert found(catalog, "digits " * 100) == []


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_limit_without_a_hit_is_refused(catalog: CatalogBackend, limit: int) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.search("digits", limit=limit)
    assert str(caught.value) == f"a search shows from 1 to 2,147,483,647 hits, not {limit}"


def test_the_best_come_first(catalog: CatalogBackend) -> None:
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
def test_a_match_in_a_more_important_field_outweighs_all_less_important_ones(
    catalog: CatalogBackend, above: Any, below: Any
) -> None:
    about(catalog, **{"reference": "z:1.0.0", **above})
    about(catalog, "a:1.0.0", **below)

    hits = catalog.search("cats")

    assert hits[0].name[0] == "z"
    assert len(hits) == 1 or hits[0].score > hits[1].score


def in_groups_of_equals(catalog: CatalogBackend) -> None:
    names = ["a1", "a_b", "aa", "ab"]
    for name in reversed(names):
        about(catalog, f"{name}:1.0.0", "animals, Größe 手書き")
    for config in ("b", "B", "a-b", "a.b"):
        about(catalog, f"kinds/{config}:1.0.0", "animals, Größe 手書き")

    configs = ["kinds/B", "kinds/a-b", "kinds/a.b", "kinds/b"]
    for text in ("animals", "grosse 書"):
        assert found(catalog, text) == [*names, *configs]
        assert found(catalog, text, limit=5) == [*names, *configs[:1]]


def test_equals_come_by_name(catalog: CatalogBackend) -> None:
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


def test_the_dataset_that_is_called_so_is_first_with_its_configs(catalog: CatalogBackend) -> None:
    about(catalog, "fashion_mnist:1.0.0", "MNIST again", config_tags=("mnist",))
    about(catalog, "mnist_corrupted/blur:1.0.0", "MNIST, blurred")
    about(catalog, "mnist/plain:1.0.0")
    about(catalog, "mnist/inverse:1.0.0")
    about(catalog, "open_images_v4:1.0.0")

    assert found(catalog, "mnist") == ["mnist/inverse", "mnist/plain", "fashion_mnist", "mnist_corrupted/blur"]
    assert found(catalog, "mnist/plain") == ["mnist/plain"]
    assert found(catalog, "Open-Images V4") == ["open_images_v4"]
    assert catalog.search("openimagesv4")[0].score > 10_000


def test_a_hit_shows_where_the_words_are(catalog: CatalogBackend) -> None:
    about(catalog, "one:1.0.0", "A first sentence that is quite long. Then, " + "far behind it, " * 5 + "some Zebras.")
    about(catalog, "two:1.0.0", "Nothing of it here.", config_tags=("zebra",))
    about(catalog, "three:1.0.0", config_tags=("zebra",))

    shown = {hit.dataset: (hit.matched, hit.snippet) for hit in catalog.search("zebra")}

    assert shown == {
        "one": (("description",), "… it, far behind it, far behind it, far behind it, far behind it, some Zebras."),
        "two": (("tags",), "Nothing of it here."),
        "three": (("tags",), ""),
    }


def test_a_search_that_finds_nothing_is_explained(catalog: CatalogBackend) -> None:
    step = "Start with: registry quickstart"
    if catalog.url.startswith("postgresql"):
        step = "Publish a first dataset: registry add SOURCE --as NAME"
    assert catalog.explain_no_hits("digits") == f"The catalog is empty. {step}"
    about(catalog, "fashion_mnist:1.0.0", "clothes")
    about(catalog, "mnist:1.0.0", "digits")
    about(catalog, "open_images_v4:1.0.0")

    assert found(catalog, "digits clothes") == []
    assert catalog.explain_no_hits("Digits clothes") == (
        "No dataset has all of these words: digits, clothes. Each of them alone has matches."
    )
    assert catalog.explain_no_hits("mnits clothes") == "Nothing matches 'mnits'. Did you mean mnist?"
    assert catalog.explain_no_hits("imagse fasion") == (
        "Nothing matches 'imagse', 'fasion'. Did you mean open_images_v4, fashion_mnist?"
    )
    assert catalog.explain_no_hits("qqq '") == "Nothing matches 'qqq'."


def test_a_missing_index_is_an_error_of_the_catalog(catalog: CatalogBackend, catalog_url: str) -> None:
    about(catalog, "mnist:1.0.0")
    is_sqlite = catalog_url.startswith("sqlite")
    execute(catalog_url, "DROP TABLE search_index" if is_sqlite else "ALTER TABLE search_document DROP COLUMN vector")

    with pytest.raises(
        CatalogError, match=r"refuses it: |^the search index of .* is damaged: no such table: search_index\n"
    ) as caught:
        catalog.search("mnist")

    assert caught.value.hint == (
        "Rebuild it from the published versions: registry db reindex"
        if is_sqlite
        else "Compare it with its schema: registry db check."
    )
