"""Azure's blobs and plain web servers, by HTTPS and HTTP, are read as S3 is; what they cannot do is said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.azurite import Azurite
from servers.nginx import Nginx
from servers.proxy import Proxy

from fastload.errors import RemoteError, RemoteMissingError
from fastload.remote.client import open_objects
from fastload.remote.objects import Objects

BODY = os.urandom(200_000)


async def _halves(objects: Objects, name: str) -> bytes:
    middle = len(BODY) // 2
    parts = await asyncio.gather(objects.fetch(name, 0, middle), objects.fetch(name, middle, len(BODY)))
    return b"".join(bytes(part) for part in parts)


@pytest.fixture
def blobs(azurite: Azurite, request: pytest.FixtureRequest) -> Iterator[Objects]:
    objects = open_objects(f"az://fastload/{request.node.name}", azurite.options(), 5.0)
    yield objects
    objects.close()


def test_azure_is_read_listed_and_written(blobs: Objects, tmp_path: Path) -> None:
    """Small and large objects; deleting twice is no error."""
    blobs.put("a/b", BODY)
    assert blobs.get("a/b", len(BODY)) == BODY
    assert bytes(blobs.get_range("a/b", 5, 50)) == BODY[5:50]
    assert asyncio.run(_halves(blobs, "a/b")) == BODY
    file = tmp_path / "file"
    file.write_bytes(os.urandom(20 << 20))
    blobs.put_file("large", file)
    assert blobs.get("large", 20 << 20) == file.read_bytes()
    assert [(info.name, info.size) for info in blobs.list()] == [("a/b", len(BODY)), ("large", 20 << 20)]
    assert blobs.head("a/b").etag
    with pytest.raises(RemoteMissingError):
        blobs.get_range("none", 0, 1)
    with pytest.raises(RemoteError, match="the object"):
        blobs.get_range("a/b", len(BODY) - 1, len(BODY) + 1)
    blobs.delete("a/b")
    blobs.delete("a/b")


def test_only_the_object_of_a_tag_is_read(blobs: Objects, nginx: Nginx) -> None:
    """One that was replaced is an error at once, and no bytes of it come."""
    (nginx.root / "tagged").write_bytes(BODY)
    blobs.put("tagged", BODY)
    served = open_objects(nginx.http, timeout=20.0)
    for objects, replace in (
        (blobs, lambda: blobs.put("tagged", BODY[::-1])),
        (served, lambda: (nginx.root / "tagged").write_bytes(BODY[:-1])),
    ):
        tag = objects.head("tagged").etag
        assert tag
        assert objects is served or {each.etag for each in objects.list() if each.name == "tagged"} == {tag}
        assert bytes(objects.get_range("tagged", 10, 20, etag=tag)) == BODY[10:20]
        replace()
        with pytest.raises(RemoteError, match=r"/tagged failed after 1 tr\w+ .*it was replaced, or changed"):
            objects.get_range("tagged", 10, 20, etag=tag)
    served.close()


def test_azure_refuses_a_wrong_key_without_showing_it(azurite: Azurite) -> None:
    """Nor a SAS token, which obstore sends in the URL of every request."""
    wrong: list[dict[str, object]] = [
        {"account_key": "VE9QU0VDUkVU"},
        {"account_key": None, "sas_token": "sv=2021-12-02&sig=VE9QU0VDUkVU"},
    ]
    for changed in wrong:
        options = {key: value for key, value in {**azurite.options(), **changed}.items() if value is not None}
        objects = open_objects("az://fastload/x", options, 5.0)
        with pytest.raises(RemoteError, match=r"access denied: .*403") as caught:
            objects.get("a", 10)
        assert "VE9QU0VDUkVU" not in str(caught.value) + repr(caught.value.__context__)
        objects.close()


def test_azure_is_tried_again(azurite: Azurite) -> None:
    with Proxy(azurite.port) as proxy:
        objects = open_objects("az://fastload/again", azurite.options(proxy.endpoint), 20.0)
        objects.put("a", BODY)
        proxy.spoil("status", 1)
        proxy.spoil("cut", 1)
        assert bytes(objects.get_range("a", 0, len(BODY))) == BODY
        objects.close()


@pytest.fixture
def served(nginx: Nginx) -> str:
    """A path of the web server with the file `a` in it, and `private/a` behind a password."""
    for folder in ("data", "private"):
        (nginx.root / folder).mkdir(exist_ok=True)
        (nginx.root / folder / "a").write_bytes(BODY)
    return "data"


def test_https_is_read_with_the_authoritys_certificate(nginx: Nginx, served: str) -> None:
    """Whole, in ranges and its head; a missing file is named."""
    objects = open_objects(
        f"{nginx.https}/{served}", {"client_options": {"root_certificate": nginx.certificate}}, 20.0
    )
    assert objects.get("a", len(BODY)) == BODY
    assert asyncio.run(_halves(objects, "a")) == BODY
    info = objects.head("a")
    assert info.size == len(BODY)
    assert info.etag
    with pytest.raises(RemoteMissingError, match=f"{nginx.https}/data/none"):
        objects.get_range("none", 0, 1)
    objects.close()


def test_an_unknown_certificate_is_refused_at_once(nginx: Nginx, served: str) -> None:
    """With the option that names it."""
    objects = open_objects(f"{nginx.https}/{served}", timeout=20.0)
    with pytest.raises(RemoteError, match=r"after 1 try .*certificate is not trusted; .*root_certificate"):
        objects.get("a", len(BODY))
    objects.close()


def test_plain_http_needs_no_option(nginx: Nginx, served: str) -> None:
    """Its URL says http. Neither listing nor writing is known to a plain web server: one clear error at
    once."""
    objects = open_objects(f"{nginx.http}/{served}", timeout=20.0)
    assert objects.get("a", len(BODY)) == BODY
    for call in (objects.list, lambda: objects.put("b", b"x")):
        with pytest.raises(RemoteError, match="405"):
            call()
    objects.close()


def test_a_password_in_the_url_is_sent_and_not_shown(nginx: Nginx, served: str) -> None:
    """A right one gives the file, a wrong one an error without it."""
    at = nginx.http.removeprefix("http://")
    objects = open_objects(f"http://user:password@{at}/private", timeout=20.0)
    assert objects.get("a", len(BODY)) == BODY
    objects.close()
    objects = open_objects(f"http://user:TOPSECRET@{at}/private", timeout=20.0)
    with pytest.raises(RemoteError, match="access denied") as caught:
        objects.get("a", len(BODY))
    assert "TOPSECRET" not in str(caught.value) + repr(caught.value.__context__) + objects.url
    objects.close()
