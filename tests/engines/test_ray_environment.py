"""Which variables of a program the worker of a Ray cluster takes, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.engines.ray.worker import environment_on_node


@pytest.mark.parametrize(
    "name",
    [
        "AWS_CA_BUNDLE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AZURE_FEDERATED_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_FILE",
    ],
)
def test_a_path_is_taken_if_it_exists_on_the_node(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    key = {"AWS_SECRET_ACCESS_KEY": "/may/start/with/a/slash"}
    assert environment_on_node({name: str(tmp_path / "file"), **key}) == {name: str(tmp_path / "file"), **key}
    assert environment_on_node({name: str(tmp_path / "another"), **key}) == key


def test_the_role_of_a_token_that_the_node_lacks_is_not_taken(tmp_path: Path) -> None:
    role = {"AWS_ROLE_ARN": "arn:aws:iam::1:role/one", "AWS_ROLE_SESSION_NAME": "session"}
    token = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
    assert environment_on_node(role | {"AWS_REGION": "eu-west-1"} | token) == {"AWS_REGION": "eu-west-1"}
    assert environment_on_node(role) == role
    (tmp_path / "token").touch()
    assert environment_on_node(role | token) == role | token


@pytest.mark.parametrize("place", ["home", "variable of the node", "variable of the program"])
@pytest.mark.parametrize(
    ("file", "variable", "header"),
    [
        ("config", "AWS_CONFIG_FILE", "[profile lab.1]"),
        ("config", "AWS_CONFIG_FILE", '[profile "lab.1"]'),
        ("credentials", "AWS_SHARED_CREDENTIALS_FILE", "[lab.1]"),
    ],
)
def test_a_profile_is_taken_if_a_file_of_the_node_defines_it(
    place: str, file: str, variable: str, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / (".aws" if place == "home" else "elsewhere")
    folder.mkdir()
    (folder / file).write_text(f"[default]\nregion = eu-west-1\n\n{header}\nregion = eu-west-2\n")
    sent = {}
    if place == "variable of the node":
        monkeypatch.setenv(variable, str(folder / file))
    elif place == "variable of the program":
        sent[variable] = str(folder / file)
    assert environment_on_node(sent | {"AWS_PROFILE": "lab.1"}) == sent | {"AWS_PROFILE": "lab.1"}
    assert environment_on_node(sent | {"AWS_PROFILE": "lab11"}) == sent


def test_a_node_without_files_of_aws_takes_no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert environment_on_node({"AWS_PROFILE": "lab", "AWS_REGION": "eu-west-1"}) == {"AWS_REGION": "eu-west-1"}
