"""``fastload push``, ``fastload pull`` and ``fastload cache``."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastload.cli.options import Quiet, StorageOptions, Timeout, parsed_options, parsed_timeout
from fastload.cli.output import counted, say
from fastload.common.limits import parse_size
from fastload.common.progress import Progress, human_bytes
from fastload.common.urls import is_url, meant_url, shown
from fastload.errors import ArgumentError, DatasetError

if TYPE_CHECKING:
    from fastload.dataset.kept_folder import KeptShare

_Url = Annotated[str, typer.Argument(metavar="URL", help="s3://BUCKET/PATH, gs://, az:// or file://.")]


def push(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A packed dataset in a folder.")],
    url: _Url,
    version: Annotated[
        int | None,
        typer.Option(min=1, help="An older version; the latest by default."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another dataset at URL.")] = False,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
) -> None:
    """Uploads a packed dataset to a URL. A push that was stopped goes on."""
    from fastload.transfer import push as run

    _need_url(url)
    summary = run(
        dataset,
        url,
        version=version,
        overwrite=overwrite,
        storage_options=parsed_options(storage_options),
        timeout=parsed_timeout(timeout),
        progress=not quiet,
    )
    removed = f", {counted(summary.removed, 'old object')} removed" if summary.removed else ""
    say(
        f"{shown(url)}: {counted(summary.samples, 'sample')} in {counted(summary.files, 'object')} "
        f"of {human_bytes(summary.bytes)}; "
        f"{summary.sent_files:,} of them sent now, {human_bytes(summary.sent_bytes)}{removed}"
    )


def pull(
    url: _Url,
    out: Annotated[str, typer.Argument(metavar="OUT", help="The dataset directory to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at OUT.")] = False,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
) -> None:
    """Downloads a packed dataset from a URL, and checks every file. A pull that was stopped goes on."""
    from fastload.transfer import pull as run

    _need_url(url)
    summary = run(
        url,
        out,
        overwrite=overwrite,
        storage_options=parsed_options(storage_options),
        timeout=parsed_timeout(timeout),
        progress=not quiet,
    )
    say(
        f"{out}: {counted(summary.samples, 'sample')} in {counted(summary.files, 'file')} of "
        f"{human_bytes(summary.bytes)}; "
        f"{summary.fetched_files:,} of them downloaded now, {human_bytes(summary.fetched_bytes)}"
    )


def _is_size(given: str | None) -> str | None:
    if given is not None:
        parse_size(given, "--cache-size")
    return given


def cache(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]",
            help="A dataset to fetch, or the folder of an attached one; none: list what the cache has.",
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(help="The cache folder; FASTLOAD_CACHE, or ~/.cache/fastload."),
    ] = None,
    cache_size: Annotated[
        str | None, typer.Option(help="Most bytes of all datasets in it, such as 200GiB.", callback=_is_size)
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove URL, or all datasets that nobody uses.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Remove what is damaged of files in place."),
    ] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Give back the room of files that changed."),
    ] = False,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
) -> None:
    """Lists, fills, checks or empties the cache on the local disk."""
    from fastload.remote.caches import cached_datasets, fill_cache, remove_caches

    local = None if url is None or is_url(url) or not os.path.isdir(url) else Path(url).absolute().as_uri()
    if url is not None and local is None:
        _need_url(url)
    if cache_size is not None and (url is None or remove):
        raise ArgumentError(
            "--cache-size is for filling the cache, as in `fastload cache s3://bucket/train.fl "
            f"--cache-size {cache_size}`: leave it out"
        )
    if sum((remove, verify, prune)) > 1:
        raise ArgumentError("give one of --remove, --verify and --prune")
    if (verify or prune) and url is not None:
        raise ArgumentError("--verify and --prune are of all files in place: leave the URL out")
    if verify or prune:
        _tend(cache, prune=prune)
        return
    if remove:
        removed, used = remove_caches(local or url, cache)
        say(f"{removed:,} removed" + (f"; {used:,} in use, which stay{'s' * (used == 1)}" if used else ""))
        return
    if url is not None:
        options = parsed_options(storage_options)
        with _Filled(shown(url), quiet=quiet) as filled:
            there, count = fill_cache(url, cache, cache_size, options, filled.show, parsed_timeout(timeout))
        say(
            f"{shown(url)}: {there:,} of {counted(count, 'sample')} {'is' if count == 1 else 'are'} "
            "in the cache" + ("" if there == count else ", which has no room for more")
        )
        return
    from fastload.dataset.index_cache import is_opened
    from fastload.dataset.kept_folder import shares_of

    found = cached_datasets(cache)
    for each in found:
        say(
            f"{human_bytes(each.bytes):>10}  {each.opened:%Y-%m-%d %H:%M}  "
            f"{'in use' if each.used else '      '}  {each.url}"
        )
        for share in shares_of(each.folder):
            say(f"{'':>10}  {_opened(share) if is_opened(each.url) else _described(share)}")
    say(f"{human_bytes(sum(each.bytes for each in found)):>10}  {counted(len(found), 'dataset')}")


def _opened(share: KeptShare) -> str:
    return f"{counted(share.forms, 'file')} that a Dataset opens, in a form that decodes faster"


def _described(share: KeptShare) -> str:
    parts = [f"{share.known:,} of {counted(share.images, 'image')} known"]
    parts += [f"{share.forms:,} in a form that decodes faster"] * bool(share.forms)
    parts += [f"the files of {share.whole:,}"] * bool(share.whole)
    return ", ".join(parts)


def _tend(cache: str | None, *, prune: bool) -> None:
    """Verifies or prunes what is kept of files in place."""
    from fastload.dataset import kept_folder
    from fastload.remote.cache_folder import CacheFolder, described

    root = CacheFolder(cache)
    try:
        for folder in filter(kept_folder.has_lists, root.datasets()):
            if prune:
                with root.lock.held():
                    freed = kept_folder.prune(folder)
                say(f"{human_bytes(freed):>10} given back  {described(folder)}")
            else:
                checked, damaged = kept_folder.verify(folder)
                say(f"{checked:,} entries, {damaged:,} damaged, which were removed  {described(folder)}")
    except OSError as error:
        raise DatasetError(f"{root.path}: {error.strerror or error}") from error
    finally:
        root.close()


class _Filled(ExitStack):
    """The progress of a cache that is filled: its number of samples is known once the dataset is open."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        super().__init__()
        self._title, self._quiet = title, quiet
        self._bar: Progress | None = None

    def show(self, looked: int, count: int) -> None:
        """Shows how many samples have been looked at."""
        if self._bar is None:
            self._bar = self.enter_context(
                Progress(count, self._title, shown=not self._quiet, unit="samples")
            )
            self._bar.start(looked, 0)
        self._bar.update(looked, 0)


def _need_url(url: str) -> None:
    if not is_url(url):
        raise ArgumentError(f"{url} is no URL; write {meant_url(url) or 'it as in s3://bucket/train.fl'}")
