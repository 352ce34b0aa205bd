"""The document of `fastload tune` as lines of 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fastload.bench.report import disturbance
from fastload.errors import printable
from fastload.tune.choose import WORTH
from fastload.tune.trials import COMPARED, Json


def lines(document: Json) -> Iterator[str]:
    """The tables, the settings that were not tried, and the line of code to paste; each line printable."""
    yield f"{'':<16}{'samples/s':>10}  of the choice (margin)"
    for trial in document["trials"]:
        yield trial["setting"]
        for row in trial["values"]:
            rate = f"{row['samples_per_s']:>10,.0f}"
            yield f"  {row['value']!s:<14}{rate}  {_share(row):<24}{row['verdict']}".rstrip()
    for name, reason in document["skipped"].items():
        yield printable(f"not tried: {name}: {reason}")
    yield (
        f"Margins hold together at 95 % for each setting; less than {WORTH - 1:.0%} counts as no difference."
    )
    if any(
        row["margin"] is None and row["of_chosen"] is not None
        for trial in document["trials"]
        for row in trial["values"]
    ):
        yield "Where it is not known, there were too few rounds for a margin: give more --seconds."
    if (warning := disturbance([document])) is not None:
        yield warning
    yield ""
    advice = document["advice"]
    if any(trial["setting"] == COMPARED and trial["chosen"] == "defaults" for trial in document["trials"]):
        yield "The choices together were not shown to be as good as the defaults, which stay:"
    elif not advice["arguments"]:
        yield "Nothing was shown to be better than the defaults:"
    yield printable(advice["line"])
    if advice["cache_share"] is not None:
        yield (
            f"A cache (cache_size) of {advice['cache_share']:.0%} of the dataset is as good as one of "
            "all of it."
        )
    if advice["convert"] is not None:
        yield "The form of the stored JPEGs that is faster, with the same pixels:"
        yield printable(shlex.join(advice["convert"]))


def _share(row: Json) -> str:
    if row["of_chosen"] is None or row["verdict"] == "chosen":
        return ""
    if row["margin"] is None:
        return f"{row['of_chosen']:.2f}"
    low, high = row["margin"]
    return f"{row['of_chosen']:.2f} ({low:.2f} to {high:.2f})"
