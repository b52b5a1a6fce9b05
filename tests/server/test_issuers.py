"""The setting ``issuers``: what it accepts, and how what is unsafe or wrong is refused when the service starts."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import UsageError
from registry.model import Role
from registry.server.config import ServiceConfig, load_config
from registry.server.issuers import Binding, Issuer, read_issuers

GOLDEN = Path(__file__).with_name("golden")


GUIDE = Path(__file__).parents[2] / "docs/sign-in.md"
GITHUB = "https://token.actions.githubusercontent.com"
HIDDEN = "a secret of the client"

TEXT = f"""\
public_url: https://catalog.example/
issuers:
  - name: github
    url: {GITHUB}
    bindings:
      - claims:
          repository: lab/digits
          environment: release
        actor: "{{repository}}@{{ref}}"
        role: publisher
        datasets: ["lab_*"]
  - name: accounts
    url: https://login.example/
    client_id: app
    client_secret: {HIDDEN}
    bindings:
      - claims: {{groups: data, level: 5, is_staff: true}}
        role: reader
"""


def refusal(file: Path, text: str) -> UsageError:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_config(file)
    assert HIDDEN not in str(caught.value) + str(caught.value.hint) + str(caught.value.details)
    return caught.value


def test_issuers_are_read_with_their_defaults(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(TEXT, encoding="utf-8")
    config = load_config(file)
    claims = {"repository": "lab/digits", "environment": "release"}
    job = Binding(claims=claims, role=Role.PUBLISHER, datasets=("lab_*",), actor="{repository}@{ref}")
    person = Binding(claims={"groups": "data", "level": "5", "is_staff": "true"}, role=Role.READER)
    assert config.issuers == (
        Issuer(name="github", url=GITHUB, minutes=15, bindings=(job,)),
        Issuer(
            name="accounts",
            url="https://login.example/",
            audience="app",
            client_id="app",
            client_secret=HIDDEN,
            minutes=720,
            bindings=(person,),
        ),
    )
    assert HIDDEN not in repr(config)


def test_issuers_are_read_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_SERVE_PUBLIC_URL", "https://catalog.example/")
    entry = {"name": "x", "url": "https://login.example", "bindings": [{"claims": {"sub": "1"}, "role": "reader"}]}
    monkeypatch.setenv("REGISTRY_SERVE_ISSUERS", json.dumps([entry]))
    assert load_config().issuers[0].bindings == (Binding(claims={"sub": "1"}, role=Role.READER),)
    for text, problem in (
        (json.dumps([entry | {"minutes": 0}]), "issuers[0].minutes is 0: expected a number from 1 to 1440"),
        ("{", "issuers is None: expected a list of issuers"),
        (json.dumps({"client_secret": HIDDEN}), "issuers is ***: expected a list of issuers"),
    ):
        monkeypatch.setenv("REGISTRY_SERVE_ISSUERS", text)
        with pytest.raises(UsageError) as caught:
            load_config()
        assert caught.value.message == f"REGISTRY_SERVE_ISSUERS: {problem}"


def test_issuers_need_the_url_of_the_service(tmp_path: Path) -> None:
    error = refusal(tmp_path / "service.yaml", TEXT.partition("\n")[2])
    assert error.message == (
        "the setting issuers needs the setting public_url, because ID tokens are bound to that URL"
    )
    with pytest.raises(UsageError, match="issuers is"):
        ServiceConfig(issuers=("x",))  # type: ignore[arg-type] (what is tested)


WRONG = [
    (f"url: {GITHUB}", "url: http://login.example"),
    (f"url: {GITHUB}", "url: https://a:b@login.example"),
    (f"url: {GITHUB}", "url: https://login.example/?x=1"),
    (f"    url: {GITHUB}\n", ""),
    *(("name: github", 'name: "a b"'), ("name: accounts", "name: github"), ("client_id: app", "client_di: app")),
    (f"client_secret: {HIDDEN}", f"client_secret: [{HIDDEN}]"),
    *(("role: publisher", "role: owner"), ('["lab_*"]', '["lab *"]'), ('["lab_*"]', "lab_x")),
    *(('"{repository}@{ref}"', '"{repository"'), ("level: 5", "level: [5]"), ("role: reader", "claims: 5")),
]


def test_a_wrong_value_is_refused_with_its_line(tmp_path: Path) -> None:
    def read(before: str, after: str) -> None:
        assert before in TEXT
        raise refusal(tmp_path / "service.yaml", TEXT.replace(before, after, 1))

    calls = (partial(read, *change) for change in WRONG)
    check_errors(Path(__file__).with_name("golden") / "server_issuers.txt", calls, folder=tmp_path)


RIGHTS_OF_SOME: dict[str, list[Any]] = {
    "https://login.example": [{"groups": "data"}],
    GITHUB: [
        *({"repository": "lab/*"}, {"sub": "repo:lab/digits:environment:release"}),
        {"repository_owner_id": 12345, "ref": "refs/tags/*"},
    ],
    "https://gitlab.com": [{"project_path": "lab/digits", "ref_protected": True}],
    "https://accounts.google.com": [{"email": "*@example.org"}, {"hd": "example.org"}],
}
RIGHTS_OF_EVERYBODY: dict[str, list[Any]] = {
    "https://login.example": [
        *({}, {"aud": "app", "iss": "https://login.example", "azp": "app"}, {"sub": "*"}, {"email": "*@*"}),
    ],
    GITHUB: [
        *({"environment": "release"}, {"ref": "refs/heads/main", "repository": "*/digits"}),
        *({"repository": "lab*/digits"}, {"sub": "repo:*:ref:refs/heads/main"}),
    ],
    "https://gitlab.com": [{"ref_protected": True}],
    "https://accounts.google.com": [{"email_verified": True}, {"email": "*example.org"}],
}


def test_a_binding_that_gives_rights_to_everybody_is_refused() -> None:
    def read(url: str, claims: Any) -> int:
        return len(read_issuers([{"name": "x", "url": url, "bindings": [{"claims": claims, "role": "reader"}]}], str))

    assert {read(url, claims) for url, each in RIGHTS_OF_SOME.items() for claims in each} == {1}
    calls = {
        f"{url} {claims}": partial(read, url, claims) for url, each in RIGHTS_OF_EVERYBODY.items() for claims in each
    }
    check_errors(GOLDEN / "server_issuers_bindings.txt", calls)


def test_two_audiences_of_an_issuer_are_two_entries() -> None:
    entry = {"url": "https://gitlab.example", "bindings": [{"claims": {"sub": "1"}, "role": "reader"}]}
    assert len(read_issuers([entry | {"name": "a"}, entry | {"name": "b", "client_id": "app"}], str)) == 2
    with pytest.raises(UsageError, match="another issuer has the same url and audience"):
        read_issuers([entry | {"name": "a"}, entry | {"name": "b"}], str)


def test_the_samples_of_the_guide_are_valid(tmp_path: Path) -> None:
    samples = re.findall("```yaml\n(# service.yaml\n.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(samples) == 1
    file = tmp_path / "service.yaml"
    file.write_text(samples[0], encoding="utf-8")
    assert {issuer.name for issuer in load_config(file).issuers} == {"accounts", "github", "gitlab"}
