"""Chromium shows every page that links reach: with and without JavaScript, in three widths, in light and in dark.

Each page is opened in a part of the combinations, the same ones on every run. ``make pages`` opens more pages, each in
every combination. axe-core takes most of that time, so it looks at the first page of a kind in every width,
and at the others in another width each, always in light and in dark.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.browse_process import Browse
from support.chromium import Chromium, Look
from support.page_samples import make_catalog
from support.page_walk import Walk, kind_of, walk

pytestmark = pytest.mark.chromium

EVERY_PAGE: Final = bool(os.environ.get("REGISTRY_EVERY_PAGE"))
WIDTHS: Final = (360, 768, 1280)
LOOKS: Final = [Look(*values) for values in product((True, False), WIDTHS, (False, True))]


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browse]:
    with Browse(make_catalog(tmp_path_factory.mktemp("pages")), "--no-open") as browse:
        yield browse


@pytest.fixture(scope="module")
def walked(browse: Browse) -> Walk:
    return walk(browse, most=6 if EVERY_PAGE else 2)


def test_every_link_resolves(walked: Walk) -> None:
    assert walked.num_links > 20
    assert walked.broken == []


class Visit(NamedTuple):
    """A page that is opened once and shown in some looks; axe-core looks at it in those of ``widths``."""

    address: str
    looks: Sequence[Look]
    widths: Sequence[int] = WIDTHS


def chosen(root: str, pages: list[str]) -> list[Visit]:
    """Pages and how they are opened: one of each kind once, of each part three times, and each form of a query once."""
    if EVERY_PAGE:
        return every_look(root, pages)
    chance = random.Random(0)
    result, kinds = list[Visit](), set[tuple[str, ...]]()
    for page in sorted(pages, key=lambda page: ("?" in page, "/hostile/" not in page)):
        kind = kind_of(root, page)
        part = kind[2:] if kind[:1] == ("datasets",) else kind
        if part not in kinds:
            result += [Visit(page, [look]) for look in chance.sample(LOOKS, 1 if "?" in page else 3)]
        elif kind not in kinds and "?" not in page:
            result.append(Visit(page, [chance.choice(LOOKS)]))
        kinds |= {kind, part}
    return result


def every_look(root: str, pages: list[str]) -> list[Visit]:
    """Every page in every look."""
    counts, result = Counter[tuple[str, ...]](), list[Visit]()
    for page in pages:
        kind = kind_of(root, page)
        widths = [WIDTHS[counts[kind] % len(WIDTHS)]] if counts[kind] else WIDTHS
        result += [Visit(page, [look for look in LOOKS if look.script is script], widths) for script in (True, False)]
        counts[kind] += 1
    return result


def test_pages_are_readable_and_nothing_runs(browse: Browse, walked: Walk, chromium: Chromium) -> None:
    from selenium.common.exceptions import WebDriverException

    problems = []
    visits = chosen(browse.url, list(walked.pages))
    for address, looks, widths in visits:
        title = " ".join(walked.pages[address].title.split())
        for place, look in enumerate(looks):
            try:
                chromium.show(look) if place else chromium.open(address, look)
                found = chromium.problems(browse.url, title, look, runs_axe=look.width in widths)
            except WebDriverException as error:
                found = [f"cannot be opened: {error.msg}"]
            problems += [f"{address.removeprefix(browse.url)[:120]} {look}: {problem[:300]}" for problem in found]
    print(f"{len(walked.pages)} pages, {len(visits)} visits, {len(problems)} problems")  # noqa: T201 (with -s)
    assert not problems, "\n".join(sorted(problems))


def test_the_checks_see_what_is_wrong(chromium: Chromium, browse: Browse, tmp_path: Path) -> None:
    """A page that breaks every rule is reported: otherwise, the test above could not fail."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<meta http-equiv=Content-Security-Policy content=\"img-src 'self'\"><title>mine</title>"
        "<img src=http://127.0.0.1:9/x.png><p style='width:2000px;color:#eee;background:#fff'>pale</p>"
        "<script>document.title = 'owned'</script>"
    )
    look = Look(script=True, width=360, is_dark=False)
    chromium.open(page.as_uri(), look)
    text = "\n".join(chromium.problems(browse.url, "mine", look))
    for word in ("Content Security Policy", "asks for", "title 'owned'", "scrolls", "image-alt", "color-contrast"):
        assert word in text
    look = look._replace(script=False)
    chromium.open(page.as_uri(), look)
    assert "owned" not in "\n".join(chromium.problems(browse.url, "mine", look))


def test_code_is_copied_by_a_button(chromium: Chromium, browse: Browse) -> None:
    chromium.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    chromium.open(f"{browse.url}datasets/digits/1.0.0/", Look(script=True, width=1280, is_dark=False))
    button = chromium.driver.find_element("css selector", "button.copy")
    code = button.find_element("xpath", "ancestor::figure").find_element("css selector", "code").text
    button.click()
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, done)"
    assert chromium.driver.execute_async_script(read).strip() == code.strip()


def test_a_keyboard_reaches_the_content_first(chromium: Chromium, browse: Browse) -> None:
    chromium.open(browse.url, Look(script=False, width=1280, is_dark=False))
    for kind in ("keyDown", "keyUp"):
        chromium.command("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    active = chromium.driver.switch_to.active_element
    assert active.get_attribute("class") == "skip"
    assert active.rect["x"] >= 0  # it is seen when it has the focus
