"""PackSummary and Tally: the counts of a pack, which survive a crash and a resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from fastload.sources.notices import Notice, Notices, to_json
from fastload.store import Field
from fastload.store.class_counts import KEY, ClassCounts, to_summary
from fastload.store.manifest import Manifest

NAMES_KEPT = 1000
"""Limit on the kept names of samples that were skipped or decode with warnings; all are counted."""


@dataclass(frozen=True, slots=True)
class PackSummary:
    """Counts of a finished pack.

    Attributes:
        samples: samples in the dataset.
        shards: shard files written.
        bytes_in: bytes of the images in the source.
        bytes_out: bytes of the images as stored.
        attached: JPEGs left in place by `attach`.
        kept: JPEGs stored byte for byte.
        dct: JPEGs stored in the DCT form.
        stripped: JPEGs stored without metadata.
        transcoded: progressive or arithmetic JPEGs made baseline.
        rotated: JPEGs turned upright without loss.
        reencoded: images encoded again with loss.
        cmyk: CMYK or YCCK JPEGs made RGB.
        raw: images stored as pixels.
        shrunk: images made smaller.
        optimized: JPEGs given smaller Huffman tables.
        indexed: JPEGs with an entropy index.
        formats: samples by the format of their bytes.
        warnings: (name, libjpeg-turbo's text) of JPEGs that decode with warnings, at most `NAMES_KEPT`.
        warning_count: all warnings.
        skipped: (name, reason) of samples left out, at most `NAMES_KEPT`.
        skipped_count: all samples left out.
        notices: files left out and losses of images, by kind.
        layout: layout of the source, in words; "": it does not say.
        fields: fields of every sample.
        classes: names of the labels 0, 1, ...; None: they have none.
        class_counts: samples or objects of each label, by field.
        seconds: wall-clock time.
        packed_now: samples that this call packed; fewer than `samples` after a resume.
        from_cache: images of these whose bytes came from a cache folder.
    """

    samples: int = 0
    shards: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    attached: int = 0
    kept: int = 0
    dct: int = 0
    stripped: int = 0
    transcoded: int = 0
    rotated: int = 0
    reencoded: int = 0
    cmyk: int = 0
    raw: int = 0
    shrunk: int = 0
    optimized: int = 0
    indexed: int = 0
    formats: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[tuple[str, str], ...] = ()
    warning_count: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    skipped_count: int = 0
    notices: tuple[Notice, ...] = ()
    layout: str = ""
    fields: tuple[Field, ...] = ()
    classes: tuple[str, ...] | None = None
    class_counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    seconds: float = 0.0
    packed_now: int = 0
    from_cache: int = 0

    @property
    def images_per_second(self) -> float:
        """Samples that this call packed per second."""
        return self.packed_now / self.seconds if self.seconds > 0 else 0.0

    def stored(self) -> dict[str, Any]:
        """The counts that the manifest stores: all but the figures that differ from run to run."""
        left_out = ("seconds", "packed_now", "from_cache", "shards", "notices", "fields", "classes", KEY)
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        return {**found, "notices": to_json(self.notices), KEY: to_summary(self.samples, self.class_counts)}

    def of(self, manifest: Manifest) -> PackSummary:
        """The summary with the fields and classes of the dataset that was made."""
        return replace(
            self,
            fields=manifest.schema.fields,
            classes=None if manifest.classes is None else tuple(manifest.classes),
        )

    def noticed(self, kind: str) -> int:
        """The count of one kind in `notices`."""
        return sum(notice.count for notice in self.notices if notice.kind == kind)


COUNTS = (
    "attached",
    "kept",
    "dct",
    "stripped",
    "transcoded",
    "rotated",
    "reencoded",
    "cmyk",
    "raw",
    "shrunk",
    "optimized",
    "indexed",
)


class Tally:
    """Counts of a running pack. `state()` returns them as plain JSON, and `Tally(state)` continues from
    it."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        state = state or {}
        self.position: int = state.get("position", 0)
        # Samples logged; `position` is smaller if some that were left out are gone.
        self.noted: int = state.get("noted", 0)
        self.bytes_in: int = state.get("bytes_in", 0)
        self.bytes_out: int = state.get("bytes_out", 0)
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0) | dict(state.get("counts", {}))
        self.formats: dict[str, int] = dict(state.get("formats", {}))
        self.warnings: list[tuple[str, str]] = [(name, text) for name, text in state.get("warnings", [])]
        self.warning_count: int = state.get("warning_count", 0)
        self.skipped: list[tuple[str, str]] = [(name, text) for name, text in state.get("skipped", [])]
        self.skipped_count: int = state.get("skipped_count", 0)
        self.max_pixels: int = state.get("max_pixels", 0)
        self.notices = Notices.of(state.get("notices", ()))
        self.classes = ClassCounts(state.get(KEY), counted=not state or KEY in state)

    def warn(self, name: str, text: str) -> None:
        """Counts a JPEG that decodes only with warnings."""
        self.warning_count += 1
        if len(self.warnings) < NAMES_KEPT:
            self.warnings.append((name, text))

    def skip(self, name: str, reason: str) -> None:
        """Counts a sample that was skipped."""
        self.skipped_count += 1
        if len(self.skipped) < NAMES_KEPT:
            self.skipped.append((name, reason))

    def merge(self, later: Tally) -> None:
        """Adds the counts of samples that come after those counted here."""
        for name in ("position", "noted", "bytes_in", "bytes_out", "warning_count", "skipped_count"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for counts, more in ((self.counts, later.counts), (self.formats, later.formats)):
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
        self.warnings = [*self.warnings, *later.warnings][:NAMES_KEPT]
        self.skipped = [*self.skipped, *later.skipped][:NAMES_KEPT]
        self.max_pixels = max(self.max_pixels, later.max_pixels)
        self.notices.merge(later.notices)
        self.classes.merge(later.classes)

    def state(self) -> dict[str, Any]:
        """A copy of all counts, as JSON values: the writer stores it in a thread while counting goes on."""
        return {
            "position": self.position,
            "noted": self.noted,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "counts": dict(self.counts),
            "formats": dict(self.formats),
            "warnings": list(self.warnings),
            "warning_count": self.warning_count,
            "skipped": list(self.skipped),
            "skipped_count": self.skipped_count,
            "max_pixels": self.max_pixels,
            "notices": self.notices.state(),
            KEY: self.classes.state(),
        }

    def summary(
        self,
        *,
        samples: int,
        shards: int,
        seconds: float,
        packed_now: int,
        source: Iterable[Notice] = (),
        layout: str = "",
    ) -> PackSummary:
        """The frozen summary; `source` are notices on what the source itself left out, `layout` is the one
        that it has."""
        return PackSummary(
            samples=samples,
            shards=shards,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            formats=dict(sorted(self.formats.items())),
            warnings=tuple(self.warnings),
            warning_count=self.warning_count,
            skipped=tuple(self.skipped),
            skipped_count=self.skipped_count,
            notices=(*source, *self.notices.all()),
            layout=layout,
            class_counts=self.classes.known,
            seconds=seconds,
            packed_now=packed_now,
            **cast("dict[str, Any]", self.counts),
        )
