"""People sign in to the pages of a service, and out, with a keyboard and without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from support.chromium import Chromium, Look
from support.issuers import LocalIssuer
from support.page_samples import make_catalog
from support.services import TestServer, make_token

from registry.catalog import open_catalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.model import Role
from registry.server.issuers import Binding, Issuer

pytestmark = pytest.mark.chromium


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    path = make_catalog(tmp_path_factory.mktemp("service"))
    server = TestServer()
    with open_catalog(path) as catalog:
        server.service.catalog = cast("SqlCatalog", catalog)
        yield server
        server.stop()


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A service at which people sign in with an issuer of another site."""
    path, issuer = make_catalog(tmp_path_factory.mktemp("trusting")), LocalIssuer(host="localhost", asks=True).start()
    binding = Binding(claims={"email": "ann@example.org"}, role=Role.READER, actor="{email}")
    server = TestServer(issuers=(Issuer(name="accounts", url=issuer.url, client_id="app", bindings=(binding,)),))
    with open_catalog(path) as catalog:
        server.service.catalog = cast("SqlCatalog", catalog)
        yield server
        server.stop()
    issuer.stop()


LOOKS = pytest.mark.parametrize(
    "look",
    [Look(script=True, width=360, is_dark=True), Look(script=False, width=1280, is_dark=False)],
    ids=["phone", "without-scripts"],
)


@LOOKS
def test_a_person_signs_in_and_out(server: TestServer, chromium: Chromium, look: Look) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    wait = WebDriverWait(chromium.driver, 20)
    driver, target = chromium.driver, f"{server.url}datasets/digits/1.0.0/records/train/"
    chromium.open(f"{target}?sort=-label", look)
    assert driver.current_url.startswith(f"{server.url}sign-in/?next=datasets")
    assert chromium.problems(server.url, driver.title, look) == []
    driver.find_element("css selector", "input[name=token]").send_keys("shb_wrong")
    driver.find_element("css selector", "main button").click()
    wait.until(lambda _: driver.find_elements("css selector", "[role=alert]"))
    assert "this is not a valid access token" in driver.find_element("css selector", "[role=alert]").text
    token = make_token(server.service.catalog, "Ann With A Rather Long Name")
    driver.find_element("css selector", "input[name=token]").send_keys(token)
    driver.find_element("css selector", "main button").click()
    wait.until(lambda _: driver.current_url == f"{target}?sort=-label")
    assert "Ann With A Rather Long Name" in driver.find_element("css selector", ".who").text
    (cookie,) = driver.get_cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], token in cookie["value"]) == (True, "Lax", False)
    chromium.open(server.url, look)
    assert chromium.problems(server.url, driver.title, look) == []
    driver.find_element("css selector", ".who button").click()
    wait.until(lambda _: driver.current_url == f"{server.url}sign-in/")
    assert driver.get_cookies() == []


@LOOKS
def test_a_person_signs_in_with_an_account_of_another_site(
    trusting: TestServer, chromium: Chromium, look: Look
) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    wait = WebDriverWait(chromium.driver, 20)
    driver, target = chromium.driver, f"{trusting.url}datasets/digits/1.0.0/records/train/"
    chromium.open(f"{target}?sort=-label", look)
    assert chromium.problems(trusting.url, driver.title, look) == []
    driver.find_element("link text", "Sign in with accounts").click()
    wait.until(lambda _: driver.current_url.startswith("http://localhost:"))
    driver.find_element("link text", "Yes, it is me").click()
    wait.until(lambda _: driver.current_url == f"{target}?sort=-label")
    assert "ann@example.org (accounts)" in driver.find_element("css selector", ".who").text
    (cookie,) = driver.get_cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("registry-session", True, "Lax")
    chromium.open(trusting.url, look)
    driver.find_element("css selector", ".who button").click()
    wait.until(lambda _: driver.current_url == f"{trusting.url}sign-in/")
    assert driver.get_cookies() == []
