"""Chromium shows every page that links reach: with and without JavaScript, in three widths, in light and in dark.

Each page is opened in a part of the combinations, the same ones on every run. All of them, on more pages, take much
longer: ``make pages``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from support.browse_process import Browse
from support.page_samples import make_catalog
from support.page_walk import Walk, kind_of, walk

pytestmark = pytest.mark.chromium

EVERY_PAGE: Final = bool(os.environ.get("REGISTRY_EVERY_PAGE"))
WIDTHS: Final = (360, 768, 1280)
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN_AXE: Final = """
const [rules, done] = arguments;
axe.run(document, {runOnly: {type: "tag", values: rules}, resultTypes: ["violations"]}).then(
    found => done(found.violations.flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.html}`))),
    error => done([`axe failed: ${error}`]));
"""
WIDTH: Final = """
const width = document.documentElement.clientWidth;
if (document.scrollingElement.scrollWidth <= width) return [];
return ["scrolls sideways", ...[...document.querySelectorAll("body *")].filter(
    node => node.getBoundingClientRect().right > width + 1 && !node.closest(".scroll, .tabs, pre, .hide, .strip")
).slice(0, 3).map(node => node.outerHTML.slice(0, 200))];
"""


class Look(NamedTuple):
    """How a page is opened."""

    script: bool
    width: int
    is_dark: bool


LOOKS: Final = [Look(*values) for values in product((True, False), WIDTHS, (False, True))]


class Chromium:
    """A browser without a window."""

    def __init__(self, folder: Path) -> None:
        from selenium import webdriver  # the tests of other levels collect this file without it

        options = webdriver.ChromeOptions()
        for name in ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "hide-scrollbars"):
            options.add_argument(f"--{name}")
        for name in (
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "disable-dev-shm-usage",
        ):
            options.add_argument(f"--{name}")
        options.add_argument(f"--user-data-dir={folder}")
        options.binary_location = shutil.which("chromium") or "chromium"
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        self.driver.set_script_timeout(120)  # axe-core takes its time for a page with thousands of elements
        self.driver.get("about:blank")  # away from the page that a new browser begins with
        self.axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")

    def command(self, name: str, **parameters: Any) -> None:
        self.driver.execute_cdp_cmd(name, parameters)

    def open(self, url: str, look: Look) -> None:
        """Open a page; the logs begin with it."""
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.command("Emulation.setScriptExecutionDisabled", value=not look.script)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if look.is_dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": look.width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self.driver.get(url)

    def problems(self, root: str, title: str, look: Look) -> list[str]:
        """What is wrong with the page that is open."""
        found = [f"says {entry['message']}" for entry in self.driver.get_log("browser")]  # with reports of the policy
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith((root, "data:")):
                    found.append(f"asks for {url}")
        if self.driver.title != title:
            found.append(f"has the title {self.driver.title!r} instead of {title!r}")
        found += self.driver.execute_script(WIDTH)
        if look.script:
            self.driver.execute_script(self.axe)
            found += self.driver.execute_async_script(RUN_AXE, RULES)
        return found


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browse]:
    with Browse(make_catalog(tmp_path_factory.mktemp("pages")), "--no-open") as browse:
        yield browse


@pytest.fixture(scope="module")
def walked(browse: Browse) -> Walk:
    return walk(browse, most=6 if EVERY_PAGE else 2)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.driver.quit()


def test_every_link_resolves(walked: Walk) -> None:
    assert walked.num_links > 20
    assert walked.broken == []


def chosen(root: str, pages: list[str]) -> list[tuple[str, Look]]:
    """Pages and how they are opened: one of each kind once, of each part three times, and each form of a query once."""
    if EVERY_PAGE:
        return [(page, look) for page in pages for look in LOOKS]
    chance = random.Random(0)
    result, kinds = [], set[tuple[str, ...]]()
    for page in sorted(pages, key=lambda page: ("?" in page, "/hostile/" not in page)):
        kind = kind_of(root, page)
        part = kind[2:] if kind[:1] == ("datasets",) else kind
        if part not in kinds:
            result += [(page, look) for look in chance.sample(LOOKS, 1 if "?" in page else 3)]
        elif kind not in kinds and "?" not in page:
            result.append((page, chance.choice(LOOKS)))
        kinds |= {kind, part}
    return result


def test_pages_are_readable_and_nothing_runs(browse: Browse, walked: Walk, chromium: Chromium) -> None:
    from selenium.common.exceptions import WebDriverException

    problems = []
    visits = chosen(browse.url, list(walked.pages))
    for address, look in visits:
        try:
            chromium.open(address, look)
            found = chromium.problems(browse.url, " ".join(walked.pages[address].title.split()), look)
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
