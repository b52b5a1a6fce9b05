"""The hosts, places and addresses that a consent covers."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from registry.errors import FetchNotAllowedError, UsageError
from registry.storage import Allowed
from registry.storage.consent import canonical_host, entry_for, is_public, needs_name

LOOPBACK = [
    "http://localhost/x",
    "http://LOCALHOST./x",
    "http://a.localhost/x",
    "http://127.0.0.1/x",
    "http://127.1/x",
    "http://2130706433/x",
    "http://0x7f000001/x",
    "http://0177.0.0.1/x",
    "http://[::1]/x",
    "http://[::ffff:127.0.0.1]/x",
    "http://[::ffff:7f00:1]/x",
    "http://0.0.0.0/x",
]


@pytest.mark.parametrize("url", ["https://example.org/x", "http://8.8.8.8/x", "s3://bucket/x", "gs://b", "/data/x"])
def test_nothing_is_covered_until_the_reader_agrees(url: str) -> None:
    assert not Allowed().covers(url)
    assert Allowed.of(fetch=True).covers(url)
    assert Allowed.of(hosts=[str(entry_for(url))]).covers(url)
    with pytest.raises(FetchNotAllowedError) as caught:
        Allowed().require(url)
    assert str(caught.value) == f"{url} was not contacted: it comes from a pin, and you have not allowed it"
    assert caught.value.details == {"path": url, "allow": entry_for(url)}
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    "url",
    [
        *LOOPBACK,
        "http://10.0.0.1/x",
        "http://192.168.1.1/x",
        "http://169.254.169.254/latest",
        "http://100.100.100.200/x",
        "http://168.63.129.16/x",
        "http://224.0.0.1/x",
        "http://[fe80::1]/x",
        "http://[fd00:ec2::254]/x",
        "http://[64:ff9b::7f00:1]/x",
        "http://[2002:7f00:1::]/x",
        "http://[::]/x",
        "sftp://example.org/x",
        "local:///etc",
        "simplecache::http://example.org/x",
        "//server/share",
        "file:////server/share",
        "file://server/share",
        "\\\\server\\share",
        "/data/../etc",
        "http:///x",
        "http://[::1/x",
    ],
)
def test_fetch_does_not_allow_hosts_that_must_be_named(url: str) -> None:
    assert not Allowed.of(fetch=True).covers(url)
    assert needs_name(url)


@pytest.mark.parametrize("url", LOOPBACK)
def test_one_address_is_meant_however_it_is_spelled(url: str) -> None:
    named = str(entry_for(url))
    assert Allowed.of(hosts=[named]).covers(url)
    assert not Allowed.of(hosts=["example.org", "10.0.0.0/8", f"{named}:1"]).covers(url)


@pytest.mark.parametrize(
    ("host", "url", "is_covered"),
    [
        ("example.org", "https://example.org/x", True),
        ("example.org", "https://EXAMPLE.org./x", True),
        ("example.org", "https://example.org:8443/x", True),
        ("example.org", "https://example.org@evil.org/x", False),
        ("example.org", "https://evil.org/example.org", False),
        ("example.org", "https://sub.example.org/x", False),
        ("example.org", "https://example.org.evil.org/x", False),
        ("example.org:8443", "https://example.org:8443/x", True),
        ("example.org:8443", "https://example.org/x", False),
        ("https://example.org", "https://example.org/x", True),
        ("https://example.org", "http://example.org/x", False),
        ("bücher.example", "https://xn--bcher-kva.example/x", True),
        ("10.0.0.0/8", "http://10.1.2.3/x", True),
        ("10.0.0.0/8", "http://11.1.2.3/x", False),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/x", True),
        ("[::1]:80", "http://[::1]/x", True),
        ("::1", "http://[::1]:8000/x", True),
        ("s3://bucket", "s3://bucket/x", True),
        ("s3://bucket", "s3://bucket-2/x", False),
        ("s3://bucket", "gs://bucket/x", False),
        ("bucket", "s3://bucket/x", False),
        ("sftp://example.org", "sftp://example.org/x", True),
        ("file:///data", "/data/x", True),
        ("file:///data", "file:///data/x", True),
        ("file:///data", "/data2/x", False),
        ("file:///data", "/data/../etc", False),
        ("file:///data", "file:///data/%2e%2e/etc", False),
    ],
)
def test_a_named_host_allows_only_that_host(host: str, url: str, is_covered: bool) -> None:
    assert Allowed.of(hosts=[host]).covers(url) is is_covered


@pytest.mark.parametrize(
    ("hosts", "host", "address", "is_covered"),
    [
        (["example.org"], "example.org", "8.8.8.8", True),
        (["example.org"], "example.org", "127.0.0.1", False),
        (["example.org"], "example.org", "10.0.0.1", False),
        (["example.org"], "example.org", "::ffff:10.0.0.1", False),
        (["example.org"], "example.org", "fe80::1%eth0", False),
        (["example.org", "10.0.0.0/8"], "example.org", "10.0.0.1", True),
        (["example.org", "10.0.0.1:81"], "example.org", "10.0.0.1", False),
        (["localhost"], "localhost.", "127.0.0.1", True),
        (["localhost"], "localhost", "::1", True),
        (["localhost"], "localhost", "10.0.0.1", False),
        (["localhost"], "example.org", "127.0.0.1", False),
        (["localhost"], "127.0.0.1", "127.0.0.1", True),
        (["localhost"], "[::1]", "::1", True),
        (["localhost"], "10.0.0.1", "10.0.0.1", False),
        ([], "127.0.0.1", "127.0.0.1", False),
        ([], "192.0.0.8", "192.0.0.8", False),
    ],
)
def test_an_address_that_is_not_public_is_named_itself(
    hosts: list[str], host: str, address: str, is_covered: bool
) -> None:
    assert Allowed.of(fetch=True, hosts=hosts).covers_address("http", host, 80, address) is is_covered


def test_the_name_of_this_machine_does_not_allow_a_url_with_its_address() -> None:
    allowed = Allowed.of(hosts=["localhost"])
    assert (allowed.covers("http://localhost/x"), allowed.covers("http://127.0.0.1/x")) == (True, False)


@pytest.mark.parametrize(
    "network",
    [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "255.255.255.255/32",
        "::1/128",
        "::/128",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2620:4f:8000::/48",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    ],
)
def test_special_purpose_addresses_of_iana_are_not_public(network: str) -> None:
    special = ip_network(network)
    assert not is_public(str(special[0]))
    assert not is_public(str(special[-1]))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    ["", " ", "*.example.org", "http://", "a b", "https://example.org/path", "https://ann:PW@host", "10.0.0.1/8"],
)
def test_what_names_no_host_is_refused(host: str) -> None:
    with pytest.raises(UsageError) as caught:
        Allowed.of(hosts=[host])
    assert str(caught.value).endswith(" is not a host")
    assert "PW" not in str(caught.value)
    assert caught.value.hint == "Write example.org, example.org:8443, 10.0.0.0/8, s3://bucket or file:///folder."


def test_a_text_is_refused_as_a_list_of_hosts() -> None:
    with pytest.raises(UsageError, match=r"^allow_hosts expects a list, found a str(?m:$)"):
        Allowed.of(hosts="example.org")


def test_a_text_that_is_not_an_ip_number_is_a_name() -> None:
    assert canonical_host("1.2.3.4.5") == "1.2.3.4.5"
    assert canonical_host("0x") == "0x"
    assert canonical_host("999.1") == "999.1"
