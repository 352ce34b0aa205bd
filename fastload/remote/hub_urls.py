"""HubURL: the URL of something in a repository on the Hugging Face Hub; pinned: the same at the commit that
it has now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from fastload.common.urls import shown
from fastload.errors import ArgumentError, RemoteError, RemoteMissingError

_URL = re.compile(
    r"hf://(?:(datasets|spaces)/)?(?!datasets/|spaces/)([^/@]+/[^/@]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(.*))?",
    re.DOTALL,
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubURL(NamedTuple):
    """The parts of a URL.

    Attributes:
        kind: "datasets", "spaces", or "" for models.
        repository: owner and name.
        revision: branch, tag or commit; "": the default one.
        path: path in the repository.
    """

    kind: str
    repository: str
    revision: str
    path: str

    @classmethod
    def of(cls, url: str) -> HubURL:
        """Raises ArgumentError: it names no repository."""
        found = _URL.fullmatch(url)
        if found is None:
            raise ArgumentError(
                f"{shown(url)} names no repository: write it as in hf://datasets/OWNER/NAME/data/0.tar"
            )
        kind, repository, revision, path = found.groups("")
        return cls(kind, repository, unquote(revision), path)

    @property
    def name(self) -> str:
        """The repository with its kind."""
        return f"{self.kind}/{self.repository}" if self.kind else self.repository

    def ask(self, question: Callable[[Any, dict[str, Any]], Any], options: Mapping[str, Any]) -> Any:
        """The Hub's answer to a call of its API with the repository's keywords. Raises ArgumentError,
        RemoteError."""
        try:
            import huggingface_hub as hub
            from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
        except ImportError as error:
            raise ArgumentError(
                f"hf:// needs huggingface_hub, which is not there ({error}): pip install huggingface_hub"
            ) from error
        api = hub.HfApi(endpoint=options.get("endpoint"), token=options.get("token"))
        given = {
            "repo_id": self.repository,
            "repo_type": self.kind[:-1] or None,
            "revision": self.revision or None,
        }
        place = f"hf://{self.name}" + (f"@{self.revision}" if self.revision else "")
        try:
            return question(api, given)
        except Exception as error:
            missing = isinstance(error, RepositoryNotFoundError | RevisionNotFoundError)
            why = " ".join([*filter(None, str(error).splitlines())][:2]) or type(error).__name__
            raise (RemoteMissingError if missing else RemoteError)(
                f"{place}: the Hub does not give it: {why}", url=place
            ) from error


def is_hub(url: str) -> bool:
    """True for the URL of something on the Hub."""
    return url.startswith("hf://")


def is_pinned(url: str) -> bool:
    """True for one at a commit, whose content never changes."""
    found = _URL.fullmatch(url)
    return found is not None and _COMMIT.fullmatch(found[3] or "") is not None


def pinned(url: str, options: Mapping[str, Any] | None, commits: dict[str, str]) -> str:
    """The URL of what `url` names now.

    Args:
        url: a URL on the Hub.
        options: `token` and `endpoint`, as huggingface_hub takes them.
        commits: the commit of each revision that was asked for before.

    Raises:
        ArgumentError: it names no repository, or huggingface_hub is missing.
        RemoteError: the Hub does not answer, or has no such repository or revision.
    """
    if is_pinned(url):
        return url
    parts = HubURL.of(url)
    revision = f"{parts.name}@{parts.revision or 'main'}"
    if revision not in commits:
        commits[revision] = parts.ask(lambda api, given: api.repo_info(**given).sha, options or {})
    return f"hf://{parts.name}@{commits[revision]}/{parts.path}"
