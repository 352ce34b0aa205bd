"""Document: the result of `fastload tune`, as JSON can hold it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastload.bench import measure
from fastload.tune.caches import CACHE, SHARES
from fastload.tune.forms import ENCODES, FORM
from fastload.tune.trials import SCHEMA, Arguments, Json, Trial


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of all trials of a loader.

    Attributes:
        trials: the trials, in their order.
        arguments: the arguments that are advised.
        skipped: the reason for each setting that was not tried.
        others_share: share of the machine's CPU time that other processes took meanwhile; None: unknown.
    """

    trials: Sequence[Trial]
    arguments: Arguments
    skipped: Mapping[str, str]
    others_share: float | None

    def to_json(self, work: Json, call: str, dataset: str | None) -> Json:
        """The document.

        Args:
            work: the loop that was tried.
            call: beginning of the line of code, with the arguments that stand first, such as
                'FastLoader("train.fl"'.
            dataset: the packed dataset, as commands name it; None: there is none.
        """
        changed = self._changed()
        return {
            "fastload_tune": SCHEMA,
            "work": work,
            "machine": measure.machine_facts(),
            "others_share": self.others_share,
            "trials": [trial.to_json() for trial in self.trials],
            "skipped": dict(self.skipped),
            "advice": {
                "arguments": changed,
                "line": _line(call, changed),
                "convert": self._command(dataset),
                "cache_share": self._cache_share(),
            },
        }

    def _changed(self) -> Json:
        """The advised arguments that are not the defaults."""
        defaults = {trial.setting.name: trial.setting.default for trial in self.trials}
        return {
            name: value
            for name, value in self.arguments.items()
            if name in defaults and value != defaults[name]
        }

    def _command(self, dataset: str | None) -> list[str] | None:
        """The command that stores the dataset in the form that is clearly faster; None: it has it, or none
        is."""
        for trial in self.trials:
            if trial.setting.name == FORM and trial.value != trial.setting.default and dataset is not None:
                return ["fastload", "convert", "--encode", ENCODES[trial.value], dataset, "OUT"]
        return None

    def _cache_share(self) -> float | None:
        """The share of the dataset that a cache need hold; None: all of it, or the dataset has none."""
        for trial in self.trials:
            if trial.setting is CACHE and trial.value != CACHE.default:
                return SHARES[trial.value]
        return None


def _line(call: str, changed: Arguments) -> str:
    texts = {"channels_last": "torch.channels_last", "contiguous": "torch.contiguous_format"}
    shown = [f"{name}={texts.get(str(value), json.dumps(value))}" for name, value in changed.items()]
    return f"loader = {', '.join([call, *shown])})"
