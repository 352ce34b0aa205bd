"""Finding: the result of one check: good, bad or unknown, with what was measured and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fastload.errors import printable

Verdict = Literal["good", "bad", "unknown"]
VERDICTS: tuple[Verdict, ...] = ("good", "bad", "unknown")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: name of the check, of one or two words.
        verdict: "good"; "bad": a job would fail, or lose speed; "unknown": it could not be measured, or the
            figures do not decide.
        text: the sentence about it, with its figures.
        remedy: advice on what to do; "" where there is nothing to do.
        value: the figures, as JSON can hold them.
    """

    name: str
    verdict: Verdict
    text: str
    remedy: str = ""
    value: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON can hold it; its texts are fit for a terminal."""
        return asdict(self) | {
            "text": printable(self.text),
            "remedy": printable(self.remedy),
            "value": dict(self.value),
        }


def judged(name: str, faults: Mapping[str, str], text: str, value: Mapping[str, Any]) -> Finding:
    """A finding of several possible faults: bad where there is one, else good.

    Args:
        name: name of the check.
        faults: the faults, each with its remedy.
        text: the sentence about the figures; the faults come after it.
        value: the figures.
    """
    whole = ": ".join([text, "; ".join(faults)]) if faults else text
    return Finding(
        name,
        "bad" if faults else "good",
        whole,
        "; ".join(dict.fromkeys(filter(None, faults.values()))),
        value,
    )
