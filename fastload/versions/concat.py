"""concat: several datasets as one, which refers to their files.

Options and summaries of a manifest, joined where samples of several packs become one dataset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.packing import PackSummary
from fastload.packing.summary import NAMES_KEPT
from fastload.sources.notices import EXAMPLES, Notices, to_json
from fastload.store import DatasetReader, Manifest, Segment, ShardEntry, numbered
from fastload.store.class_counts import KEY, joined_counts
from fastload.store.entries import SIDECAR_LIMIT
from fastload.store.manifest import MANIFEST_NAME, dataset_folder, output_path
from fastload.store.progress import claim_folder
from fastload.store.shard import write_error


def joined_options(now: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The dataset's options, where those of its new samples change what holds for all."""
    both = dict(now)
    if isinstance(now.get("max_pixels"), int) and isinstance(more.get("max_pixels"), int):
        both["max_pixels"] = max(now["max_pixels"], more["max_pixels"])
    if "index" in now:
        both["index"] = bool(now["index"] and more.get("index"))
    return both


def joined_summary(now: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of two packs together, and their layouts. What is of another type than a PackSummary's is
    left as it is."""
    both = dict(now)
    for field in fields(PackSummary):
        name, mine, its = field.name, now.get(field.name), more.get(field.name)
        if name == KEY:
            both[name] = joined_counts(mine, its)
        elif isinstance(mine, int) and isinstance(its, int):
            both[name] = mine + its
        elif isinstance(mine, str) and isinstance(its, str):
            both[name] = mine if its in mine.split("; ") else f"{mine}; {its}"
        elif name == "notices":
            both[name] = _joined_notices(mine, its)
        elif isinstance(mine, list) and isinstance(its, list):
            both[name] = [*mine, *its][:NAMES_KEPT]
        elif isinstance(mine, dict) and isinstance(its, dict):
            counts = {key: value for key, value in mine.items() if isinstance(value, int)}
            both[name] = counts | {
                key: counts.get(key, 0) + value for key, value in its.items() if isinstance(value, int)
            }
        elif mine is None and its is not None:
            both[name] = its
    return both


def _joined_notices(now: object, more: object) -> list[dict[str, Any]]:
    found = {notice.kind: notice for notice in Notices.of(now).all()}
    for notice in Notices.of(more).all():
        known = found.get(notice.kind)
        if known is not None:
            examples = (*known.examples, *notice.examples)[:EXAMPLES]
            notice = replace(known, count=known.count + notice.count, examples=examples)
        found[notice.kind] = notice
    return to_json(found.values())


@dataclass(frozen=True, slots=True)
class ConcatSummary:
    """Result of `concat`.

    Attributes:
        samples: samples of the new dataset.
        shards: files that it refers to.
        bytes: their size.
    """

    samples: int
    shards: int
    bytes: int


def concat(datasets: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> ConcatSummary:
    """Makes a dataset of several that refers to their files; nothing is copied.

    The others' folders must stay where they are, relative to it. Later changes of them are not seen; `prune`,
    `index` and `pack` with overwrite=True may remove files that it needs.

    Args:
        datasets: the datasets' directories, two or more, in order.
        out: the directory to make; empty, or it does not exist.

    Raises:
        DatasetError: as in `append`.
        PackError: their fields or classes differ, or `out` cannot be written.
    """
    if len(datasets) < 2:
        raise PackError("concat makes one dataset of several: name two or more, and then the new one")
    folders = [dataset_folder(path) for path in datasets]
    manifests = [Manifest.load(folder) for folder in folders]
    if lists := [folder for folder, each in zip(folders, manifests, strict=True) if each.schema.images]:
        raise PackError(
            f"{lists[0]}: its samples have any number of images, which lie in their own dataset: read them "
            "together with torch's ConcatDataset, or pack one of all"
        )
    _check_fields(folders, manifests)
    classes = _classes(folders, manifests)
    for folder in folders:
        DatasetReader(folder).close()  # its files are there, and whole as far as opening checks it
    target = output_path(out)
    lock = _claim(target)
    try:
        here = os.path.realpath(target)
        places = [cache(partial(_place, folder=os.path.realpath(folder), here=here)) for folder in folders]
        shards = [
            _referred(shard, manifest, manifests[0], place)
            for place, manifest in zip(places, manifests, strict=True)
            for shard in manifest.shards
        ]
        options, summary = dict(manifests[0].options), dict(manifests[0].summary)
        for manifest in manifests[1:]:
            options, summary = (
                joined_options(options, manifest.options),
                joined_summary(summary, manifest.summary),
            )
        sidecars = tuple(
            replace(sidecar, folder=place(sidecar.folder))
            for place, manifest in zip(places, manifests, strict=True)
            for sidecar in manifest.sidecars
        )
        new = Manifest(
            manifests[0].schema,
            numbered(shards),
            classes,
            options,
            summary,
            1,
            sidecars[:SIDECAR_LIMIT],
            manifests[0].form,
        )
        try:
            new.write(target)
        except OSError as error:
            raise write_error(
                target / MANIFEST_NAME, len(new.to_bytes()), error, "run `fastload concat` again"
            ) from None
    finally:
        os.close(lock)
    return ConcatSummary(new.count, len(new.shards), new.bytes)


def _check_fields(folders: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    """Raises PackError unless all datasets have the same fields, in any order, and the image under the
    same number."""
    wanted = {field.name: field for field in manifests[0].schema}
    for folder, manifest in zip(folders[1:], manifests[1:], strict=True):
        given = {field.name: field for field in manifest.schema}
        for name in [*wanted, *given]:
            if wanted.get(name) != given.get(name):
                how = (
                    "is of another kind"
                    if name in wanted and name in given
                    else f"is only in {folders[0] if name in wanted else folder}"
                )
                advice = "`fastload columns` adds fields and takes them away"
                raise PackError(
                    f"{folders[0]} and {folder} do not fit together: the field {name!r} {how}; {advice}"
                )
            if what := wanted[name].other_points(given[name]):
                raise PackError(
                    f"{folders[0]} and {folder} do not fit together: the keypoints of {name!r} have "
                    f"other {what}; pack one anew"
                )
        if manifest.image_number != manifests[0].image_number:
            raise PackError(
                f"{folders[0]} and {folder} do not fit together: their images have different numbers "
                "in records; pack one anew"
            )


def _classes(folders: Sequence[Path], manifests: Sequence[Manifest]) -> tuple[str, ...] | None:
    """The names of classes, which are those of one dataset; the others' are the same or their beginning."""
    longest = max(
        (manifest.classes for manifest in manifests if manifest.classes is not None), key=len, default=None
    )
    for folder, manifest in zip(folders, manifests, strict=True):
        given = manifest.classes
        if longest is not None and (given is None or tuple(longest[: len(given)]) != tuple(given)):
            first = next(
                other for other, its in zip(folders, manifests, strict=True) if its.classes is longest
            )
            raise PackError(
                f"{first} and {folder} do not fit together: their classes differ, so a label means "
                "another class in each; pack one "
                "anew, or append its source, where classes go by their names"
            )
    return None if longest is None else tuple(longest)


def _claim(target: Path) -> int:
    """Creates and locks the new folder, and returns the lock's descriptor."""
    lock = claim_folder(target)
    held = [name for name in sorted(os.listdir(target)) if name != MANIFEST_NAME + ".tmp"]
    if held:
        os.close(lock)
        what = (
            "already holds a packed dataset"
            if MANIFEST_NAME in held
            else f"holds other files ({held[0]}, ...)"
        )
        raise PackError(f"{target} {what}; choose another OUT")
    return lock


def _place(name: str | None, folder: str, here: str) -> str:
    """A folder that the dataset in `folder` names `name`, as the one in `here` does."""
    return os.path.relpath(os.path.realpath(os.path.join(folder, name or "")), here)


def _referred(
    shard: ShardEntry, manifest: Manifest, first: Manifest, place: Callable[[str | None], str]
) -> ShardEntry:
    """A shard's entry as it is in the new dataset; `place` gives what that one names a folder that the
    manifest names."""

    def part(segment: Segment) -> Segment:
        return replace(segment, folder=place(segment.folder))

    return replace(
        shard.hiding(manifest.schema, first.schema).with_segments(part), folder=place(shard.folder)
    )
