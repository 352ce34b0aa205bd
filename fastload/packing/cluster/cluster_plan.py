"""ClusterPlan: what a task has to know to make any shard of a pack, and how a process of the cluster opens its source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastload.common.files import expanded
from fastload.errors import FastloadError, PackError
from fastload.packing.job import PackJob
from fastload.packing.options import PackOptions, SourceOptions
from fastload.packing.sources import Source, open_source, protocol
from fastload.store import Schema

PROBES = 100
"""Samples that the driver tries for one that it can read, and that every process of the cluster has to read too."""


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
        """Opens the source, in a process that packs nothing else. Raises as `open_source` does, or OSError."""
        paths = self.source if isinstance(self.source, list) else [self.source]
        if any(isinstance(path, str) and not os.path.isabs(path) for path in paths) and os.getcwd() != self.folder:
            os.chdir(self.folder)  # not absolute paths instead: messages and the summary name samples as the user named the source
        return open_source(self.source, self.options)


@dataclass(frozen=True)
class ClusterPlan:
    """One pack on a cluster. It is sent to every process that works for it.

    Attributes:
        spec: the source.
        options: options by which samples become records.
        samples: number of samples in a shard.
        threads: number of threads of a task.
        out: the shared folder, absolute, or the URL.
        staging: the folder of each node in which shards for a URL are made; None: the system's for temporary files.
        offset: number in the name of the first shard.
        token: token of the driver's run.
        identity: digest of options and fields, which done-records name.
        digest: digest of the names of the source's samples.
        probe: position of a sample that the driver could read; -1: there was none.
        storage_options: options of the URL's store. They may be secret, and go to the tasks only.
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
    digest: str
    probe: int
    storage_options: Mapping[str, object] | None = field(default=None, repr=False)


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


def open_job(plan: ClusterPlan, node: str) -> PackJob:
    """The job of a plan, in a process of the node `node`.

    Raises:
        PackError: the node does not see the source that the driver sees.
    """
    again = "every node has to see the source under the same path: put it on a file system that all nodes share"
    try:
        job = PackJob(plan.spec.open(), plan.options)
        if plan.probe >= 0 and plan.probe < len(job.source):
            job.source.read(plan.probe)
    except (FastloadError, OSError) as error:
        raise PackError(f"node {node} cannot read the source, which the driver can ({error}): {again}") from error
    if job.identity()["source_digest"] != plan.digest:
        raise PackError(f"{job.source.title} has other samples on node {node} than where the driver runs: {again}")
    return job


def absolute(out: str | os.PathLike[str]) -> Path:
    """The absolute path of a folder."""
    return Path(os.path.abspath(expanded(out)))
