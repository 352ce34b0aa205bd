"""The table that ends a pack, an attach, a convert or an append, and the names that someone should look
at."""

from __future__ import annotations

from fastload.cli.output import say
from fastload.errors import cell
from fastload.packing.summary import PackSummary
from fastload.store.class_counts import class_lines

_LINES = (
    ("attached", "file left where it is"),
    ("kept", "file kept byte for byte"),
    ("dct", "JPEG in the DCT form"),
    ("stripped", "JPEG, metadata dropped"),
    ("transcoded", "progressive or arithmetic JPEG made baseline"),
    ("rotated", "JPEG turned upright without loss"),
    ("cmyk", "CMYK JPEG made RGB (quality 100, 4:4:4)"),
    ("reencoded", "encoded anew, with loss"),
    ("raw", "stored as pixels"),
    ("shrunk", "shrunk"),
    ("optimized", "JPEG, Huffman tables optimised"),
    ("indexed", "JPEG with an entropy index"),
    ("from_cache", "file taken from the cache"),
)


def show(summary: PackSummary, out: str, done: str = "packed") -> None:
    """Prints the table that ends a pack, and the names that someone should look at."""
    from rich.console import Console
    from rich.table import Table

    from fastload.common.progress import human_bytes

    table = Table(title=f"{done} {cell(out)}", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    if summary.layout:
        table.add_row("layout", cell(summary.layout))
    for field in summary.fields:
        table.add_row(f"field {cell(field.name)}", cell(field.describe()))
    for what, text in class_lines(summary.fields, summary.classes, summary.class_counts):
        table.add_row(cell(what), cell(text))
    table.add_row("samples", f"{summary.samples:,}")
    table.add_row("shards", f"{summary.shards:,}")
    table.add_row("images read", human_bytes(summary.bytes_in))
    table.add_row("images stored", human_bytes(summary.bytes_out))
    for name, count in summary.formats.items():
        table.add_row(f"format {cell(name)}", f"{count:,}")
    for attribute, text in _LINES:
        if count := getattr(summary, attribute):
            table.add_row(text, f"{count:,}")
    if summary.warning_count:
        table.add_row("JPEG that decodes only with warnings", f"{summary.warning_count:,}")
    if summary.skipped_count:
        table.add_row("left out", f"{summary.skipped_count:,}")
    table.add_row("time", f"{summary.seconds:.1f} s")
    Console().print(table)
    for what, names, count in (
        ("decodes only with warnings", summary.warnings, summary.warning_count),
        ("left out", summary.skipped, summary.skipped_count),
    ):
        for name, reason in names[:20]:
            say(f"{what}: {name}: {reason}")
        if count > 20:
            say(f"{what}: {count - 20:,} more; fastload info --json lists them")
    for notice in summary.notices:
        shown = ", ".join(notice.examples[:3]) + (", ..." if notice.count > 3 else "")
        say(f"note: {notice.count:,} {notice.text}: {shown}")
