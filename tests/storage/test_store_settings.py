"""Settings of object stores reach every request that needs them, and credentials reach nothing else."""

from __future__ import annotations

import base64
import os
import pickle
import secrets
import traceback
from pathlib import Path

import pytest
from support.clouds import Cloud, on_clouds
from support.fault_proxy import FaultProxy, Request
from support.prepared_samples import animals, prepare
from support.s3_server import S3Server

import registry
from registry.cli.main import run
from registry.errors import NotStoredError, StorageError, StorageUnavailableError, UsageError
from registry.storage import Store, open_store

LARGE = 9 * 2**20
"""Bytes of an object that is uploaded in two parts."""


def use_all(store: Store, here: Path) -> None:
    """Send every kind of request."""
    (here / "large").write_bytes(bytes(LARGE))
    store.write_bytes("new", b"x")
    store.write_bytes("new", b"y", overwrite=True)
    store.create_from("large", open_store(here), "large", require_reserved=lambda: None)
    assert store.read_bytes("new") == b"y"
    assert store.open("large").read() == bytes(LARGE)
    assert store.list() == ["large", "new"]
    store.copy_to("large", "copy")
    store.remove("copy")


def kind_of(request: Request) -> str:
    """What a request does, in the words of S3."""
    if request.method == "POST":
        return {"uploads": "CreateMultipartUpload", "delete": "DeleteObjects"}.get(
            request.query.partition("=")[0], "CompleteMultipartUpload"
        )
    if request.method == "PUT" and "partNumber" in request.query:
        return "UploadPartCopy" if "x-amz-copy-source" in request.headers else "UploadPart"
    names = {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject"}
    return "ListObjects" if "list-type" in request.query else names[request.method]


KINDS = {
    *("PutObject", "GetObject", "HeadObject", "ListObjects", "DeleteObjects"),
    *("CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload"),
}


@pytest.mark.parametrize(
    ("settings", "headers", "kinds"),
    [
        (
            {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"},
            {"x-amz-server-side-encryption": "AES256"},
            {"PutObject", "CreateMultipartUpload"},
        ),
        (
            {
                "AWS_SERVER_SIDE_ENCRYPTION": "aws:kms",
                "AWS_SSE_KMS_KEY_ID": "arn:aws:kms:eu-central-1:1:key/k",
                "AWS_SSE_BUCKET_KEY_ENABLED": "true",
            },
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:eu-central-1:1:key/k",
                "x-amz-server-side-encryption-bucket-key-enabled": "true",
            },
            {"PutObject", "CreateMultipartUpload"},
        ),
        ({"AWS_REQUEST_PAYER": "requester"}, {"x-amz-request-payer": "requester"}, KINDS),
    ],
    ids=["AES256", "KMS", "requester pays"],
)
def test_encryption_and_payer_are_in_each_request_that_needs_them(
    bucket: str,
    fault_proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    headers: dict[str, str],
    kinds: set[str],
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    use_all(open_store(f"{bucket}/data"), tmp_path)
    assert {kind_of(request) for request in fault_proxy.requests} == KINDS
    assert {kind_of(one) for one in fault_proxy.requests if headers.items() <= dict(one.headers).items()} == kinds
    assert not [
        one for one in fault_proxy.requests if kind_of(one) in kinds and not headers.items() <= one.headers.items()
    ]


@pytest.mark.parametrize("cloud", ["gcs_server"], indirect=True)
def test_google_learns_which_project_pays(
    bucket: str, fault_proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "my-project")
    use_all(open_store(f"{bucket}/data"), tmp_path)
    assert {request.headers.get("x-goog-user-project") for request in fault_proxy.requests} == {"my-project"}


@pytest.mark.azure
@pytest.mark.parametrize("cloud", ["azure_server"], indirect=True)
def test_azure_gets_the_key_of_the_customer(
    bucket: str, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    monkeypatch.setenv("AZURE_STORAGE_ENCRYPTION_KEY", key)
    with pytest.raises(StorageUnavailableError) as caught:  # the emulator answers 500: it does not support such keys
        open_store(bucket).write_bytes("name", b"x")
    assert {request.headers["x-ms-encryption-key"] for request in fault_proxy.requests} == {key}
    assert key not in "".join(traceback.format_exception(caught.value))


@on_clouds
def test_a_bucket_that_is_not_there_is_named_with_the_setting_to_check(bucket: str) -> None:
    scheme = bucket.partition("://")[0]
    with pytest.raises(NotStoredError) as caught:
        open_store(f"{bucket}-other").list()
    assert str(caught.value).endswith("-other' does not exist")
    setting = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}[scheme]
    assert setting in (caught.value.hint or "")


@pytest.mark.parametrize("cloud", ["s3_server", "gcs_server"], indirect=True)
def test_a_public_object_is_read_without_credentials_and_a_private_one_is_not(
    cloud: Cloud, bucket: str, s3_server: S3Server, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = bucket.partition("://")[2]
    assert s3_server.request("PUT", f"/{name}/public", b"x", **{"x-amz-acl": "public-read"})[0] == 200
    assert s3_server.request("PUT", f"/{name}/private", b"x")[0] == 200
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_BEARER_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv({"s3": "AWS_SKIP_SIGNATURE", "gs": "GOOGLE_SKIP_SIGNATURE"}[cloud.scheme], "true")
    store = open_store(bucket)
    assert store.read_bytes("public") == b"x"
    with pytest.raises(StorageError, match=r"Permission denied \(the server answered 403 Forbidden\)"):
        store.read_bytes("private")
    assert not any("authorization" in request.headers for request in fault_proxy.requests)


@on_clouds
def test_credentials_are_in_no_output_file_object_error_or_repr(
    cloud: Cloud,
    bucket: str,
    fault_proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hidden = {
        "s3": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
        "gs": ["GOOGLE_BEARER_TOKEN"],
        "az": [],
    }[cloud.scheme]
    for name in hidden:
        monkeypatch.setenv(name, secrets.token_hex(20))
    if cloud.scheme == "s3":
        monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms")
        monkeypatch.setenv("AWS_SSE_KMS_KEY_ID", "arn:aws:kms:eu-central-1:1:key/not-for-everybody")
    values = [
        value
        for name, value in cloud.environment().items()
        if name not in hidden and name.endswith(("KEY", "TOKEN", "KEY_ID"))
    ]
    values += [value for name in [*hidden, "AWS_SSE_KMS_KEY_ID"] if (value := os.environ.get(name))]
    assert values
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("REGISTRY_DATA_DIR", bucket)
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_DEBUG", "1")
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path / "animals", splits={"train": animals(20)})
    for arguments in ("publish animals", "show animals --format json", "log", "verify animals --deep"):
        assert run(arguments.split()) == 0
    assert run(["pin", "create", "animals", "train", "-o", "paper.lock.yaml"]) == 0
    store = open_store(bucket)
    said = [repr(store), repr(vars(store)), repr(pickle.dumps(store)), str(registry.load_pin("paper.lock.yaml"))]
    said += [repr(list(fault_proxy.requests)), *(repr(one.body) for one in fault_proxy.requests)]
    for fault in ("echo", "error"):
        fault_proxy.inject(fault)
        assert run(["verify", "animals"]) != 0
        assert run(["pin", "verify", "paper.lock.yaml", "--format", "json"]) != 0
        with pytest.raises(StorageError) as caught:
            store.read_bytes("name")
        said += [repr(caught.value), repr(caught.value.details), *traceback.format_exception(caught.value)]
        fault_proxy.reset()
    said += capsys.readouterr()
    assert any("SignatureDoesNotMatch" in one for one in said), "tracebacks say what the server refused"
    found = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(found) > 5
    for value in values:
        assert not [one for one in said if value in one]
        assert not [one for one in found if value.encode() in one]


@pytest.mark.parametrize(
    ("url", "settings", "reason"),
    [
        ("s3://b", {"AWS_SERVER_SIDE_ENCRYPTION": "rot13"}, "Invalid encryption type: $AWS_SERVER_SIDE_ENCRYPTION"),
        ("s3://b", {"AWS_SECRET_ACCESS_KEY": ""}, "Missing SecretAccessKey"),
        (
            "s3://b",
            {"AWS_SERVER_SIDE_ENCRYPTION": "sse-c", "AWS_SSE_CUSTOMER_KEY_BASE64": "hunter2!"},
            "Invalid encryption header values",
        ),
        ("gs://b", {"GOOGLE_SERVICE_ACCOUNT": "/nowhere.json"}, "Unable to open service account file from "),
        ("gs://b", {"GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "hunter2"}'}, "Unable to decode service account"),
        ("az://b", {}, "Account must be specified"),
        (
            "az://b",
            {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_STORAGE_ACCOUNT_KEY": "hunter2!"},
            "Invalid Access Key",
        ),
    ],
)
def test_an_invalid_setting_is_an_error_that_names_the_variables(
    bucket: str, monkeypatch: pytest.MonkeyPatch, url: str, settings: dict[str, str], reason: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
        if not value:
            monkeypatch.delenv(name)
    with pytest.raises(StorageError) as caught:
        open_store(url).size("file")
    assert str(caught.value).startswith(f"cannot read {url}/file: a setting is missing or invalid: ")
    assert reason in str(caught.value)
    prefix = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}[url[:2]]
    assert (caught.value.hint or "").startswith(f"Check the variables that begin with {prefix}. Set {prefix}")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT"])
@pytest.mark.parametrize("value", ["minio.example.org", "https://", "ftp://example.org", "http://[::1", "http://a:b/"])
def test_an_endpoint_that_is_no_url_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    url = {"AWS": "s3://b", "GOO": "gs://b", "AZU": "az://b"}[name[:3]]
    with pytest.raises(UsageError) as caught:
        open_store(url).size("file")
    assert str(caught.value) == f"{name} is {value!r}: expected a URL"
    assert caught.value.hint == f"Set it to a URL, e.g. {name}=https://objects.example.org, or unset it."
