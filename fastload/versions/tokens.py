"""add_tokens: the token ids of a dataset's texts or conversations as a field, made once by a tokenizer of
transformers, with its chat template.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastload.common.optional import optional
from fastload.common.spill import Texts
from fastload.errors import ArgumentError
from fastload.store import DatasetChange, DatasetReader, Field
from fastload.store.kinds.base import SampleParts
from fastload.versions.columns import ColumnsSummary, NewColumn, check_names, commit_columns

TALKS = ("messages", "conversations")
"""Names of fields of conversations."""
MASK = "masked"
"""Name of the field that is 1 at each token that no turn of the assistant has."""
_ROLES = {"human": "user", "gpt": "assistant"}
_GO_ON = "run `fastload columns` again: nothing is lost"
_OTHER = "\ue000"
"""Words that no text has."""
_BLOCK = 1024
"""Texts that the tokenizer gets at a time."""
Spans = list[tuple[int, int]]
"""Parts of a text, as its first character and its end."""


def add_tokens(
    path: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str],
    *,
    text: str | None = None,
    name: str = "input_ids",
    image: str | None = None,
) -> ColumnsSummary:
    """Adds token ids as a field, as a new version, by a tokenizer of transformers.

    Conversations get their text by its chat template, and a field `masked`, for PackSequences' `mask`: 1
    outside of the assistant's turns.

    Args:
        path: the dataset's directory.
        tokenizer: folder of the tokenizer.
        text: field of texts or conversations; default: `messages`, `conversations`, or the one text.
        name: name of the field.
        image: text that replaces "<image>".

    Raises:
        ArgumentError: transformers or a field is missing, or a field is there already.
        DatasetError, PackError: as in `append`.
        SampleError: a sample has no such text.
    """
    transformers = optional("transformers", "tokens of texts")
    try:
        made = transformers.AutoTokenizer.from_pretrained(os.fspath(tokenizer), local_files_only=True)
    except Exception as error:  # of a damaged file it raises any
        reason = " ".join(str(error).split())[:200]
        raise ArgumentError(f"{os.fspath(tokenizer)} is no folder of a tokenizer: {reason}") from None
    with DatasetChange(path, _GO_ON) as change:
        with DatasetReader(change.path, manifest=change.manifest) as reader:
            field = _field_of(reader, text)
            ids = _Rows(Field(name, "array", "int32", (None,)))
            masks = _Rows(Field(MASK, "array", "uint8", (None,)))
            columns = [ids, masks] if field.handler.takes_null else [ids]
            if masks in columns and not made.is_fast:
                raise ArgumentError(
                    f"{os.fspath(tokenizer)}: {type(made).__name__} does not say where tokens lie in a "
                    "conversation: give a fast tokenizer"
                )
            check_names(change, [each.field for each in columns])
            for found, mask in _Tokens(reader, field, made, image).all():
                ids.add(found)
                masks.add(mask)
            return commit_columns(change, reader, [each.column() for each in columns])


def _field_of(reader: DatasetReader, text: str | None) -> Field:
    """The field of the texts or conversations. Raises ArgumentError."""
    fields = [each for each in reader.schema if each.handler.is_text]
    wanted = TALKS if text is None else (text,)
    found = [each for each in fields if each.name in wanted]
    if text is None and not found:
        found = [each for each in fields if not each.handler.takes_null]
    if len(found) != 1:
        names = ", ".join(each.name for each in fields) or "none"
        raise ArgumentError(f"{reader.path}: name one field of texts or conversations (text=) of {names}")
    return found[0]


class _Tokens:
    """The tokens of a dataset's texts or conversations."""

    def __init__(self, reader: DatasetReader, field: Field, tokenizer: Any, image: str | None) -> None:
        self._reader, self._field, self._tokenizer, self._image = reader, field, tokenizer, image

    def all(self) -> Iterator[tuple[Any, Any]]:
        """(ids, mask) of each sample, in order. Raises SampleError."""
        is_text = not self._field.handler.takes_null
        for start in range(0, len(self._reader), _BLOCK):
            block = [self._text(index) for index in range(start, min(start + _BLOCK, len(self._reader)))]
            texts = [text for text, _ in block]
            if is_text:
                yield from ((ids, ()) for ids in self._tokenizer(texts)["input_ids"])
                continue
            found = self._tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
            for (_, spans), ids, offsets in zip(
                block, found["input_ids"], found["offset_mapping"], strict=True
            ):
                yield ids, _outside([first for first, _ in offsets], spans)

    def _text(self, index: int) -> tuple[str, Spans]:
        """A sample's text, and the assistant's turns in it. Raises SampleError."""
        value = self._reader.stored_values(index, [self._field.name])[self._field.name]
        try:
            if isinstance(value, str):
                return self._with_images(value), []
            return self._rendered(self._turns(value))
        except Exception as error:  # a template raises whatever it likes
            reason = f"its {self._field.name!r} has no tokens: {error}"
            raise self._reader.sample_error(index, reason) from error

    def _rendered(self, turns: list[dict[str, Any]]) -> tuple[str, Spans]:
        """The text of a conversation. Raises ValueError where a later turn changes those before."""
        whole, spans = self._by_template(turns), []
        for number, turn in enumerate(turns):
            if turn["role"] == "assistant":
                after = self._by_template(turns[: number + 1])
                before = (
                    self._by_template(turns[:number], add_generation_prompt=True)
                    if number
                    else self._before_the_first(turn, after)
                )
                if not (whole.startswith(before) and whole.startswith(after)):
                    raise ValueError("the chat template changes a turn when others follow")
                spans.append((len(before), len(after)))
        return whole, spans

    def _before_the_first(self, turn: Mapping[str, Any], text: str) -> str:
        """The beginning of the text of a first turn, up to its words: as other words have it."""
        content: Any = [{"type": "text", "text": _OTHER}] if isinstance(turn["content"], list) else _OTHER
        other = self._by_template([{"role": turn["role"], "content": content}])
        same = [one == another for one, another in zip(text, other, strict=False)]
        return text[: [*same, False].index(False)]

    def _by_template(self, turns: Sequence[Any], **options: Any) -> str:
        if not turns:  # transformers refuses it
            return ""
        return str(self._tokenizer.apply_chat_template(turns, tokenize=False, **options))

    def _turns(self, value: Any) -> list[dict[str, Any]]:
        """A conversation as chat templates take it. Raises ValueError."""
        if not isinstance(value, list) or not all(isinstance(turn, Mapping) for turn in value):
            raise ValueError("it is neither a text nor a conversation")
        return [
            {
                **{key: part for key, part in turn.items() if key not in ("from", "value")},
                "role": _ROLES.get(role := str(turn.get("role", turn.get("from"))), role),
                "content": self._with_images(turn.get("content", turn.get("value"))),
            }
            for turn in value
        ]

    def _with_images(self, content: Any) -> Any:
        if isinstance(content, str) and self._image is not None:
            return content.replace("<image>", self._image)
        return content


def _outside(firsts: Sequence[int], spans: Spans) -> Any:
    """1 for each token whose first character no span has."""
    places, mask = np.asarray(firsts, np.int64), np.ones(len(firsts), np.uint8)
    for start, end in spans:
        mask[(places >= start) & (places < end)] = 0
    return mask


class _Rows:
    """The values of a field of any number of rows, on their way into a dataset; on the disk, where they are
    many."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._values, self._counts = Texts(), list[int]()

    def add(self, value: Sequence[int]) -> None:
        """Adds the next sample's."""
        parts = SampleParts((0, 0), None)
        self.field.handler.encode(self.field, 0, np.asarray(value, self.field.dtype), parts)
        ((_, _, data),) = parts.entries
        self._values.append(b"".join(bytes(part) for part in data))
        self._counts += parts.hidden

    def column(self) -> NewColumn:
        """All of them."""
        self._values.seal()
        return NewColumn(self.field, self._values, np.array(self._counts, np.int32))
