"""Why did a look-up give this version? The rule that chose it, and the others that it was chosen from."""

from __future__ import annotations

from collections.abc import Sequence

from registry.catalog.summaries import VersionSummary
from registry.model import DatasetVersion, Reference, VersionRequest, VersionState, VersionStatus

_WITHDRAWN = (VersionState.YANKED, VersionState.DROPPED)
_SHOWN = 5


def explain_choice(wanted: Reference, found: DatasetVersion, versions: Sequence[VersionSummary]) -> tuple[str, ...]:
    """Sentences that say why ``found`` answers ``wanted``; ``versions`` are all that its config has."""
    lines = []
    if wanted.config is None and found.config is not None:
        lines.append(f"{wanted} names no config: {found.config} is the default one of {found.name}.")
    if wanted.alias is not None:
        lines.append(f"{wanted}: the alias {wanted.alias} stands for {found.version}.")
    elif wanted.request is None:
        lines.append(f"{wanted} names no version: {found.version} is the canonical one.")
    elif wanted.request.exact is not None:
        lines.append(f"{wanted} names exactly {found.version}.")
    else:
        lines.extend(_explain_request(wanted, wanted.request, found, versions))
    if found.status is VersionStatus.EXPERIMENTAL:
        canonical = f"above the canonical version {found.canonical}" if found.canonical else "and none is canonical yet"
        lines.append(f"{found.version} is experimental, {canonical}.")
    elif found.status not in (VersionStatus.CANONICAL, VersionStatus.SUPPORTED):
        message = f": {found.state_message}" if found.state_message else ""
        lines.append(f"{found.version} is {found.status.value}{message}.")
    return tuple(lines)


def _explain_request(
    wanted: Reference, request: VersionRequest, found: DatasetVersion, versions: Sequence[VersionSummary]
) -> list[str]:
    """What a wildcard or a range allows, and what it passes over."""
    allowed = [one for one in versions if request.allows(one.version)]
    shown = ", ".join(str(one.version) for one in allowed[:_SHOWN])
    more = f" and {len(allowed) - _SHOWN} more" if len(allowed) > _SHOWN else ""
    if len(allowed) == 1:
        lines = [f"{wanted} allows {shown} alone, of {len(versions)} published."]
    else:
        lines = [f"{wanted} allows {shown}{more}: {found.version} is the highest that is neither yanked nor dropped."]
    for one in allowed:
        if one.state in _WITHDRAWN and one.version > found.version:
            message = f": {one.state_message}" if one.state_message else ""
            lines.append(f"{one.version} is passed over, it is {one.state.value}{message}.")
    return lines
