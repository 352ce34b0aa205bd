"""Packing: makes packed datasets of folders, tables, files of other libraries and Datasets; verifies,
indexes, unpacks and exports them."""

from fastload.packing.attach import attach, rebase
from fastload.packing.convert import convert
from fastload.packing.index import IndexSummary, index
from fastload.packing.options import PackOptions
from fastload.packing.packer import pack
from fastload.packing.summary import PackSummary
from fastload.sources import Item, Source, open_source
from fastload.sources.notices import Notice
from fastload.unpacking.export import ExportSummary, export
from fastload.unpacking.unpack import UnpackSummary, unpack
from fastload.unpacking.verify import BadSample, VerifyReport, verify

__all__ = [
    "BadSample",
    "ExportSummary",
    "IndexSummary",
    "Item",
    "Notice",
    "PackOptions",
    "PackSummary",
    "Source",
    "UnpackSummary",
    "VerifyReport",
    "attach",
    "convert",
    "export",
    "index",
    "open_source",
    "pack",
    "rebase",
    "unpack",
    "verify",
]
