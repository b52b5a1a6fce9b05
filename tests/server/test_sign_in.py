"""People and jobs sign in with an issuer: in the pages, and with the three forms of ``registry login``."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urljoin, urlsplit

import pytest
import urllib3
from support import warm_python
from support.browse_process import Serve
from support.issuers import LocalIssuer
from support.services import TestServer, cutting_proxy, make_token

import registry
from registry.catalog import DataDirectory, EventFilter
from registry.catalog.service import sign_in
from registry.catalog.service.sign_in import local_path, nonce_of, sign_in_with_id_token
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import CatalogRefusedError, DatasetNotFoundError
from registry.model import Role, digest_of
from registry.server.config import ServiceConfig
from registry.server.issuers import Binding, Issuer

CLIENT = "a secret + of the client"  # what has to be quoted
SESSION, WAY = "registry-session", "registry-way"
VISIT = """\
import sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
"""


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    started = LocalIssuer(client_secret=CLIENT).start()
    yield started
    started.stop()


@pytest.fixture
def service(issuer: LocalIssuer, shared: SqlCatalog) -> Iterator[TestServer]:
    """A service at which ann signs in with her account, and the jobs of lab/digits."""
    person = Binding(claims={"email": "ann@example.org"}, role=Role.READER, datasets=("lab_*",), actor="{email}")
    job = Binding(claims={"repository": "lab/digits"}, role=Role.PUBLISHER, datasets=("lab_*",), actor="{repository}")
    people = Issuer(name="lab", url=issuer.url, client_id="app", client_secret=CLIENT, bindings=(person,))
    jobs = Issuer(name="ci", url=issuer.url, bindings=(job,))
    started = TestServer(issuers=(people, jobs))
    started.service.catalog = shared
    yield started
    started.stop()


class Browser:
    """A client that keeps the cookies of one service."""

    def __init__(self, service: TestServer) -> None:
        self.url = service.url
        self.cookies: dict[str, str] = {}

    def ask(self, address: str, form: dict[str, str] | None = None) -> Any:
        """The answer at an address, which may be at the issuer; no redirection is followed."""
        fields = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        if form is not None:
            fields |= {"Origin": self.url.rstrip("/"), "Content-Type": "application/x-www-form-urlencoded"}
        url, method = urljoin(self.url, address), "GET" if form is None else "POST"
        is_ours = url.startswith(self.url)
        answer = urllib3.request(
            method,
            url,
            headers=fields if is_ours else {},
            body=None if form is None else urlencode(form),
            redirect=False,
            retries=False,
        )
        for line in answer.headers.getlist("Set-Cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies.pop(name, None) if "Max-Age=0" in line else self.cookies.update({name: value})
        return answer

    def way(self, issuer: str = "lab", target: str = "") -> str:
        """The address with which the issuer leads back."""
        to = self.ask(f"sign-in/{issuer}/?{urlencode({'next': target})}")
        assert to.status == 303, to.data
        back = self.ask(to.headers["Location"])
        assert back.status == 302
        return str(back.headers["Location"])

    def names(self) -> list[str]:
        """The datasets that the home page shows."""
        return [row["dataset"] for row in json.loads(self.ask("index.json").data)["data"]["datasets"]]


@pytest.fixture
def browser(service: TestServer) -> Browser:
    return Browser(service)


def test_a_person_signs_in_and_out(browser: Browser, shared: SqlCatalog, issuer: LocalIssuer) -> None:
    page = browser.ask("sign-in/?next=log/").data.decode()
    assert "Sign in with lab" in page
    assert "Sign in with ci" not in page  # for programs
    assert 'href="../sign-in/lab/?next=log' in page or 'href="lab/?next=log' in page
    begin = browser.ask("sign-in/lab/?next=log/")
    line = begin.headers["Set-Cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Max-Age=600"} <= {part.strip() for part in line.split(";")}
    query = parse_qs(urlsplit(begin.headers["Location"]).query)
    assert query["redirect_uri"] == [f"{browser.url}sign-in/lab/"]
    assert (query["client_id"], query["scope"], query["tenant"]) == (["app"], ["openid email"], ["1"])

    back = browser.ask(browser.way(target="log/"))
    assert (back.status, urljoin(f"{browser.url}sign-in/lab/", back.headers["Location"])) == (303, f"{browser.url}log/")
    assert browser.cookies.keys() == {SESSION}
    assert browser.names() == ["lab_digits/plain", "lab_digits/small", "lab_digits/strict"]
    assert "ann@example.org (lab), reader" in browser.ask("").data.decode()
    token = shared.access.tokens()[-1]
    assert (token.name, token.created_by) == ("ann@example.org (lab)", issuer.url)
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).total_seconds() == 12 * 3600

    seal = browser.ask("").data.decode().partition('name="seal" value="')[2][:64]
    session = browser.cookies[SESSION]
    assert browser.ask("sign-out/", {"seal": seal}).status == 303
    assert browser.cookies == {}
    assert shared.access.tokens()[-1].revoked_by == "ann@example.org (lab)"
    browser.cookies[SESSION] = session  # a copy of the cookie has no use
    assert browser.ask("index.json").status == 401


def test_a_session_ends_with_its_token(browser: Browser, shared: SqlCatalog) -> None:
    browser.ask(browser.way())
    assert browser.ask("index.json").status == 200
    shared.access.revoke_token(shared.access.tokens()[-1].id, actor="root")
    assert browser.ask("index.json").status == 401


def test_who_signs_out_keeps_a_token_of_an_admin(browser: Browser, shared: SqlCatalog) -> None:
    text = make_token(shared, "bob")
    browser.ask("sign-in/", {"token": text})
    seal = browser.ask("").data.decode().partition('name="seal" value="')[2][:64]
    assert browser.ask("sign-out/", {"seal": seal}).status == 303
    assert shared.access.tokens()[-1].revoked_at is None


def refused(browser: Browser, address: str) -> str:
    answer = browser.ask(address)
    assert answer.status == 401, answer.data
    assert SESSION not in browser.cookies
    return str(answer.data.decode().partition('role="alert">')[2].partition("</p>")[0])


def test_the_way_back_works_in_one_browser_once(browser: Browser, service: TestServer) -> None:
    begun_elsewhere = "this sign-in was started in another browser, or more than ten minutes ago"
    attacker, victim = browser, Browser(service)
    address = attacker.way()
    assert begun_elsewhere in refused(victim, address)
    victim.way()  # with a way of its own, the state is another
    assert begun_elsewhere in refused(victim, address)
    kept = dict(attacker.cookies)
    assert attacker.ask(address).status == 303
    attacker.cookies = kept  # the code was redeemed
    assert "the issuer issued no ID token for the code: &#39;invalid_grant&#39;" in refused(attacker, address)


def test_a_changed_or_missing_way_is_refused(browser: Browser) -> None:
    address = browser.way(target="log/")
    cookie = browser.cookies[WAY]
    seed, target, end, signature = cookie.split(".")
    for wrong in ("", "x", f"{seed}.{target}.{int(end) + 1}.{signature}", f"{seed}..{end}.{signature}"):
        browser.cookies = {WAY: wrong}
        assert "this sign-in was started in another browser" in refused(browser, address)
    browser.cookies = {WAY: cookie}
    other = address.replace("/sign-in/lab/", "/sign-in/ci/")
    assert browser.ask(other).status == 404


def test_an_issuer_that_refuses_is_quoted(browser: Browser, issuer: LocalIssuer) -> None:
    issuer.person = None
    assert "lab answered &#39;access_denied&#39;" in refused(browser, browser.way())


def test_somebody_without_a_binding_gets_no_session(browser: Browser, issuer: LocalIssuer) -> None:
    issuer.person = {"sub": "2", "email": "eve@example.org", "email_verified": True}
    assert "no binding has its claims: email &#39;eve@example.org&#39;" in refused(browser, browser.way())
    issuer.person = {"sub": "2", "email": "ann@example.org", "email_verified": False}
    assert "no binding has its claims" in refused(browser, browser.way())


def test_another_client_secret_is_refused(browser: Browser, issuer: LocalIssuer) -> None:
    issuer.client_secret = f"not {CLIENT}"
    text = refused(browser, browser.way())
    assert "invalid_client" in text
    assert CLIENT not in text


@pytest.mark.parametrize("target", ["//evil.example/", "https://evil.example/", "/x", "a\r\nb"])
def test_a_sign_in_leads_to_no_other_host(browser: Browser, target: str) -> None:
    answer = browser.ask(browser.way(target=target))
    place = urlsplit(urljoin(f"{browser.url}sign-in/lab/", answer.headers["Location"]))
    assert f"{place.scheme}://{place.netloc}/" == browser.url


def test_an_issuer_that_is_down_leaves_the_sign_in_with_tokens(browser: Browser, issuer: LocalIssuer) -> None:
    issuer.is_down = True
    answer = browser.ask("sign-in/lab/")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert b"the issuer does not answer" in answer.data
    assert b'name="token"' in answer.data


def test_a_name_of_no_issuer_is_not_found(browser: Browser) -> None:
    assert browser.ask("sign-in/other/").status == 404
    assert browser.ask("sign-in/ci/").status == 404


def test_behind_tls_the_way_is_bound_to_the_host(issuer: LocalIssuer, shared: SqlCatalog) -> None:
    people = Issuer(
        name="lab", url=issuer.url, client_id="app", bindings=(Binding(claims={"sub": "1"}, role=Role.READER),)
    )
    server = TestServer(ServiceConfig(public_url="https://catalog.example/below", issuers=(people,)))
    server.service.catalog = shared
    answer = Browser(server).ask("sign-in/lab/")
    server.stop()
    assert answer.headers["Set-Cookie"].startswith("__Host-registry-way=")
    assert "; Secure" in answer.headers["Set-Cookie"]
    query = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert query["redirect_uri"] == ["https://catalog.example/below/sign-in/lab/"]


# The command line.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("REGISTRY_TOKEN", "REGISTRY_CATALOG", "REGISTRY_ID_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path


def login(*arguments: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run(
        [sys.executable, "-m", "registry", "login", *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **variables},
    )


def kept(home: Path, run: subprocess.CompletedProcess[str], url: str) -> str:
    """The text of the token that was kept; it was not printed."""
    assert run.returncode == 0, run.stderr
    (file,) = home.glob("home/shardbook/services/tokens.json")
    text: str = json.loads(file.read_text())[url]
    assert text not in run.stdout + run.stderr
    return text


def test_login_with_the_browser(service: TestServer, home: Path, shared: SqlCatalog) -> None:
    script = home / "visit.py"
    script.write_text(VISIT)
    run = login(service.url, "--oidc", BROWSER=f"{sys.executable} {script} %s")
    kept(home, run, service.url)
    assert "Sign in at http://127.0.0.1:" in run.stderr
    assert shared.access.tokens()[-1].name == "ann@example.org (lab)"
    with registry.connect(service.url) as catalog:
        assert {dataset.name for dataset in catalog.datasets()} == {"lab_digits"}


def test_login_with_the_browser_needs_no_standard_input(service: TestServer, home: Path) -> None:
    script = home / "visit.py"
    script.write_text(VISIT)
    command = ["sh", "-c", 'exec "$0" -m registry login "$1" --oidc <&-', sys.executable, service.url]
    variables = {**os.environ, "BROWSER": f"{sys.executable} {script} %s"}
    kept(home, subprocess.run(command, capture_output=True, text=True, check=False, env=variables), service.url)


def test_login_with_a_browser_on_another_machine(
    service: TestServer, home: Path, shared: SqlCatalog, issuer: LocalIssuer
) -> None:
    def attempt(line: Callable[[str], str]) -> tuple[int, str]:
        person, terminal = pty.openpty()
        command = [sys.executable, "-m", "registry", "login", service.url, "--oidc"]
        with subprocess.Popen(
            command,
            stdin=terminal,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BROWSER": "true %s"},
        ) as process:
            address = process.stderr.readline().removeprefix("Sign in at ").strip()
            assert "paste this address here" in process.stderr.readline()
            led = urllib3.request("GET", address, redirect=False).headers["Location"]
            os.write(person, f"\n {line(led)} \n".encode())
            text = process.stderr.read()
            code = process.wait(60)
        os.close(person)
        os.close(terminal)
        return code, text

    code, text = attempt(lambda address: address.replace("state=", "state=x"))
    assert (code, text.splitlines()[0]) == (
        2,
        "error: this is not the address to which the issuer redirected the browser for this sign-in",
    )
    assert attempt(lambda address: urljoin(address, f"/victim.example/?{urlsplit(address).query}"))[0] == 2
    code, text = attempt(lambda address: address)
    assert code == 0, text
    assert shared.access.tokens()[-1].name == "ann@example.org (lab)"
    issuer.person = None
    code, text = attempt(lambda address: address)
    assert (code, text.splitlines()[0]) == (1, "error: the issuer answered 'access_denied'")


def test_login_with_an_id_token(service: TestServer, home: Path, issuer: LocalIssuer, shared: SqlCatalog) -> None:
    text = issuer.sign(repository="lab/digits", aud=service.url)
    kept(home, login(service.url, "--id-token-file", "-", given=f"{text}\n"), service.url)
    token = shared.access.tokens()[-1]
    assert (token.name, token.role) == ("lab/digits (ci)", Role.PUBLISHER)
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).total_seconds() == 900
    file = home / "id-token"
    file.write_text(text)
    run = login(service.url, "--id-token-file", str(file))
    assert (run.returncode, run.stderr.splitlines()[0]) == (
        1,
        "error: the catalog refuses the ID token: it was used before",
    )
    assert text not in run.stderr


def test_login_in_a_job(service: TestServer, home: Path, issuer: LocalIssuer, shared: SqlCatalog) -> None:
    url = f"{issuer.url}/ci?api-version=2.0"
    github = {"ACTIONS_ID_TOKEN_REQUEST_URL": url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "secret of the job"}
    kept(home, login(service.url, "--ci", **github), service.url)
    assert shared.access.tokens()[-1].name == "lab/digits (ci)"
    text = issuer.sign(repository="lab/digits", aud=service.url)
    kept(home, login(service.url, "--ci", REGISTRY_ID_TOKEN=text), service.url)
    run = login(service.url, "--ci", **github | {"ACTIONS_ID_TOKEN_REQUEST_TOKEN": "wrong"})
    assert run.stderr == (
        "error: GitHub Actions issued no ID token: it answered 403\n"
        "hint: The job needs: permissions: {id-token: write}\n"
    )
    run = login(service.url, "--ci")
    assert (run.returncode, run.stderr) == (
        2,
        "error: this job has no ID token: REGISTRY_ID_TOKEN is not set, and GitHub Actions offers none\n"
        "hint: On GitHub, the job needs: permissions: {id-token: write}\n"
        f"On GitLab, it needs: id_tokens: {{REGISTRY_ID_TOKEN: {{aud: {service.url}}}}}\n",
    )


def test_a_job_that_got_no_answer_asks_again(service: TestServer, issuer: LocalIssuer, shared: SqlCatalog) -> None:
    text, answers = issuer.sign(repository="lab/digits", aud=service.url), iter((True, False, False))
    before = len(shared.access.tokens())
    with cutting_proxy(service.url) as proxy:
        proxy.cut = lambda _: next(answers)
        token = sign_in_with_id_token(proxy.url, text)
        assert [path for path, _ in proxy.seen] == ["api/v1/sign-in"] * 2
    assert len(shared.access.tokens()) == before + 1
    assert shared.access.authenticate(digest_of(token)) is not None


def test_a_job_publishes_a_dataset_that_did_not_exist(
    service: TestServer, home: Path, issuer: LocalIssuer, shared: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(home / "data")
    shared.locations.set_data_dir(DataDirectory(recorded=place, place=place), actor="root")
    text = issuer.sign(repository="lab/digits", aud=service.url)
    monkeypatch.setenv("REGISTRY_TOKEN", sign_in_with_id_token(service.url, text))
    with registry.connect(service.url) as catalog:
        assert str(catalog.add([{"x": 1}], "lab_new").reference) == "lab_new:1.0.0"
        with pytest.raises(DatasetNotFoundError, match="no dataset 'other_new' that this token covers"):
            catalog.add([{"x": 1}], "other_new")
    actors = {event.actor: event.recorded_by for event in shared.log.page(EventFilter(dataset="lab_new"), newest=9)}
    token = shared.access.tokens()[-1]
    assert actors == {"lab/digits (ci)": f"token {token.id}"}


def test_login_says_what_is_wrong(service: TestServer, server: TestServer, home: Path, shared: SqlCatalog) -> None:
    server.service.catalog = shared
    assert login(server.url, "--oidc").stderr == (
        f"error: the service offers no browser sign-in: {server.url}\n"
        f"hint: Use a token from an admin: registry login {server.url}\n"
    )
    assert login(service.url, "--oidc", "--issuer", "ci").stderr == (
        f"error: there is no issuer 'ci': {service.url}\nhint: Choose one with --issuer: lab\n"
    )
    assert login(service.url, "--oidc", "--ci").returncode == 2
    assert login("http://catalog.example", "--id-token-file", "-", given="x").stderr.startswith(
        "error: an access token is not sent to http://catalog.example/: everybody between could read it"
    )


def test_a_login_at_another_service_is_of_no_use_there(service: TestServer, issuer: LocalIssuer) -> None:
    """A service that names the client of another one gets an ID token of who signs in, whose nonce names it."""
    nonce = "secret of the client of evil.example"
    text = issuer.sign(
        issuer.person, aud="app", nonce=nonce_of("https://evil.example/", nonce)
    )  # what it redeems, or lets redeem
    for sent in (nonce, ""):
        body = {"id_token": text, "token_id": "0" * 12, "digest": "0" * 64, "nonce": sent}
        answer = urllib3.request("POST", f"{service.url}api/v1/sign-in", json=body)
        assert (answer.status, answer.json()["detail"]) == (
            401,
            "the catalog refuses the ID token: its nonce is that of another sign-in, or of another service",
        )


def test_a_code_for_another_service_does_not_reach_this_one(
    service: TestServer, issuer: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile service leads the browser to the sign-in of another one, whose codes come to another address."""
    monkeypatch.setattr(sign_in, "_SIGN_IN_SECONDS", 0.2)
    statuses = list[int]()

    def lead(address: str) -> None:
        query = dict(parse_qsl(urlsplit(address).query))
        assert query["redirect_uri"].endswith(f"/{local_path(service.url)}")
        other = urljoin(query["redirect_uri"], "/victim.example/")
        address = f"{address.partition('?')[0]}?{urlencode(query | {'redirect_uri': other})}"
        statuses.append(urllib3.request("GET", address).status)

    with pytest.raises(CatalogRefusedError, match="nobody signed in"):
        sign_in.sign_in_with_browser(service.url, "lab", lead)
    assert statuses == [404]


def test_the_token_of_a_login_ends(service: TestServer, home: Path, issuer: LocalIssuer, shared: SqlCatalog) -> None:
    text = issuer.sign(repository="lab/digits", aud=service.url)
    kept(home, login(service.url, "--ci", REGISTRY_ID_TOKEN=text), service.url)
    shared.access.revoke_token(shared.access.tokens()[-1].id, actor="root")
    with registry.connect(service.url) as catalog, pytest.raises(CatalogRefusedError):
        catalog.datasets()


def test_workers_of_a_service_use_an_id_token_once(tmp_path: Path, issuer: LocalIssuer, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    binding = {"claims": {"repository": "lab/digits"}, "role": "publisher"}
    settings = {"public_url": url, "issuers": [{"name": "ci", "url": issuer.url, "bindings": [binding]}]}
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(settings, indent=1))  # JSON is YAML, too
    options = ("--port", str(port), "--workers", "2", "--config", str(file))
    with registry.connect(tmp_path / "catalog.db", create=True):
        pass
    with Serve(tmp_path / "catalog.db", *options) as server:
        text = issuer.sign(repository="lab/digits", aud=url)
        assert sign_in_with_id_token(url, text).startswith("shb_")
        for _ in range(8):  # at one worker or the other
            with pytest.raises(CatalogRefusedError, match="it was used before"):
                sign_in_with_id_token(url, text)
        _, log = server.end(signal.SIGTERM)
    assert text not in log
    assert "there is no access token" not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    calls = [(line["call"], line["principal"], line["status"]) for line in lines if "call" in line]
    assert calls == [("sign_in", "ci (ci)", 200), *[("sign_in", "(ci)", 401)] * 8]
