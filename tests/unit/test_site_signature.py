"""Signatures of sites: every field is signed, and signatures of pin files and of sites do not replace each other."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.pin_samples import sample_entry, sample_pins

from registry.catalog.site_index import SiteIndex, SiteSignature, parse_site_index
from registry.errors import SignatureError, UsageError
from registry.pins.keys import key_id
from registry.pins.signature import (
    PAYLOAD_TYPE,
    check_signature,
    encode_for_signing,
    sign_index,
    sign_pin,
    verify_index,
)

INDEX = SiteIndex(
    sha256="1" * 64,
    num_bytes=4096,
    compressed_sha256="2" * 64,
    compressed_bytes=512,
    head="3" * 64,
    num_events=7,
    made_at=datetime(2026, 11, 29, tzinfo=UTC),
    made_by="shardbook 1.0",
    data_url="data/",
)
ADA, BOB = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
ADA_ID, BOB_ID = key_id(ADA.public_key()), key_id(BOB.public_key())
SIGNED = sign_index(INDEX, ADA)


def refusal(index: SiteIndex, *keys: Ed25519PrivateKey) -> str:
    with pytest.raises(SignatureError) as caught:
        verify_index(index, [key.public_key() for key in keys or (ADA,)])
    assert caught.value.exit_code == 5
    return caught.value.message


def test_a_signed_index_is_verified_after_it_was_written_and_read() -> None:
    assert verify_index(parse_site_index(SIGNED.to_json()), [BOB.public_key(), ADA.public_key()]) == ADA_ID
    assert replace(SIGNED, signature=None) == INDEX
    assert sign_index(SIGNED, ADA) == SIGNED


def test_a_changed_field_is_refused() -> None:
    expected = f"the signature of {ADA_ID} is invalid: the index of the site was changed, or another key signed"
    changes: list[dict[str, Any]] = [
        *({"sha256": "5" * 64}, {"num_bytes": 4097}, {"compressed_sha256": "5" * 64}, {"compressed_bytes": 513}),
        *({"head": "5" * 64}, {"num_events": 8}, {"made_at": INDEX.made_at + timedelta(microseconds=1)}),
        *({"made_by": "shardbook 1.1"}, {"data_url": "https://elsewhere/"}, {"data_url": None}),
    ]
    for change in changes:
        assert refusal(replace(SIGNED, **change)) == expected, change


def test_each_flipped_bit_of_a_signature_is_refused() -> None:
    sig = SIGNED.signature.sig
    for place in range(len(sig)):
        for bit in range(8):
            flipped = sig[:place] + bytes([sig[place] ^ 1 << bit]) + sig[place + 1 :]
            refusal(replace(SIGNED, signature=SiteSignature(keyid=ADA_ID, sig=flipped)))


def test_a_signature_of_another_key_is_refused() -> None:
    assert refusal(SIGNED, BOB) == f"expected a signature of {BOB_ID}, found {ADA_ID}"
    bob = sign_index(INDEX, BOB).signature
    assert bob is not None
    renamed = replace(INDEX, signature=replace(bob, keyid=ADA_ID))
    assert refusal(renamed).startswith(f"the signature of {ADA_ID} is invalid")


def test_an_index_without_a_signature_is_refused() -> None:
    assert refusal(INDEX) == f"the site is not signed: expected a signature of {ADA_ID}"


def test_no_trusted_key_is_a_wrong_call() -> None:
    with pytest.raises(UsageError, match="no public key"):
        verify_index(SIGNED, [])


def test_a_signature_of_a_pin_file_is_not_one_of_a_site() -> None:
    """Not even if its payload were the index: the type of the payload is signed, too."""
    data = sample_pins(sample_entry()).to_yaml().encode()
    envelope = json.loads(sign_pin(data, ADA, name="dataset.lock.yaml"))
    of_pin = base64.b64decode(envelope["signatures"][0]["sig"])
    of_index_as_pin = ADA.sign(encode_for_signing(PAYLOAD_TYPE, INDEX.signed_bytes))
    for sig in (of_pin, of_index_as_pin, ADA.sign(INDEX.signed_bytes)):
        refusal(replace(INDEX, signature=SiteSignature(keyid=ADA_ID, sig=sig)))


def test_a_signature_of_a_site_is_not_one_of_a_pin_file() -> None:
    data = sample_pins(sample_entry()).to_yaml().encode()
    envelope = json.loads(sign_pin(data, ADA, name="dataset.lock.yaml"))
    payload = base64.b64decode(envelope["payload"])
    for sig in (SIGNED.signature.sig, ADA.sign(encode_for_signing("application/vnd.shardbook.site.v1+json", payload))):
        envelope["signatures"] = [{"keyid": ADA_ID, "sig": base64.b64encode(sig).decode()}]
        with pytest.raises(SignatureError, match="is invalid: the envelope was changed"):
            check_signature(data, json.dumps(envelope), [ADA.public_key()])
