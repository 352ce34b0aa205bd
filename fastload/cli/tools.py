"""``fastload info``, ``fastload verify``, ``fastload index``, ``fastload unpack``, ``fastload export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fastload.cli.output import say
from fastload.files import expanded
from fastload.packing.options import OnError
from fastload.printable import cell
from fastload.store import Manifest, old_versions
from fastload.store.entries import base_path

_Dataset = Annotated[str, typer.Argument(metavar="OUT", help="A packed dataset.")]
_Version = Annotated[int | None, typer.Option(min=1, help="An older version of a dataset that was changed; the latest by default.")]
_Workers = Annotated[int | None, typer.Option(min=1, help="Threads; the usable CPUs by default.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def info(
    dataset: _Dataset,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    version: _Version = None,
) -> None:
    """Shows what a packed dataset holds."""
    manifest = Manifest.load(dataset, version)
    if as_json:
        typer.echo(json.dumps(_document(dataset, manifest), indent=2, ensure_ascii=True))
    else:
        _show(dataset, manifest)


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
    folder = Path(expanded(dataset))
    now = Manifest.load(folder).version
    return [*old_versions(folder, now), now] if now > 1 else [manifest.version]


def _show(dataset: str, manifest: Manifest) -> None:
    from rich.console import Console
    from rich.table import Table

    from fastload.packing.notices import Notices
    from fastload.packing.progress import human_bytes

    table = Table(title=cell(dataset), show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    versions = _versions(dataset, manifest)
    if len(versions) > 1 or manifest.version > 1:
        table.add_row("version", f"{manifest.version} of {', '.join(map(str, versions))}")
    table.add_row("samples", f"{manifest.count:,}")
    table.add_row("size", f"{human_bytes(manifest.bytes)} in {len(manifest.shards):,} shards")
    for base in sorted({base for shard in manifest.shards if (base := base_path(Path(dataset).absolute(), shard)) is not None}):
        table.add_row("images attached, in", cell(base))
    for field in manifest.schema:
        shape = " x ".join(map(str, field.shape))
        kind = f"{field.kind} {field.dtype} {shape}".strip() if field.kind == "array" else field.kind
        table.add_row(f"field {cell(field.name)}", kind)
    classes = manifest.classes
    if classes is not None:
        more = ", ..." if len(classes) > 8 else ""
        table.add_row("classes", cell(f"{len(classes):,}: {', '.join(classes[:8])}{more}"))
    for name, value in manifest.options.items():
        table.add_row(f"packed with {cell(name)}", cell(str(value)))
    for name, value in manifest.summary.items():
        if isinstance(value, int) and value:
            table.add_row(cell(name.replace("_", " ")), f"{value:,}")
    for notice in Notices.of(manifest.summary.get("notices")).all():
        table.add_row(cell(notice.text), f"{notice.count:,}")
    Console().print(table)


def verify(
    dataset: _Dataset,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image too.")] = False,
    version: _Version = None,
    workers: _Workers = None,
    quiet: _Quiet = False,
) -> None:
    """Checks a packed dataset: files, checksums, every record. Exit code 1 and a list when something does not hold."""
    from fastload.packing.verify import verify as run

    report = run(dataset, decode=decode, version=version, workers=workers, progress=not quiet)
    for problem in report.problems:
        say(problem)
    for sample in report.bad:
        say(f"sample {sample.index} ({sample.shard}): {sample.reason}")
    warned = f", {report.warnings:,} decode only with warnings" if report.warnings else ""
    what = "every image decoded" if report.decoded else "checksums and records"
    if report.unchecked:
        say(f"{dataset}: its files do not open; none of its {report.unchecked:,} samples could be checked")
        raise typer.Exit(1)
    if not report.ok:
        say(f"{dataset}: {len(report.bad):,} of {report.samples:,} samples bad, {len(report.problems)} files bad{warned}")
        raise typer.Exit(1)
    say(f"{dataset}: {report.samples:,} samples in {report.shards:,} shards hold ({what}{warned})")


def index(dataset: _Dataset, workers: _Workers = None, quiet: _Quiet = False) -> None:
    """Adds to a packed dataset what packing adds now: the entropy index, and the sidecar by which it opens fast. It may be stopped and run
    again at any time."""
    from fastload.packing.index import index as run

    try:
        summary = run(dataset, workers=workers, progress=not quiet)
    except KeyboardInterrupt:
        say(f"fastload: stopped; {dataset} is whole, and fastload index goes on with it", err=True)
        raise typer.Exit(130) from None
    say(
        f"{dataset}: {summary.indexed:,} of {summary.jpegs:,} JPEGs have an entropy index, {summary.added:,} of them new; "
        f"{summary.shards:,} shards written anew"
    )


def unpack(
    dataset: _Dataset,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder that is empty or does not exist.")],
    workers: _Workers = None,
    quiet: _Quiet = False,
) -> None:
    """Writes the stored images as files again, one folder a class."""
    from fastload.packing.progress import human_bytes
    from fastload.packing.unpack import unpack as run

    summary = run(dataset, folder, workers=workers, progress=not quiet)
    say(f"{summary.files:,} images, {human_bytes(summary.bytes)}, in {summary.folders:,} class folders: {folder}")


def export(
    dataset: _Dataset,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to write: a .tar (WebDataset) or a .parquet.")],
    where: Annotated[str | None, typer.Option(help="An SQL condition over the fields: only samples for which it is true.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
    on_error: Annotated[OnError, typer.Option(help="At a sample that cannot be read: stop, or leave it out and name it.")] = "raise",
    workers: _Workers = None,
    quiet: _Quiet = False,
) -> None:
    """Writes images and all fields as one file that other programs read: a WebDataset tar, or Parquet."""
    from fastload.packing.export import export as run
    from fastload.packing.progress import human_bytes

    summary = run(dataset, file, where=where, overwrite=overwrite, on_error=on_error, workers=workers, progress=not quiet)
    for sample in summary.skipped:
        say(f"left out: sample {sample.index} ({sample.shard}): {sample.reason}")
    left_out = f", {len(summary.skipped):,} left out" if summary.skipped else ""
    say(f"{summary.samples:,} samples, {human_bytes(summary.bytes)}{left_out}: {file}")
