"""Where the credentials and the endpoint of a bucket come from: the environment, and for S3 also AWS profiles.

obstore itself reads ``AWS_*``, ``GOOGLE_*`` and ``AZURE_*`` variables, web identities, containers' credentials and the
metadata services of the clouds. Profiles and single sign-on are boto3's subject; it is used where it is installed and
the environment holds no keys.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Final

from registry.errors import MissingExtraError, StorageError

_NATIVE: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Where one of these is set, obstore finds the credentials by itself."""

_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})


def bucket_options(scheme: str, *, doing: str, shown: str) -> dict[str, Any]:
    """The options for obstore's store of a scheme, beyond what it reads from the environment.

    Raises:
        StorageError: boto3 is installed, and there are no credentials anywhere.
        MissingExtraError: an AWS profile is asked for, and boto3 is not installed.
    """
    options = _s3_options(doing=doing, shown=shown) if scheme == "s3" else {}
    # obstore refuses http:// unless it is told that this is meant. An endpoint of that kind is named on purpose.
    settings = [value for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]
    if any("http://" in value for value in [*settings, str(options.get("endpoint", ""))]):
        options["client_options"] = {"allow_http": True}
    return options


def no_credentials(shown: str, *, doing: str) -> StorageError:
    """The error where no credentials are found."""
    error = StorageError(
        f"cannot {doing} {shown}: there are no credentials for it",
        hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or the variables of your cloud. For a "
        "public bucket set AWS_SKIP_SIGNATURE=true or GOOGLE_SKIP_SIGNATURE=true.",
        details={"path": shown, "errno": errno.EACCES, "doing": doing},
    )
    error.errno = errno.EACCES
    return error


def _s3_options(*, doing: str, shown: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if not os.environ.get("AWS_COPY_IF_NOT_EXISTS"):
        options["copy_if_not_exists"] = "multipart"  # the one way that Amazon's own servers offer
    anonymous = os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in _YES
    if anonymous or any(os.environ.get(name) for name in _NATIVE):
        return options
    return options | _profile_options(doing=doing, shown=shown)


def _profile_options(*, doing: str, shown: str) -> dict[str, Any]:
    """Credentials, region and endpoint as boto3 finds them, in the files of the AWS command line or elsewhere."""
    try:
        import botocore.session
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        folder = Path("~/.aws").expanduser()
        profile = os.environ.get("AWS_PROFILE")
        if profile or (folder / "credentials").is_file() or (folder / "config").is_file():
            wanted = f"reading the AWS profile {profile or 'default'!r}"
            raise MissingExtraError(package="boto3", extra="aws", needed_for=wanted) from error
        return {}
    try:
        session = botocore.session.Session()
        provider = Boto3CredentialProvider(session)
        settings = session.get_scoped_config()
    except (BotoCoreError, ValueError) as error:  # ValueError: there are none
        raise no_credentials(shown, doing=doing) from error
    options: dict[str, Any] = {"credential_provider": provider}
    if not os.environ.get("AWS_REGION") and not os.environ.get("AWS_DEFAULT_REGION") and settings.get("region"):
        options["region"] = settings["region"]
    if not os.environ.get("AWS_ENDPOINT_URL") and settings.get("endpoint_url"):
        options["endpoint"] = settings["endpoint_url"]
    return options
