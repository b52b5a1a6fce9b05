"""Masks secrets in URLs before text is shown or stored.

A URL can contain a password in three places: before the host (``http://ann:PW@host``), in the query (``?token=PW``, the
signature of a signed link) and in the fragment. The parameters of libpq (``host=db password=PW``) contain one, too.
Errors mask their text when they are created, and the command line masks its output, so code that composes a message
need not do it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

MASK: Final = "***"

# The second form is a password that should have been quoted: it contains a slash, a question mark or a number sign.
# A port is not a password: http://host:80/p@th is unchanged. The length is bounded, so no text takes quadratic time.
_USER_INFO: Final = r"(?<=://)(?:[^\s/?#]+|[^\s/?#:@\[]+:(?!\d{1,5}(?:[/?#\s]|$))[^\s@]{0,200})@"
# These URLs have no "@" in the path: everything between a colon and the last "@" is a password.
_KEYS: Final = (
    r"(?i)((?<![a-z0-9])(?:s3[an]?|gs|gcs|azure|az|abfss?|wasbs?|adl|oss|postgres\w*(?:\+\w+)?|mysql(?:\+\w+)?)://)"
    r"[^\s:/?#@]{0,200}:[^\s]{0,400}@"
)
# A password with a space. A number is not taken for a password, because a sentence may go on after a URL, as in
# "http://host:80, or ask ann@host".
_SPACED: Final = (
    r"(?<=://)[^\s/?#:@\[]*:(?!\d{1,5}(?!\w))(?=[^\s@]{1,200}[^\S\n])[^\n@]{1,200}@(?:[^\s/]{0,200}@)?(?=[\w\[])"
)
# Parameters of libpq, as in "host=db password=PW". Other texts, such as records, may contain "password=..." as well.
_PARAMETERS: Final = r"(?i)\b(?:host(?:addr)?|port|user|dbname|server)\s*="
_PARAMETER: Final = (
    r"(?i)((?:passw(?:or)?d|(?<![a-z0-9])(?:pass|pwd|scram_(?:client|server)_key|oauth_client_secret))\s*=\s*)"
    r"('(?:[^'\\]|\\.)*'?|\"[^\"]*\"?|[^\s;,&'\"]+)"
)
# [user[:password]@]host[:port], and what follows it.
_AUTHORITY: Final = (
    r"(?s)(?P<user>[^\s:@/?#\[\]]*(?::[^\s@/?#]*)?@)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:@/?#\[\]]*)(?::(?P<port>\d{1,5}))?"
    r"(?P<rest>[/?#].*)?"
)
# digits:1.0.0@paper names a version and an alias, not a user, a password and a host.
_VERSION_AND_ALIAS: Final = r"[\w/.+-]+:[\^~]?\d+(?:\.[\d*]+)+@[\w.-]*"
_PORTS: Final = frozenset({"http", "https", "ftp", "ftps", "sftp", "ssh"})
_ASSIGNED: Final = r"([\w%.+-]{2,60})\s*="
_QUERY: Final = r"[?#][^\s?#]*=[^\s]*"
_SEPARATOR: Final = "([?#&;])"  # some servers accept ";" for "&"

_MASKED: Final = rf"{re.escape(MASK)}\W*"

_PUBLIC_USER: Final = r"(?i)(?:abfss?|azure|az|wasbs?|postgresql(?:\+psycopg)?)://"
"""Azure URLs have ``container@account`` before the path, database URLs a user: not secret without a password."""

_SECRET_PARTS: Final = (
    *("token", "secret", "passw", "passphrase", "signature", "credential", "authorization", "oauth", "sharedaccess"),
    *("apikey", "accesskey", "authkey", "privatekey", "subscriptionkey", "accountkey", "keypair", "sessionid", "jwt"),
)
_SECRET_NAMES: Final = frozenset({"auth", "hmac", "key", "pass", "pat", "pw", "pwd", "sas", "sid", "sig"})


def mask(text: str) -> str:
    """Replace the secrets in URLs of ``text`` with ``***``. Masking twice changes nothing.

    >>> mask("cannot read http://ann:PW@host/a?token=PW&page=2: 404")
    'cannot read http://***@host/a?token=***&page=2: 404'
    >>> mask("s3://bucket/data?X-Amz-Date=1&X-Amz-Signature=PW#access_token=PW")
    's3://bucket/data?X-Amz-Date=1&X-Amz-Signature=***#access_token=***'
    """
    if "@" in text and "://" in text:
        text = re.sub(_KEYS, _mask_keys, text)
        text = re.sub(_USER_INFO, _mask_user, text)
        text = re.sub(_SPACED, _mask_user, text)
    if "=" in text:
        text = re.sub(_QUERY, _mask_query, text)
        if re.search(_PARAMETERS, text):
            text = re.sub(_PARAMETER, rf"\1{MASK}", text)
    return text


def mask_all(value: Any) -> Any:
    """Mask all text that contains a URL in a JSON value, including keys. In values to be stored, other text stays."""
    if isinstance(value, str):
        return mask(value) if "://" in value else value
    if isinstance(value, Mapping):
        return {mask_all(key): mask_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        result = [mask_all(item) for item in value]
        return result if isinstance(value, list) else tuple(result)
    return value


def may_hide_secret(text: str) -> bool:
    """Whether ``text``, which should name a path, a URL or a dataset, may contain a secret that ``mask`` does not find.

    Such a text is a malformed URL, or parameters of a connection. It is rejected and never repeated in an error,
    because the end of its password cannot be determined.

    >>> may_hide_secret("s3://KEY:P W@bucket/x"), may_hide_secret("ann:PW@host/x"), may_hide_secret("AccountKey=PW")
    (True, True, True)
    >>> may_hide_secret("https://ann:PW@host/x"), may_hide_secret("my data/ann@work/10:30.csv")
    (False, False)
    """
    scheme, separator, rest = text.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][\w+.-]*", scheme):
        if re.fullmatch(_VERSION_AND_ALIAS, text):
            return False
        is_path = re.match(r"~|\.{0,2}/(?!/)", text) is not None
        return (
            re.search(r":[^/]*@" if is_path else r":.*@|^//", text, re.DOTALL) is not None
            or re.search(r"[?#][^?#\s/]*=", text) is not None
            or any(_is_password_name(name) for name in re.findall(_ASSIGNED, text))
        )
    match = re.fullmatch(_AUTHORITY, rest)
    if match is None:
        return True
    port, after = match["port"], match["rest"] or ""
    if scheme.lower() == "file":
        return match["user"] is not None or port is not None or "://" in after
    if port is not None and (int(port) > 65535 or (scheme.lower() not in _PORTS and "@" in after)):
        return True
    if "@" in after and ":" in (match["user"] or ""):
        return True
    if "@" in after and port is not None and (after[0] != "/" or re.search(r"\s", after)):
        return True
    # A space or a number sign in the value of a parameter: the value ends somewhere after it.
    return bool(re.search(r"\s", after)) and (
        has_secret(text) or any(_is_password_name(name) for name in re.findall(_ASSIGNED, after))
    )


def has_secret(url: str) -> bool:
    """Whether ``url`` contains a user name or password, or a parameter that grants access.

    >>> has_secret("https://host/file?download=1"), has_secret("https://host/file?sig=x")
    (False, True)
    """
    return mask(url) != url


def remove_secrets(url: str) -> str:
    """``url`` without user info and without the parameters that ``mask`` hides: scheme, host and path are kept.

    >>> remove_secrets("https://ann:PW@host/a?sv=1&sig=PW#token=PW")
    'https://host/a?sv=1'
    """
    masked = re.sub(rf"(?<=://)[^\s/?#]*{re.escape(MASK)}@", "", mask(url))
    result = re.sub(rf"(?<=[?&;#])[^=&;#?\s]+={re.escape(MASK)}&?", "", masked)
    return re.sub(r"[?&;#]+(?=[\s#]|$)", "", result)


def _mask_keys(match: re.Match[str]) -> str:
    # "ann:***@" is how SQLAlchemy shows a database's URL.
    return match[0] if re.search(rf":{re.escape(MASK)}@[^@]*$", match[0]) else f"{match[1]}{MASK}@"


def _mask_user(match: re.Match[str]) -> str:
    before = match.string[max(match.start() - 24, 0) : match.start()]
    is_public = ":" not in match[0] and re.search(_PUBLIC_USER, before) is not None
    # "ann:***@" is how SQLAlchemy shows a database's URL.
    return match[0] if is_public or match[0].endswith(f":{MASK}@") else f"{MASK}@"


def _mask_query(match: re.Match[str]) -> str:
    masked: list[str] = []
    is_in_secret = False
    parts = re.split(_SEPARATOR, match[0])
    for separator, part in zip(parts[1::2], parts[2::2], strict=True):
        name, equals, value = part.partition("=")
        if is_in_secret and (separator in ";?" or not equals):
            masked[-1] = MASK if part else masked[-1]  # an unquoted value: it continues up to the next parameter
            continue
        # Masked already, followed by the rest of a sentence: "token=***: 404".
        is_in_secret = bool(equals) and not re.fullmatch(_MASKED, value) and is_secret_name(name)
        masked += [separator, name, equals, MASK if is_in_secret and value else value]
    return "".join(masked)


def is_secret_name(name: str) -> bool:
    """Whether a parameter of that name grants access, such as a password, key, token or signature."""
    letters = re.sub("[^a-z0-9]", "", unquote(name).lower())
    return letters in _SECRET_NAMES or any(part in letters for part in _SECRET_PARTS)


def _is_password_name(name: str) -> bool:
    """``is_secret_name`` without short names that folders also have, as in ``key=3``."""
    return is_secret_name(name) and re.sub("[^a-z]", "", name.lower()) not in ("auth", "key", "pat", "sid", "pass")
