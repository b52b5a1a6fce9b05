"""Signatures of pin files: any later change of file, envelope or key is refused and named."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from support.golden import check_errors
from support.levels import either
from support.pin_samples import digest_of, sample_entry, sample_pins

from registry.errors import PinChangedError, PinFormatError, SignatureError, UsageError
from registry.pins.keys import key_id
from registry.pins.signature import MAX_BYTES, SignedBy, check_signature, encode_for_signing, sign_pin

GOLDEN = Path(__file__).with_name("golden")


PINS = sample_pins(sample_entry(), sample_entry("again"))
DATA = PINS.to_yaml().encode()
SHA256 = hashlib.sha256(DATA).hexdigest()
NAME = "dataset.lock.yaml"
ADA, BOB = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
ADA_ID, BOB_ID = key_id(ADA.public_key()), key_id(BOB.public_key())
SIGNED = sign_pin(DATA, ADA, name=NAME)


def check(data: bytes = DATA, envelope: str | bytes = SIGNED, *keys: Ed25519PublicKey) -> SignedBy:
    return check_signature(data, envelope, keys or [ADA.public_key()])


def refusal(data: bytes = DATA, envelope: str | bytes = SIGNED, *keys: Ed25519PublicKey) -> str:
    with pytest.raises(SignatureError) as caught:
        check(data, envelope, *keys)
    assert caught.value.exit_code == 5
    return caught.value.message


def signed_by_hand(
    payload: Any, *, payload_type: str = "application/vnd.in-toto+json", raw: bytes | None = None
) -> str:
    """An envelope with any content that Ada really signed."""
    data = json.dumps(payload).encode() if raw is None else raw
    message = b"DSSEv1 " + str(len(payload_type)).encode() + b" " + payload_type.encode()
    message += b" " + str(len(data)).encode() + b" " + data
    return json.dumps(
        {
            "payloadType": payload_type,
            "payload": base64.b64encode(data).decode(),
            "signatures": [{"keyid": ADA_ID, "sig": base64.b64encode(ADA.sign(message)).decode()}],
        }
    )


def statement(**changes: Any) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(base64.b64decode(json.loads(SIGNED)["payload"]))
    return reported | changes


def flips(data: bytes) -> Iterator[bytes]:
    """``data`` with each of its bits turned over."""
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def test_the_encoding_that_is_signed_is_that_of_the_specification() -> None:
    reported = encode_for_signing("http://example.com/HelloWorld", b"hello world")
    assert reported == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert encode_for_signing("é", "é".encode()) == "DSSEv1 2 é 2 é".encode()
    assert encode_for_signing("", b"") == b"DSSEv1 0  0 "


def test_a_signature_holds() -> None:
    assert check() == SignedBy(keyids=(ADA_ID,), unchecked=(), name=NAME, sha256=SHA256, digest=PINS.digest)
    assert check(DATA, SIGNED.encode(), BOB.public_key(), ADA.public_key()).keyids == (ADA_ID,)
    assert sign_pin(DATA, ADA, name=NAME) == SIGNED


def test_the_envelope_has_the_form_that_other_tools_check() -> None:
    envelope = json.loads(SIGNED)
    assert list(envelope) == ["payloadType", "payload", "signatures"]
    payload = base64.b64decode(envelope["payload"], validate=True)
    message = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    [signature] = envelope["signatures"]
    ADA.public_key().verify(base64.b64decode(signature["sig"], validate=True), message)
    raw = ADA.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    assert signature["keyid"] == "sha256:" + hashlib.sha256(raw).hexdigest()
    ordered = digest_of("ordered")[:23]
    assert json.loads(payload) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": NAME, "digest": {"sha256": SHA256}}],
        "predicateType": "urn:dataset-registry:pin:1",
        "predicate": {
            "lock_version": 1,
            "digest": PINS.digest,
            "pins": {
                "train": f"digits@1.0.0 train[:80%] #8 {ordered}",
                "again": f"digits@1.0.0 train[:80%] #8 {ordered}",
            },
        },
    }


@pytest.mark.parametrize("step", either(11, 1))
def test_every_byte_of_the_file_counts(step: int) -> None:
    for place in range(0, len(DATA), step):
        data = DATA[:place] + bytes([DATA[place] ^ 1 << place % 8]) + DATA[place + 1 :]
        found = hashlib.sha256(data).hexdigest()
        assert refusal(data) == (
            f"the file is not the signed {NAME}: sha256 mismatch: expected {SHA256}, found {found}"
        )
    for data in (DATA[:-1], DATA + b"\n", b"", b"# x\n" + DATA):
        assert refusal(data).startswith(f"the file is not the signed {NAME}: ")


@pytest.mark.parametrize("step", either(5, 1))
def test_every_bit_of_the_envelope_counts(step: int) -> None:
    for text in islice(flips(SIGNED.encode()), 0, None, step):
        refusal(DATA, text)
    for place in range(0, len(SIGNED) - 1, step):
        refusal(DATA, SIGNED[:place])


def test_every_bit_of_the_signature_counts() -> None:
    envelope = json.loads(SIGNED)
    for sig in flips(base64.b64decode(envelope["signatures"][0]["sig"])):
        envelope["signatures"][0]["sig"] = base64.b64encode(sig).decode()
        assert refusal(DATA, json.dumps(envelope)) == (
            f"the signature of {ADA_ID} is invalid: the envelope was changed, or another key signed"
        )


@pytest.mark.parametrize("step", either(5, 1))
def test_every_bit_of_the_statement_counts(step: int) -> None:
    envelope = json.loads(SIGNED)
    for payload in islice(flips(base64.b64decode(envelope["payload"])), 0, None, step):
        envelope["payload"] = base64.b64encode(payload).decode()
        assert refusal(DATA, json.dumps(envelope)) == (
            f"the signature of {ADA_ID} is invalid: the envelope was changed, or another key signed"
        )


def test_every_bit_of_the_key_counts() -> None:
    for raw in flips(ADA.public_key().public_bytes_raw()):
        other = Ed25519PublicKey.from_public_bytes(raw)
        named = SIGNED.replace(ADA_ID, key_id(other))
        assert refusal(DATA, SIGNED, other) == (f"expected a signature of {key_id(other)}, found {ADA_ID}")
        assert refusal(DATA, named, other) == (
            f"the signature of {key_id(other)} is invalid: the envelope was changed, or another key signed"
        )


def test_a_key_that_was_not_given_is_named() -> None:
    with pytest.raises(SignatureError) as caught:
        check(DATA, SIGNED, BOB.public_key())
    assert caught.value.message == f"expected a signature of {BOB_ID}, found {ADA_ID}"
    assert caught.value.hint == "If you trust the signer, pass their public key."
    assert caught.value.details == {"signers": [ADA_ID], "given": [BOB_ID]}


def test_without_a_key_nothing_is_checked() -> None:
    with pytest.raises(UsageError, match="no public key to check the signature with"):
        check_signature(DATA, SIGNED, [])


def test_a_text_that_is_not_a_json_object_is_refused_as_an_envelope() -> None:
    texts: list[str | bytes] = [
        *("", b"\xff{}", "[]", "{}", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": [-1e999]}', "[" * 100_000, DATA),
        *(f'{{"a": 1.{"0" * 100}e999}}', " " * (MAX_BYTES + 1)),
    ]
    check_errors(GOLDEN / "pin_signature_texts.txt", (partial(check, DATA, text) for text in texts))


def test_a_key_that_is_given_twice_is_found_among_many() -> None:
    keys = ",".join(f'"{number}":0' for number in range(200_000))
    assert refusal(DATA, f'{{{keys},"199999":1}}') == "not an envelope: the key '199999' is given twice"


def test_numbers_of_unknown_fields_are_kept() -> None:
    text = sign_pin(DATA, BOB, name=NAME, envelope=json.dumps(json.loads(SIGNED) | {"later": [1.5, -0.25, 7]}))
    assert json.loads(text)["later"] == [1.5, -0.25, 7]


ENVELOPES: list[dict[str, Any]] = [
    *({"payload": 1}, {"payload": "e30"}, {"payload": "e30=\n"}, {"payload": "e31="}, {"payload": "-_=="}),
    *({"payload": "é"}, {"signatures": []}, {"signatures": [1] * 101}, {"signatures": {}}, {"signatures": ["x"]}),
    *({"signatures": [{"keyid": ""}]}, {"signatures": [{"keyid": "a\nb", "sig": ""}]}, {"payloadType": "text/plain"}),
    {"signatures": [{"keyid": "k", "sig": ""}, {"keyid": "k", "sig": ""}]},
    *({"signatures": [{"sig": "AAAA"}]}, {"signatures": [{"keyid": ADA_ID, "sig": "AAAA"}]}),
]
STATEMENTS: list[dict[str, Any]] = [
    *({"_type": "https://in-toto.io/Statement/v0.1"}, {"predicateType": "https://slsa.dev/provenance/v1"}),
    *({"subject": []}, {"subject": [{"name": NAME}]}, {"predicate": {"digest": 3}}),
]


def test_a_malformed_envelope_or_signed_statement_is_refused() -> None:
    envelopes = {f"{change}"[:99]: json.dumps(json.loads(SIGNED) | change) for change in ENVELOPES}
    envelopes |= {f"{change}": signed_by_hand(statement(**change)) for change in STATEMENTS}
    envelopes |= {"no JSON": signed_by_hand(None, raw=b"{"), "null": signed_by_hand(None)}
    envelopes["a text"] = signed_by_hand(statement(), payload_type="text/plain")
    calls = {name: partial(check, DATA, envelope) for name, envelope in envelopes.items()}
    check_errors(Path(__file__).with_name("golden") / "pin_signature.txt", calls)


def test_fields_that_are_not_known_are_ignored() -> None:
    assert check(DATA, signed_by_hand(statement(later=1))) == check()
    envelope = json.loads(SIGNED)
    envelope["later"] = envelope["signatures"][0]["cert"] = "x"
    assert check(DATA, json.dumps(envelope)) == check()
    again = json.loads(sign_pin(DATA, BOB, name=NAME, envelope=json.dumps(envelope)))
    assert (again["later"], again["signatures"][0]["cert"]) == ("x", "x")


def test_a_digest_that_is_not_that_of_the_pins_is_refused() -> None:
    other = digest_of("other")
    assert refusal(DATA, signed_by_hand(statement(predicate={"digest": other}))) == (
        f"{NAME}: the signed digest is wrong: expected {PINS.digest}, found {other}"
    )


def test_a_signed_file_that_is_not_a_pin_is_refused() -> None:
    sha256 = hashlib.sha256(b"x: 1\n").hexdigest()
    text = signed_by_hand(statement(subject=[{"name": NAME, "digest": {"sha256": sha256}}]))
    assert refusal(b"x: 1\n", text).startswith(
        f"{NAME} has a valid signature, but is not a valid pin file: {NAME}: 5 faults"
    )


def test_several_may_sign() -> None:
    both = sign_pin(DATA, BOB, name=NAME, envelope=SIGNED)
    assert [one["keyid"] for one in json.loads(both)["signatures"]] == [ADA_ID, BOB_ID]
    assert check(DATA, both).unchecked == (BOB_ID,)
    assert check(DATA, both, BOB.public_key()).keyids == (BOB_ID,)
    assert check(DATA, both, BOB.public_key(), ADA.public_key()).keyids == (ADA_ID, BOB_ID)
    assert sign_pin(DATA, ADA, name=NAME, envelope=both) == both
    broken = json.loads(both)
    broken["signatures"][1]["sig"] = broken["signatures"][0]["sig"]
    assert check(DATA, json.dumps(broken)).keyids == (ADA_ID,)
    assert refusal(DATA, json.dumps(broken), ADA.public_key(), BOB.public_key()) == (
        f"the signature of {BOB_ID} is invalid: the envelope was changed, or another key signed"
    )


def test_a_signature_cannot_be_added_to_an_envelope_for_another_file() -> None:
    other = sample_pins(sample_entry(license="MIT")).to_yaml().encode()
    for data, name in ((other, NAME), (DATA, "other.yaml")):
        with pytest.raises(SignatureError) as caught:
            sign_pin(data, BOB, name=name, envelope=SIGNED)
        assert caught.value.message == (
            f"the envelope does not match the current content of {name}, so your signature cannot be added to it"
        )
    with pytest.raises(SignatureError, match="not an envelope: invalid JSON"):
        sign_pin(DATA, BOB, name=NAME, envelope="")


def test_only_a_pin_file_is_signed() -> None:
    with pytest.raises(PinFormatError):
        sign_pin(b"x: 1\n", ADA, name=NAME)
    with pytest.raises(PinChangedError):
        sign_pin(DATA.replace(b"CC BY", b"CC BZ"), ADA, name=NAME)
    for name in ("", "a/b", "a\nb", "a" * 256):
        with pytest.raises(UsageError, match="is not the name of a file"):
            sign_pin(DATA, ADA, name=name)


def test_importing_loads_no_cryptography() -> None:
    script = "import sys, registry.pins.signature; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
