"""ClusterPlan: what a task has to know to make any shard of a pack, and how a process of the cluster opens
its source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastload.common.files import expanded
from fastload.common.urls import is_url
from fastload.errors import FastloadError, PackError
from fastload.packing.cluster.parts import Part, source_of
from fastload.packing.job import PackJob
from fastload.packing.options import PackOptions
from fastload.sources import Source, open_source, protocol
from fastload.sources.options import SourceOptions
from fastload.sources.protocol import Listed
from fastload.store import Schema

_AGAIN = "every node has to see the source under the same path: put it on a file system that all nodes share"
PROBES = 100
"""Samples that the driver tries for one that it can read, and that every process of the cluster has to
read too."""


@dataclass(frozen=True)
class SourceSpec:
    """The user's SRC, for a process on another node.

    Attributes:
        source: a path, a list of paths, or an object that is sent by pickle.
        options: options for reading it.
        folder: the driver's working directory, to which relative paths refer.
    """

    source: object
    options: SourceOptions
    folder: str

    @classmethod
    def of(cls, source: object, options: SourceOptions) -> SourceSpec:
        """The spec of a source as `pack` takes it."""
        if isinstance(source, str | os.PathLike):
            source = expanded(source)
        elif isinstance(source, list | tuple) and all(isinstance(each, str | os.PathLike) for each in source):
            source = [expanded(each) for each in source]
        return cls(source, options, os.getcwd())

    def open(self) -> Source:
        """Opens the source, in a process that packs nothing else. Raises as `open_source` does, or
        OSError."""
        self.enter()
        return open_source(self.source, self.options)

    def enter(self) -> None:
        """Makes the driver's working directory that of this process, if the source has relative paths.
        Raises OSError."""
        paths = self.source if isinstance(self.source, list) else [self.source]
        if (
            any(isinstance(path, str) and not (os.path.isabs(path) or is_url(path)) for path in paths)
            and os.getcwd() != self.folder
        ):
            os.chdir(
                self.folder
                # Not absolute paths instead: messages and the summary name samples as the user named the
                # source
            )


@dataclass(frozen=True)
class ClusterPlan:
    """One pack on a cluster. It is sent to every process that works for it.

    Attributes:
        spec: the source.
        options: options by which samples become records.
        samples: number of samples in a shard.
        threads: number of threads of a task.
        out: the shared folder, absolute, or the URL.
        staging: the folder of each node in which shards for a URL are made; None: the system's for temporary
            files.
        offset: number in the name of the first shard.
        token: token of the driver's run.
        identity: digest of options and fields, which done-records name.
        probe: position of a sample that the driver could read; -1: there was none.
        listed: the source, of a kind that lists its samples, with the row of that sample alone; None: each
            process opens the source.
        storage_options: options of the URL's store. They may be secret, and go to the tasks only.
        timeout: seconds within which a request to it is tried again; None: 60.
    """

    spec: SourceSpec
    options: PackOptions
    samples: int
    threads: int
    out: str
    staging: str | None
    offset: int
    token: str
    identity: str
    probe: int
    listed: Source | None = None
    storage_options: Mapping[str, object] | None = field(default=None, repr=False)
    timeout: float | str | None = None


def schema_of(job: PackJob) -> Schema:
    """The fields of the dataset that a job makes."""
    return protocol.schema_of(job.source)


def probe(job: PackJob) -> int:
    """The first position of a source at which a sample can be read; -1 if none of the first `PROBES` can."""
    for position in range(min(PROBES, len(job.source))):
        try:
            job.source.read(position)
        except (FastloadError, OSError):
            continue
        return position
    return -1


def listed(job: PackJob, probe: int) -> Source | None:
    """The source of a job with no row but that of the sample at `probe`; None if it is not `Listed`."""
    if not isinstance(job.source, Listed):
        return None
    positions = [probe] if probe >= 0 else []
    return job.source.with_rows(positions, job.source.rows(positions))


def open_whole(plan: ClusterPlan, node: str) -> Source:
    """The source of a plan, in a process of the node `node`: a `Listed` one without its samples, which come
    with each range.

    Raises:
        PackError: the node cannot read the source, which the driver can.
    """
    try:
        source = plan.listed if plan.listed is not None else plan.spec.open()
        plan.spec.enter()
        if 0 <= plan.probe < len(source):
            source.read(plan.probe)
    except (FastloadError, OSError) as error:
        raise PackError(
            f"node {node} cannot read the source, which the driver can ({error}): {_AGAIN}"
        ) from error
    return source


def open_job(plan: ClusterPlan, node: str, part: Part, whole: Source) -> PackJob:
    """The job of a part of a plan, of the source that `open_whole` has opened.

    Raises:
        PackError: the node sees other samples in the source than the driver.
    """
    if part.most >= len(whole):
        raise other_samples(whole.title, node)
    job = PackJob(source_of(part, whole), plan.options, ordered=True)
    if job.digest != part.digest:
        raise other_samples(whole.title, node)
    return job


def other_samples(title: str, node: str) -> PackError:
    """The error of a node that sees other samples in the source than the driver."""
    return PackError(f"{title} has other samples on node {node} than where the driver runs: {_AGAIN}")


def absolute(out: str | os.PathLike[str]) -> Path:
    """The absolute path of a folder."""
    return Path(os.path.abspath(expanded(out)))
