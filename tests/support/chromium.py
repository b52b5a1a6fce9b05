"""Headless Chromium, and the problems of a page in it."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN_AXE: Final = """
const [rules, done] = arguments;
axe.run(document, {runOnly: {type: "tag", values: rules}, resultTypes: ["violations"]}).then(
    found => done(found.violations.flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.html}`))),
    error => done([`axe failed: ${error}`]));
"""
WIDTH: Final = """
const width = document.documentElement.clientWidth;
const tabs = [...document.querySelectorAll(".tabs a")].filter(node => node.getBoundingClientRect().right > width);
if (tabs.length) return tabs.map(node => `the tab ${node.textContent} is out of sight`);
if (document.scrollingElement.scrollWidth <= width) return [];
return ["scrolls sideways", ...[...document.querySelectorAll("body *")].filter(
    node => node.getBoundingClientRect().right > width + 1 && !node.closest(".scroll, pre, .hide")
).slice(0, 3).map(node => node.outerHTML.slice(0, 200))];
"""


class Look(NamedTuple):
    """The settings with which a page is opened."""

    script: bool
    width: int
    is_dark: bool


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
        self.show(look)
        self.driver.get(url)

    def show(self, look: Look) -> None:
        """Show the open page in another width or other colours."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if look.is_dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": look.width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)

    def problems(self, root: str, title: str, look: Look, *, runs_axe: bool = True) -> list[str]:
        """The problems of the open page since the last call. Without ``runs_axe``, axe-core does not look at it."""
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
        if look.script and runs_axe:
            self.driver.execute_script(f"if (!window.axe) {{ {self.axe} }}")
            found += self.driver.execute_async_script(RUN_AXE, RULES)
        return found
