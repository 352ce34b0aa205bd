"""add_tokens, and `fastload columns add --tokenize`: token ids as a field, as the tokenizer and its chat
template make them; and rows of any number that are added to a dataset, however it is read."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (torchvision, which transformers imports, asks for operators that a plain CPU build lacks)
import warm
from pictures import photo
from servers.seaweedfs import SeaweedFS

import fastload
from fastload import FastLoader, Flat, PackedDataset, PackSequences, TokenBatches
from fastload import transforms as T
from fastload.errors import ArgumentError, SampleError
from fastload.packing import convert, export, unpack, verify

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TALK = [
    ("user", "What is it? <image>"),
    ("assistant", "A bird."),
    ("user", "Sure?"),
    ("assistant", "Yes, it is."),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    shutil.copy(Path(__file__).parents[2] / "examples" / "vlm_tokenizer.json", folder / "tokenizer.json")
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """Conversations of several lengths, with an image each."""
    rows = []
    for number in range(9):
        data = io.BytesIO()
        photo(number, 40 + number, 50).save(data, "JPEG")
        turns = [{"from": {"user": "human", "assistant": "gpt"}[role], "value": text} for role, text in TALK]
        rows.append({"image": data.getvalue(), "conversations": turns[: number % 5], "n": number})
    fastload.pack(rows, tmp_path / "talks.fl")
    return tmp_path / "talks.fl"


def loaded(path: Any, **options: Any) -> list[Any]:
    dataset = PackedDataset(path, T.Resize((16, 16)))
    with FastLoader(dataset, 4, collate="flat", **options) as loader:
        return list(loader)


def test_tokens_are_the_templates_and_the_mask_leaves_the_answers(talks: Path, tokenizer: Path) -> None:
    from transformers import AutoTokenizer

    summary = fastload.add_tokens(talks, tokenizer)
    assert (summary.version, summary.names) == (2, ("input_ids", "masked"))
    made = AutoTokenizer.from_pretrained(tokenizer)
    for number, sample in enumerate(PackedDataset(talks)):
        turns = [{"role": role, "content": text} for role, text in TALK[: number % 5]]
        text = made.apply_chat_template(turns, tokenize=False) if turns else ""
        want = made(text, add_special_tokens=False)["input_ids"]
        assert sample["input_ids"].tolist() == want
        assert sample["input_ids"].dtype == torch.int32
        answered = [
            token for token, masked in zip(want, sample["masked"].tolist(), strict=True) if not masked
        ]
        answers = [f"{text}<|end|>" for role, text in TALK[: number % 5] if role == "assistant"]
        assert made.decode(answered) == "".join(answers)


@pytest.mark.parametrize("engine", [{"num_workers": 2}, {"num_workers": 0, "engine": "python"}], ids=str)
def test_they_are_packed_into_sequences(engine: dict[str, Any], talks: Path, tokenizer: Path) -> None:
    """On every engine; labels are those of the answers."""
    fastload.add_tokens(talks, tokenizer)
    dataset = PackedDataset(talks, [T.Patches(max_pixels=60 * 60)], fields=["image", "input_ids", "masked"])
    rule = PackSequences(mask=["masked"])
    plan = TokenBatches(dataset, 96, text="input_ids", seed=0)
    with FastLoader(dataset, batch_sampler=plan, collate_fn=rule, **engine) as loader:
        rows = list(loader)
    kept = [row["input_ids"][row["labels"] != -100] for row in rows]
    samples = list(PackedDataset(talks, fields=["input_ids", "masked"]))
    want = sum(int((sample["masked"] == 0).sum()) for sample in samples)
    assert sum(map(len, kept)) == want
    assert sum(len(row["input_ids"]) for row in rows) == sum(len(sample["input_ids"]) for sample in samples)


def test_other_forms_of_reading_have_them_too(talks: Path, tokenizer: Path, tmp_path: Path) -> None:
    """Batches, older versions, columns that are dropped and added again, copies in other forms, and
    verify."""
    before = loaded(talks)
    fastload.add_tokens(talks, tokenizer, name="ids")
    want = [sample["ids"].tolist() for sample in PackedDataset(talks)]
    for engine in ({"num_workers": 2}, {"num_workers": 0}, {"num_workers": 2, "engine": "python"}):
        batches = loaded(talks, **engine)
        assert all(isinstance(batch["ids"], Flat) for batch in batches)
        assert [token for batch in batches for token in batch["ids"].values.tolist()] == [
            token for ids in want for token in ids
        ]
        assert all(torch.equal(a["image"], b["image"]) for a, b in zip(before, batches, strict=True))
    assert "ids" not in PackedDataset(talks, version=1).fields
    assert verify(talks).ok
    fastload.drop(talks, indices=[0, 3])
    assert [sample["ids"].tolist() for sample in PackedDataset(talks)] == [*want[1:3], *want[4:]]
    assert list(PackedDataset(talks).where("len(ids) > 20").indices) == [
        at for at, ids in enumerate([*want[1:3], *want[4:]]) if len(ids) > 20
    ]
    unpack(talks, tmp_path / "files")
    export(talks, tmp_path / "a.parquet")
    convert(talks, tmp_path / "dct.fl", encode="dct")
    fastload.pack(tmp_path / "files", tmp_path / "files.fl")
    fastload.pack(tmp_path / "a.parquet", tmp_path / "parquet.fl")
    for name in ("dct.fl", "files.fl", "parquet.fl"):
        found = [sample["ids"].tolist() for sample in PackedDataset(tmp_path / name)]
        assert found == [*want[1:3], *want[4:]]
    fastload.drop_columns(talks, "ids", "masked")
    assert "ids" not in PackedDataset(talks).fields
    fastload.add_tokens(talks, tokenizer, name="ids")
    assert PackedDataset(talks)[0]["ids"].tolist() == want[1]


def test_in_a_bucket(talks: Path, tokenizer: Path, tmp_path: Path, seaweedfs: SeaweedFS) -> None:
    fastload.add_tokens(talks, tokenizer)
    store = {"storage_options": seaweedfs.options()}
    url = f"s3://fastload/tokens-{tmp_path.name}"
    fastload.push(talks, url, **store)
    remote = PackedDataset(url, T.Resize((16, 16)), cache=tmp_path / "cache", **store)
    with FastLoader(remote, 4, collate="flat", num_workers=2) as loader:
        batches = list(loader)
    assert [batch["input_ids"].values.tolist() for batch in batches] == [
        batch["input_ids"].values.tolist() for batch in loaded(talks)
    ]
    fastload.pull(url, tmp_path / "back.fl", **store)
    assert verify(tmp_path / "back.fl").ok


def test_texts_and_the_token_of_images(tmp_path: Path, tokenizer: Path) -> None:
    """Of a text with the tokenizer's own special tokens, and no mask; `image` replaces <image>."""
    from transformers import AutoTokenizer

    data = io.BytesIO()
    photo(1, 40, 50).save(data, "PNG")
    fastload.pack([{"image": data.getvalue(), "caption": "a <image> b"}] * 2, tmp_path / "a.fl")
    done = warm.fastload(
        "columns", str(tmp_path / "a.fl"), "add", "--tokenize", str(tokenizer), "--image", "<|end|>"
    )
    assert done.returncode == 0, done.stderr
    assert "version 2, 2 samples with input_ids" in done.stdout
    made = AutoTokenizer.from_pretrained(tokenizer)
    dataset = PackedDataset(tmp_path / "a.fl")
    assert dataset.fields == ("image", "caption", "input_ids")
    assert dataset[1]["input_ids"].tolist() == made("a <|end|> b")["input_ids"]


def test_all_keys_of_a_turn_reach_the_template(tokenizer: Path, tmp_path: Path) -> None:
    """Calls of tools and their names; and where the assistant begins, what the template puts before its words
    has no labels."""
    from transformers import AutoTokenizer

    template = (
        "{% if messages[0].role != 'system' %}[system]Help.<|end|>{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{% for c in m.tool_calls or [] %}CALL {{ c.function.name }}"
        "{% endfor %}{{ m.content or '' }}{{ m.name or '' }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    shutil.copytree(tokenizer, tmp_path / "tools")
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (tmp_path / "tools" / "tokenizer_config.json").write_text(json.dumps(about))
    call = {"type": "function", "function": {"name": "weather", "arguments": {}}}
    talks = [
        [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "name": "weather", "content": "sunny"},
            {"role": "assistant", "content": "No."},
        ],
        [{"role": "assistant", "content": "Yes. "}, {"role": "user", "content": "Yes."}],
        [{"role": "assistant", "content": None, "tool_calls": [call]}],
        [{"role": "assistant", "content": "n"}],
        [{"role": "assistant", "content": "end"}],
    ]
    image = io.BytesIO()
    photo(1, 40, 50).save(image, "PNG")
    fastload.pack([{"image": image.getvalue(), "messages": talk} for talk in talks], tmp_path / "t.fl")
    fastload.add_tokens(tmp_path / "t.fl", tmp_path / "tools")
    made = AutoTokenizer.from_pretrained(tmp_path / "tools")
    said = []
    for talk, sample in zip(talks, PackedDataset(tmp_path / "t.fl"), strict=True):
        ids = sample["input_ids"]
        text = made.apply_chat_template(talk, tokenize=False)
        assert ids.tolist() == made(text, add_special_tokens=False)["input_ids"]
        said.append(made.decode(ids[sample["masked"] == 0]))
    assert said == [
        "CALL weather<|end|>No.<|end|>",
        "Yes. <|end|>",
        "CALL weather<|end|>",
        "n<|end|>",
        "end<|end|>",
    ]


def test_refusals(talks: Path, tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no folder of a tokenizer"):
        fastload.add_tokens(talks, tmp_path)
    shutil.copytree(tokenizer, tmp_path / "damaged")
    (tmp_path / "damaged" / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ArgumentError, match="damaged is no folder of a tokenizer"):
        fastload.add_tokens(talks, tmp_path / "damaged")
    (tmp_path / "bytes").mkdir()
    about = {"tokenizer_class": "ByT5Tokenizer", "chat_template": TEMPLATE}
    (tmp_path / "bytes" / "tokenizer_config.json").write_text(json.dumps(about))
    with pytest.raises(ArgumentError, match="ByT5Tokenizer does not say where tokens lie in a conversation"):
        fastload.add_tokens(talks, tmp_path / "bytes")
    with pytest.raises(ArgumentError, match="name one field of texts or conversations"):
        fastload.add_tokens(talks, tokenizer, text="n")
    with pytest.raises(ArgumentError, match="has a field 'n' already"):
        fastload.add_tokens(talks, tokenizer, name="n")
    for arguments in (["drop", "n", "--tokenize", "x"], ["add", "x.csv", "--text", "n"]):
        done = warm.fastload("columns", str(talks), *arguments)
        assert done.returncode
        assert "--tokenize" in done.stderr
    data = io.BytesIO()
    photo(1, 40, 50).save(data, "PNG")
    fastload.pack([{"image": data.getvalue(), "messages": {"a": 1}}], tmp_path / "odd.fl")
    with pytest.raises(SampleError, match=r"sample 0 .*neither a text nor a conversation"):
        fastload.add_tokens(tmp_path / "odd.fl", tokenizer)
    assert PackedDataset(tmp_path / "odd.fl").version == 1
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ messages[-1].content }}"}
    shutil.copytree(tokenizer, tmp_path / "other")
    (tmp_path / "other" / "tokenizer_config.json").write_text(json.dumps(about))
    with pytest.raises(SampleError, match="changes a turn when others follow"):
        fastload.add_tokens(talks, tmp_path / "other")
    assert np.array_equal(PackedDataset(talks).column("n"), np.arange(9))
