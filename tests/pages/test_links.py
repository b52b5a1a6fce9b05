"""Links between pages are relative, and lead to the same page on a server, below a prefix and in a folder of files."""

from __future__ import annotations

from unicodedata import normalize
from urllib.parse import quote, unquote, urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import registry
from registry.errors import NotFoundError
from registry.model import Reference
from registry.pages import Visit, answer
from registry.pages.page import Links, file_names, version_path

# Segments as names of datasets, splits, features and versions have them, and worse. Nobody addresses "." or "..".
segments = st.text(
    st.one_of(st.sampled_from("a:%?#&= é./\\\"'<"), st.characters(blacklist_categories=["Cs"])), min_size=1, max_size=4
).filter(lambda text: text not in (".", ".."))
paths = st.lists(segments, max_size=4).map(tuple)


@given(paths, paths, st.sampled_from(["https://host/", "https://host/a/b/", "http://127.0.0.1:1/Secret/"]))
def test_a_link_leads_to_its_target(here: tuple[str, ...], target: tuple[str, ...], root: str) -> None:
    base = root + "".join(f"{Links(()).file(segment).removeprefix('./')}/" for segment in here)
    url = urljoin(base, Links(here).page(list(target)))
    assert url.startswith(root)
    rest = url[len(root) :]
    assert tuple(unquote(part) for part in rest.split("/")[:-1]) == target
    assert not urlsplit(url).query
    folder = root + "".join(f"{quote(name)}/" for name in file_names(here))
    with_file = urljoin(folder + "index.html", Links(here, is_live=False).page(list(target)))
    assert unquote(with_file[len(root) :]) == "/".join((*file_names(target), "index.html"))


@given(st.lists(st.text("aAe\u0301\u00e9\u00c9~%.-", min_size=1, max_size=4), min_size=2, max_size=2, unique=True))
def test_files_have_different_names_on_disks_that_ignore_case_and_normalization(names: list[str]) -> None:
    first, second = (normalize("NFC", "/".join(file_names((name,)))).casefold() for name in names)
    assert first != second


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(max_size=5), max_size=3))
def test_the_query_of_a_link_is_escaped(query: dict[str, str]) -> None:
    url = urlsplit(urljoin("https://host/a/", Links(("a",)).page("b", **query)))
    pairs = [pair.partition("=")[::2] for pair in url.query.split("&") if pair]
    assert {name: unquote(value.replace("+", " ")) for name, value in pairs} == query


def test_a_config_may_look_like_a_version(tmp_path: object) -> None:
    with registry.connect(f"{tmp_path}/catalog.db", create=True) as catalog:
        for path, name in [
            (("datasets", "mnist", "3.0.1"), "mnist"),
            (("datasets", "mnist", "2.0.0", "3.0.1"), "mnist"),
            (("datasets", "mnist", "plain", "3.0.1"), "mnist"),
            (("datasets", "mnist"), "mnist"),
        ]:
            with pytest.raises(NotFoundError, match=name):
                answer(Visit(catalog=catalog, path=path))
    assert version_path(Reference.parse("mnist/2.0.0:3.0.1")) == ("datasets", "mnist", "2.0.0", "3.0.1")


@pytest.mark.parametrize("path", [("nope",), ("datasets",), ("..",), ("datasets", "a", "1.0.0", "nope")])
def test_a_page_that_does_not_exist_is_not_found(tmp_path: object, path: tuple[str, ...]) -> None:
    with registry.connect(f"{tmp_path}/catalog.db", create=True) as catalog, pytest.raises((NotFoundError, ValueError)):
        answer(Visit(catalog=catalog, path=path))
