"""Packing: converts folders, tables, files of other libraries and Datasets to packed datasets; verifies, indexes and unpacks them."""

from fastload.packing.export import ExportSummary, export
from fastload.packing.index import IndexSummary, index
from fastload.packing.notices import Notice
from fastload.packing.options import PackOptions
from fastload.packing.packer import pack
from fastload.packing.sources import Item, Source, open_source
from fastload.packing.summary import PackSummary
from fastload.packing.unpack import UnpackSummary, unpack
from fastload.packing.verify import BadSample, VerifyReport, verify

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
    "export",
    "index",
    "open_source",
    "pack",
    "unpack",
    "verify",
]
