"""``fastload info``, ``fastload verify``, ``fastload index``, ``fastload unpack``, ``fastload export``."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from fastload.cli.cost import cost_document, prices, show_cost
from fastload.cli.options import LocalDataset, StorageOptions, Timeout, parsed_options, parsed_timeout
from fastload.cli.output import counted, say, say_filled, say_json, shortened
from fastload.common.files import expanded
from fastload.common.urls import is_url, shown
from fastload.errors import ArgumentError, DatasetError, printable
from fastload.sources.options import OnError
from fastload.store import DatasetReader, Manifest, old_versions
from fastload.store.class_counts import Counts, class_counts, class_lines
from fastload.store.entries import base_path
from fastload.store.lists import images_path
from fastload.unpacking.folder import Layout

_Anywhere = Annotated[
    str, typer.Argument(metavar="DATASET", help="A packed dataset: its folder, or its URL.")
]
_Version = Annotated[
    int | None,
    typer.Option(min=1, help="An older version; the latest by default."),
]
_Workers = Annotated[int | None, typer.Option(min=1, help="Threads; the usable CPUs by default.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def info(
    dataset: _Anywhere,
    everything: Annotated[bool, typer.Option("--all", help="All lines, not the first ten.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    version: _Version = None,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Requests, bytes and money of an epoch from a bucket."),
    ] = False,
    cache_size: Annotated[
        str | None,
        typer.Option(
            help="With --cost: bytes of the cache, as 200GiB; some sizes by default.", metavar="SIZE"
        ),
    ] = None,
    price_requests: Annotated[
        float | None,
        typer.Option(min=0, help="With --cost: your price of 1,000 GET requests."),
    ] = None,
    price_gib: Annotated[
        float | None, typer.Option(min=0, help="With --cost: your price of a GiB that leaves the cloud.")
    ] = None,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
) -> None:
    """Shows what a packed dataset holds, in a folder or at a URL."""
    if not cost and any(each is not None for each in (cache_size, price_requests, price_gib)):
        raise ArgumentError("--cache-size, --price-requests and --price-gib are for --cost")
    options, seconds = parsed_options(storage_options), parsed_timeout(timeout)
    manifest = _manifest(dataset, version, options, seconds)
    images = None
    if manifest.schema.images is not None:
        images = _manifest(images_path(dataset), None, options, seconds)
    dataset = shown(dataset) if is_url(dataset) else dataset
    known = prices(price_requests, price_gib)
    read = manifest if images is None else images
    if as_json:
        found = _document(dataset, manifest) | (
            {"cost": cost_document(read, cache_size, known)} if cost else {}
        )
        more = {} if images is None else {"images": _document(images_path(dataset), images)}
        say_json(found | more)
    elif cost:
        show_cost(read, cache_size, known)
    else:
        _show(dataset, manifest, images, everything=everything)


def _manifest(
    dataset: str, version: int | None, options: Mapping[str, object] | None, timeout: float
) -> Manifest:
    if not is_url(dataset):
        return Manifest.load(dataset, version)
    from fastload.remote.client import open_objects
    from fastload.remote.manifest import load_manifest

    with closing(open_objects(dataset, options, timeout)) as objects:
        return load_manifest(objects, version)


def _document(dataset: str, manifest: Manifest) -> dict[str, Any]:
    return {
        "path": dataset,
        "version": manifest.version,
        "versions": _versions(dataset, manifest),
        "samples": manifest.count,
        "bytes": manifest.bytes,
        "fields": manifest.schema.to_json(),
        "classes": None if manifest.classes is None else list(manifest.classes),
        "shards": [shard.to_json() for shard in manifest.shards],
        "options": dict(manifest.options),
        "summary": dict(manifest.summary),
    }


def _versions(dataset: str, manifest: Manifest) -> list[int]:
    """Numbers of the versions that can be read."""
    if is_url(dataset):
        return [manifest.version]
    folder = Path(expanded(dataset))
    now = Manifest.load(folder).version
    return [*old_versions(folder, now), now] if now > 1 else [manifest.version]


_LINES = 10
"""Lines that `info` shows without --all."""
_COLUMN = 22
_SUMMED = {"bytes_in": "images read", "bytes_out": "images stored"}


def _show(dataset: str, manifest: Manifest, images: Manifest | None, *, everything: bool) -> None:
    """Prints what a dataset holds: ten lines, each as wide as the terminal, or all of it. `images`: the
    manifest of its images of any number."""
    rows = _rows(dataset, manifest)
    if images is not None:
        rows.insert(2, ("images", f"{images.count:,}, {_size(images)}, in {images_path(dataset)}"))
    say(dataset)
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    if everything:
        for label, text in rows:
            say_filled(label, printable(text), width, _COLUMN)
        return
    fitting = rows if len(rows) < _LINES else rows[: _LINES - 2]
    for label, text in fitting:
        say(f"  {printable(label).ljust(_COLUMN - 2)}{shortened(printable(text), width - _COLUMN)}")
    if len(fitting) < len(rows):
        say(
            f"{counted(len(rows) - len(fitting), 'line')} more: "
            f"{shlex.join(['fastload', 'info', '--all', dataset])}"
        )


def _size(manifest: Manifest) -> str:
    from fastload.common.progress import human_bytes

    return f"{human_bytes(manifest.bytes)} in {counted(len(manifest.shards), 'shard')}"


def _rows(dataset: str, manifest: Manifest) -> list[tuple[str, str]]:
    """Facts about a dataset, as names and texts; those that most people look for come first."""
    from fastload.common.progress import human_bytes
    from fastload.sources.notices import Notices

    versions = _versions(dataset, manifest)
    rows = [
        ("samples", f"{manifest.count:,}"),
        ("size", _size(manifest)),
    ]
    if len(versions) > 1 or manifest.version > 1:
        rows.append(("version", f"{manifest.version} of {', '.join(map(str, versions))}"))
    bases = {
        base for shard in manifest.shards if (base := base_path(Path(dataset).absolute(), shard)) is not None
    }
    rows += [("images attached, in", base) for base in sorted(bases)]
    if isinstance(layout := manifest.summary.get("layout"), str) and layout:
        rows.append(("layout", layout))
    rows += class_lines(manifest.schema, manifest.classes, _counts(dataset, manifest))
    rows += [(f"field {field.name}", field.describe()) for field in manifest.schema]
    for name, value in manifest.summary.items():
        if isinstance(value, int) and value and name != "samples":  # of the first pack, before versions
            rows.append(
                (
                    _SUMMED.get(name, name.replace("_", " ")),
                    human_bytes(value) if name in _SUMMED else f"{value:,}",
                )
            )
    rows += [
        (notice.text, f"{notice.count:,}") for notice in Notices.of(manifest.summary.get("notices")).all()
    ]
    return rows + [(f"packed with {name}", str(value)) for name, value in manifest.options.items()]


def _counts(dataset: str, manifest: Manifest) -> Counts:
    """Numbers of samples and objects of each class: those in the manifest, or of labels on this disk those
    in their column."""
    if is_url(dataset):
        return class_counts(manifest)
    try:
        with DatasetReader(dataset, manifest.version) as reader:
            return class_counts(manifest, reader)
    except DatasetError:  # `info` shows what the manifest says, `verify` what is wrong
        return class_counts(manifest)


def verify(
    dataset: _Anywhere,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image too.")] = False,
    version: _Version = None,
    workers: _Workers = None,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
    quiet: _Quiet = False,
) -> None:
    """Checks a packed dataset: files, checksums, every record. Exit code 1 and a list when something does not
    hold."""
    from fastload.unpacking.verify import verify as run

    report = run(
        dataset,
        decode=decode,
        version=version,
        workers=workers,
        progress=not quiet,
        storage_options=parsed_options(storage_options),
        timeout=parsed_timeout(timeout),
    )
    dataset = shown(dataset) if is_url(dataset) else dataset
    for problem in report.problems:
        say(problem)
    for sample in report.bad:
        say(f"sample {sample.index} ({sample.shard}): {sample.reason}")
    one = report.samples == 1
    warned = (
        f", {report.warnings:,} decode{'s' * (report.warnings == 1)} only with warnings"
        if report.warnings
        else ""
    )
    if report.decoded:
        what = "every image decoded"
    else:
        what = "checksums and records" if report.records else "checksums of all objects"
    if report.unchecked and report.unchecked == report.samples:
        say(
            f"{dataset}: its files do not open; none of its {counted(report.unchecked, 'sample')} "
            "could be checked"
        )
        raise typer.Exit(1)
    if report.unchecked:
        say(
            f"{dataset}: {counted(report.unchecked, 'sample')} could not be checked, since their "
            "files do not hold"
        )
    if not report.ok:
        files = counted(len(report.problems), "file")
        say(f"{dataset}: {len(report.bad):,} of {counted(report.samples, 'sample')} bad, {files} bad{warned}")
        raise typer.Exit(1)
    say(
        f"{dataset}: {counted(report.samples, 'sample')} in {counted(report.shards, 'shard')} "
        f"hold{'s' * one} ({what}{warned})"
    )


def index(dataset: LocalDataset, workers: _Workers = None, quiet: _Quiet = False) -> None:
    """Adds the entropy index to a dataset packed without it, and the sidecar by which it opens fast."""
    from fastload.packing.index import index as run

    summary = run(dataset, workers=workers, progress=not quiet)
    say(
        f"{dataset}: {summary.indexed:,} of {counted(summary.jpegs, 'JPEG')} "
        f"{'has' if summary.jpegs == 1 else 'have'} an entropy index, "
        f"{summary.added:,} of them new; "
        f"{counted(summary.shards, 'shard')} written anew"
    )


def unpack(
    dataset: LocalDataset,
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A folder that is empty, does not exist, or holds a stopped unpack."
        ),
    ],
    layout: Annotated[
        Layout | None,
        typer.Option(
            help=(
                "Layout of the files; by default coco or pairs where they lose no field, else folders, "
                "which holds all."
            )
        ),
    ] = None,
    workers: _Workers = None,
    quiet: _Quiet = False,
) -> None:
    """Writes images, masks and all other fields as files again, in a layout that `fastload pack` reads."""
    from fastload.common.progress import human_bytes
    from fastload.unpacking.unpack import unpack as run

    summary = run(dataset, folder, layout=layout, workers=workers, progress=not quiet)
    kinds = {
        "coco": "in COCO's layout",
        "pairs": "in folders of images and masks",
        "folders": f"in {counted(summary.folders, 'class folder')}",
    }
    say(f"{counted(summary.files, 'file')}, {human_bytes(summary.bytes)}, {kinds[summary.layout]}: {folder}")
    if summary.renumbered:
        say(
            "note: ImageFolder numbers classes by the names of their folders: it gives other labels "
            "than the dataset's"
        )


def export(
    dataset: LocalDataset,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to write: a .tar (WebDataset) or a .parquet.")
    ],
    where: Annotated[
        str | None, typer.Option(help="An SQL condition over the fields: only samples for which it is true.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
    on_error: Annotated[
        OnError, typer.Option(help="At a sample that cannot be read: stop, or leave it out and name it.")
    ] = "raise",
    workers: _Workers = None,
    quiet: _Quiet = False,
) -> None:
    """Writes all fields as one file that other programs and `fastload pack` read: a WebDataset tar, or
    Parquet."""
    from fastload.common.progress import human_bytes
    from fastload.unpacking.export import export as run

    summary = run(
        dataset,
        file,
        where=where,
        overwrite=overwrite,
        on_error=on_error,
        workers=workers,
        progress=not quiet,
    )
    for sample in summary.skipped:
        say(f"left out: sample {sample.index} ({sample.shard}): {sample.reason}")
    left_out = f", {len(summary.skipped):,} left out" if summary.skipped else ""
    say(f"{counted(summary.samples, 'sample')}, {human_bytes(summary.bytes)}{left_out}: {file}")
