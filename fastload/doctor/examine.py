"""examine: all checks, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.doctor.dataset import dataset_findings
from fastload.doctor.files import open_files
from fastload.doctor.finding import Finding
from fastload.doctor.job import Job
from fastload.doctor.memory import memory_findings
from fastload.doctor.processors import processor_findings
from fastload.doctor.software import software_findings


def examine(job: Job) -> Iterator[Finding]:
    """The findings about a machine, and about the job's dataset if it has one; each as soon as it is there.
    It takes some seconds, and up to 64 MB of the dataset are read beside what measures the disk. Nothing is
    raised for what is wrong."""
    yield from processor_findings(job)
    yield from memory_findings(job)
    yield from software_findings()
    if job.dataset is None:
        yield open_files(job)
    else:
        yield from dataset_findings(job, job.dataset)
