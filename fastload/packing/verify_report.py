"""VerifyReport and BadSample: what `fastload verify` found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BadSample:
    """One damaged sample.

    Attributes:
        index: its index in the dataset.
        shard: the file that holds it.
        reason: what is wrong with it.
    """

    index: int
    shard: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of `verify`.

    Attributes:
        samples: samples that the manifest names.
        shards: shards that the manifest names.
        bytes: size of the shards.
        problems: descriptions of what is wrong with files; () if nothing is.
        bad: damaged samples.
        warnings: samples whose JPEG decodes only with libjpeg warnings (counted with decode=True).
        decoded: whether every picture was decoded.
        unchecked: samples that were not checked, because the files cannot be opened.
        records: whether each record was checked, not only the files; of a URL only where every picture was decoded.
    """

    samples: int
    shards: int
    bytes: int
    problems: tuple[str, ...]
    bad: tuple[BadSample, ...]
    warnings: int
    decoded: bool
    unchecked: int = 0
    records: bool = True

    @property
    def ok(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems and not self.bad
