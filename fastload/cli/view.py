"""``fastload view``: a packed dataset and its transform's draws in a browser, or in one HTML file."""

from __future__ import annotations

import os
import webbrowser
from contextlib import ExitStack, closing
from typing import Annotated

import typer

from fastload.cli.looked_at import looked_at
from fastload.cli.options import StorageOptions, Timeout, parsed_options, parsed_timeout
from fastload.cli.output import counted, say
from fastload.common.files import expanded

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which one is set where a browser has a screen; without one Python would start a browser in
the terminal."""


def view(
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET", help="A packed dataset or its URL; or a folder of class folders."),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any that is free.")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    where: Annotated[str, typer.Option(help="An SQL condition: the samples shown first.")] = "",
    transform: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Transform of the draws, such as train:transform; RandomResizedCrop(224) and a flip.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="First epoch of the draws.")] = 0,
    html: Annotated[
        str | None,
        typer.Option(metavar="OUT", help="Write the first samples as one HTML file, and serve nothing."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=1, help="An older version; the latest by default.")
    ] = None,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
) -> None:
    """Shows a packed dataset in a browser: samples and a search by where(), masks, boxes and points,
    histograms, and what a transform makes of a sample in each epoch."""
    from fastload.view.draws import transform_of
    from fastload.view.opening import open_subject
    from fastload.view.report import write_report
    from fastload.view.subject import PageSettings

    made = None if transform is None else transform_of(transform)
    settings = PageSettings(where, made, transform or "", seed, epoch)
    with looked_at(dataset) as path, ExitStack() as opened:
        options = parsed_options(storage_options), parsed_timeout(timeout)
        subject = open_subject(path, settings, version, *options, name=dataset)
        opened.enter_context(closing(subject))
        if html is not None:
            say(f"{counted(write_report(subject, expanded(html)), 'sample')}: {html}")
            return
        from fastload.view.server import PageServer

        with PageServer(subject, port) as server:
            say(server.address)
            say("Ctrl-C ends it; who has the address sees the dataset", err=True)
            if not no_browser and any(os.environ.get(name) for name in _SCREENS):
                webbrowser.open(server.ticket)
            server.wait()
