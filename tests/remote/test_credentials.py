"""Credentials that expire or change while a dataset is read are renewed, in every process; those that are
not are one clear error."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import reading
from reading import CROP, batches, same, steps_of
from servers.azurite import ACCOUNT, KEY, Azurite
from servers.seaweedfs import SeaweedFS

from fastload import FastLoader, PackedDataset, push
from fastload.errors import ArgumentError, ClosedError, RemoteError
from fastload.remote.client import open_objects
from fastload.remote.credentials import bounded_provider
from fastload.remote.files import RemoteFiles

PAIR = ("image", "label")

ENGINES: dict[str, dict[str, Any]] = {
    "threads": {"num_workers": 2},
    "forked": {"num_workers": 2, "engine": "python", "multiprocessing_context": "fork"},
    "spawned": {"num_workers": 2, "engine": "python", "multiprocessing_context": "spawn"},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset."""
    return reading.write_photos(tmp_path_factory.mktemp("photos") / "photos.fl", 60, 300_000)


@pytest.fixture(scope="module")
def azure_url(azurite: Azurite, photos: Path) -> str:
    """A URL with the dataset in Azurite."""
    push(photos, "az://fastload/credentials/photos.fl", storage_options=azurite.options())
    return "az://fastload/credentials/photos.fl"


def token(seconds: float) -> str:
    """A shared access signature of Azure for an account, which its server refuses after some seconds."""
    until = (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    version, allowed, service, kinds = "2021-12-02", "rl", "b", "sco"
    text = "\n".join([ACCOUNT, allowed, service, kinds, "", until, "", "", version, "", ""])
    signature = base64.b64encode(
        hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    ).decode()
    return urlencode(
        {"sv": version, "ss": service, "srt": kinds, "sp": allowed, "se": until, "sig": signature}
    )


def by_token(azurite: Azurite, provider: Callable[[], Any]) -> dict[str, Any]:
    """storage_options for Azurite with a credential provider."""
    return {"account_name": ACCOUNT, "endpoint": azurite.endpoint, "credential_provider": provider}


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_that_expire_in_mid_epoch_are_renewed(
    azurite: Azurite, azure_url: str, photos: Path, tmp_path: Path, engine: str, no_leaks: None
) -> None:
    """Epochs that outlast each token several times, with nothing cached: every batch is the local one;
    each process asks for its own."""
    asked = str(tmp_path / "asked")
    made = token  # by value in a spawned process: a closure travels

    def provider() -> dict[str, Any]:
        with open(asked, "ab") as file:
            file.write(b"%d\n" % os.getpid())
        return {"sas_token": made(2), "expires_at": None}

    steps = steps_of(ENGINES[engine])
    options = by_token(azurite, provider)
    dataset = PackedDataset(
        azure_url,
        steps,
        cache=tmp_path / "cache",
        cache_size=0,
        fields=PAIR,
        storage_options=options,
        timeout=30,
    )
    expected = batches(PackedDataset(photos, steps, fields=PAIR), num_workers=0)
    loader = FastLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        seed=1,
        **{"persistent_workers": "engine" in ENGINES[engine], **ENGINES[engine]},
    )
    end = time.monotonic() + 60

    def renewed() -> int:
        return max(Path(asked).read_text().split().count(pid) for pid in set(Path(asked).read_text().split()))

    while renewed() < 3:
        loader.set_epoch(0)
        for batch, wanted in zip(loader, expected, strict=True):
            assert same(reading.copied(batch), wanted)
            time.sleep(0.3)  # a training step
        assert time.monotonic() < end
    loader.close()
    dataset.close()
    assert len(set(Path(asked).read_text().split())) == (3 if "engine" in ENGINES[engine] else 1)


@pytest.mark.parametrize("engine", ["threads", "forked"])
def test_a_token_that_is_not_renewed_is_one_clear_error(
    azurite: Azurite, azure_url: str, tmp_path: Path, engine: str
) -> None:
    """At the batch's turn, after the timeout, without the token: an object that opened may be denied for a
    while."""
    given = token(3)
    steps = steps_of(ENGINES[engine])
    options = {"account_name": ACCOUNT, "endpoint": azurite.endpoint, "sas_token": given}
    dataset = PackedDataset(
        azure_url,
        steps,
        cache=tmp_path / "cache",
        cache_size=0,
        fields=PAIR,
        storage_options=options,
        timeout=2,
    )
    assert len(dataset) == 60
    with pytest.raises(
        RemoteError,
        match=r"az://\S+ failed after [3-9] tries in .* access denied: .*403.*check the credentials",
    ) as caught:
        for _ in range(1000):
            batches(dataset, **ENGINES[engine])
    signature = given.split("sig=")[1]
    assert signature not in str(caught.value) + repr(caught.value.__context__)
    dataset.close()


def test_keys_that_change_are_found_anew(
    seaweedfs: SeaweedFS, photos: Path, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gets other keys: a provider that reads them from a file goes on, and so do those of the
    environment."""
    push(photos, s3_url, storage_options=seaweedfs.options())
    config = seaweedfs.folder / "s3.json"
    first = config.read_text()
    keys = tmp_path / "keys"
    plain = {key: value for key, value in seaweedfs.options().items() if "key" not in key}

    def rotate(name: str) -> None:
        found = json.loads(first)
        found["identities"][0]["credentials"].append({"accessKey": name, "secretKey": f"{name}-secret"})
        config.write_text(json.dumps(found))
        os.kill(seaweedfs.pid, signal.SIGHUP)
        probe = open_objects(
            s3_url, {**plain, "access_key_id": name, "secret_access_key": f"{name}-secret"}, 10
        )
        reading.until(lambda: works(probe))
        probe.close()

    def works(objects: Any) -> bool:
        try:
            return bool(objects.get("manifest.json", 1 << 24))
        except RemoteError:
            return False

    def provider() -> dict[str, Any]:
        name = keys.read_text()
        return {"access_key_id": name, "secret_access_key": f"{name}-secret", "expires_at": None}

    try:
        for options in ({**plain, "credential_provider": provider}, plain):
            for name in ("one", "two"):
                rotate(name)
                keys.write_text(name)
                monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
                monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{name}-secret")
                if name == "one":
                    dataset = PackedDataset(
                        s3_url,
                        CROP,
                        cache=tmp_path / "cache",
                        cache_size=0,
                        storage_options=options,
                        timeout=20,
                    )
                assert same(batches(dataset), batches(PackedDataset(photos, CROP)))
            dataset.close()
    finally:
        config.write_text(first)
        os.kill(seaweedfs.pid, signal.SIGHUP)


@pytest.fixture
def opened(azurite: Azurite, azure_url: str) -> Iterator[Callable[..., Any]]:
    """Opens the dataset's objects with a provider; closed at the end."""
    found: list[Any] = []

    def open_(provider: Any, timeout: float) -> Any:
        found.append(open_objects(azure_url, by_token(azurite, provider), timeout))
        return found[-1]

    yield open_
    for objects in found:
        objects.close()


def test_a_provider_that_fails_or_hangs_is_one_clear_error(opened: Callable[..., Any]) -> None:
    """What it raises is named and not shown; what may pass is tried again within the timeout; a wrong
    result is an error at once."""
    calls: list[int] = []

    def flaky() -> dict[str, Any]:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("TOPSECRET")
        return {"sas_token": token(600), "expires_at": None}

    def raising() -> None:
        raise ConnectionError("TOPSECRET")

    never = threading.Event()
    assert opened(flaky, 10.0).get("manifest.json", 1 << 24)
    for provider, words, timeout in (
        (raising, r"failed after [2-9] tries in .*credential_provider'\] failed \(ConnectionError\)", 1.0),
        (never.wait, r"failed after \d tr.* in .*credential_provider'\] failed \(TimeoutError\)", 2.0),
        (lambda: {"bogus": "TOPSECRET"}, r"after 1 try .*credential_provider'\] failed \(\w+Error\)", 20.0),
        (lambda: None, r"after 1 try .*credential_provider'\] failed \(\w+Error\)", 20.0),
    ):
        began = time.monotonic()
        with pytest.raises(RemoteError, match=words) as caught:
            opened(provider, timeout).get("manifest.json", 1 << 24)
        assert time.monotonic() - began < 10
        assert "TOPSECRET" not in str(caught.value) + repr(caught.value.__context__)
    never.set()


def test_providers_that_cannot_be_used_are_refused(azurite: Azurite, tmp_path: Path) -> None:
    """What is no function, what is async; and one that cannot be pickled, where it has to be."""

    async def awaited() -> dict[str, Any]:
        return {}

    class Awaited:
        async def __call__(self) -> dict[str, Any]:
            return {}

    for provider, text in (
        ("TOPSECRET", "is a str, not a function"),
        (awaited, "is async"),
        (Awaited(), "is async"),
    ):
        with pytest.raises(ArgumentError, match=text) as caught:
            open_objects("az://fastload/x", by_token(azurite, provider))
        assert "TOPSECRET" not in str(caught.value)
    lock = threading.Lock()
    files = RemoteFiles("az://fastload/x", tmp_path, None, by_token(azurite, lambda: lock))
    with pytest.raises(ArgumentError, match=r"cannot be sent to a worker process .*'fork'"):
        copy.deepcopy(files)
    assert copy.copy(files).name == files.name


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_provider_of_a_closed_client_answers_nobody(asked_before: bool) -> None:
    """A request that was under way asks once more: it is refused at once, since the one thread of obstore
    would wait in it for nothing."""
    provider = bounded_provider(lambda: "key", 60.0)
    assert provider is not None
    if asked_before:
        assert provider() == "key"
    provider.close()
    with pytest.raises(ClosedError, match="fastload-credentials were closed"):
        provider()
