"""CredentialProvider: a user's credential_provider, with a limit on how long it may take, fit to be sent to worker processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import TimeoutError as LateError
from typing import Any

from fastload.errors import ArgumentError
from fastload.remote.threads import LimitedThreads

LIMIT_S = 30.0
"""Seconds that a provider may take; half of the timeout where that is less."""
KEY = "credential_provider"
_ADVICE = "write a function that returns the credentials as a dict; obstore.auth has some"


class CredentialProvider:
    """A callable that obstore asks for credentials: the user's, called in a thread of its own and waited for no longer than a limit.

    obstore calls it in a thread of the client, which nothing ends: a provider that waits for a lock that a fork lost, or for a server that
    is silent, would else hold every request for good. Its other attributes, which obstore may ask for, are the user's.
    """

    def __init__(self, provider: Callable[[], Any], timeout: float) -> None:
        self._provider = provider
        self._limit = min(LIMIT_S, timeout / 2)
        self._threads = LimitedThreads(1, "fastload-credentials")

    def __call__(self) -> Any:
        answer = self._threads.submit(self._provider)
        try:
            return answer.result(self._limit)
        except LateError:
            self._threads.give_up(answer)
            raise TimeoutError(f"the credential_provider did not answer within {self._limit:g} s") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_provider"], name)

    def close(self) -> None:
        """Ends the thread."""
        self._threads.close()


def bounded_provider(provider: Any, timeout: float) -> CredentialProvider | None:
    """A user's provider, bounded; None where there is none. Raises ArgumentError where it cannot be one."""
    if isinstance(provider, _Sent):  # of a shallow copy, which pickles nothing
        provider = provider.content
    if provider is None:
        return None
    if not callable(provider):
        raise ArgumentError(f"storage_options[{KEY!r}] is a {type(provider).__name__}, not a function: {_ADVICE}")
    if inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(type(provider).__call__):
        raise ArgumentError(f"storage_options[{KEY!r}] is async, and blocking requests cannot await it: {_ADVICE}")
    return CredentialProvider(provider, timeout)


class _Sent:
    """A provider on its way to another process, by cloudpickle: a lambda or a closure may go."""

    def __init__(self, provider: Any) -> None:
        self.content = provider

    def __reduce__(self) -> tuple[Any, ...]:
        import pickle

        import cloudpickle

        try:
            return pickle.loads, (cloudpickle.dumps(self.content),)
        except Exception as error:  # whatever its own __reduce__ raises
            failed = type(error).__name__
        raise ArgumentError(
            f"storage_options[{KEY!r}] cannot be sent to a worker process ({failed} in its pickling): "
            "give a function that opens its session when it is called, or start workers with multiprocessing_context='fork'"
        )


def sendable(options: dict[str, Any]) -> dict[str, Any]:
    """storage_options as another process takes them, once they are pickled. Pickling them raises ArgumentError where that cannot be."""
    return {key: _Sent(value) if key == KEY and value is not None else value for key, value in options.items()}
