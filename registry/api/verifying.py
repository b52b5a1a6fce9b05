"""Every published version against its files, one after the other: one that fails never stops the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from registry.errors import CatalogError, RegistryError
from registry.model import Reference, VersionState

if TYPE_CHECKING:  # numpy is loaded when something is verified
    from registry.api.catalog import Catalog
    from registry.publishing import Advance, VerifyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedVersion:
    """What became of verifying one version: a report, or the error that prevented one."""

    reference: Reference
    state: VersionState
    report: VerifyReport | None = None
    error: RegistryError | None = None

    @property
    def is_sound(self) -> bool:
        """Whether every shard is as it was published."""
        return self.report is not None and not self.report.faults


def verify_all(catalog: Catalog, *, deep: bool, advance: Advance | None) -> Iterator[VerifiedVersion]:
    """Verify every version that is not dropped, yanked ones too, by dataset, the highest first.

    Raises:
        CatalogError: the catalog itself does not answer; anything else is the ``error`` of one version.
    """
    for dataset in catalog.datasets():
        for one in catalog.versions(dataset.name, dataset.config):
            if one.state is VersionState.DROPPED:
                continue
            reference = Reference.exactly(one.name, one.config, one.version)
            try:
                report = catalog.look_up(reference).verify(deep=deep, advance=advance)
            except CatalogError:
                raise
            except RegistryError as error:
                yield VerifiedVersion(reference=reference, state=one.state, error=error)
            else:
                yield VerifiedVersion(reference=reference, state=one.state, report=report)
