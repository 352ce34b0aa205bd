"""CredentialProvider: a user's function that returns credentials for a bucket, bounded in time, and as it
is sent to other processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import TimeoutError as LateError
from typing import Any

from fastload.errors import ArgumentError
from fastload.remote.objects import LimitedThreads

LIMIT_S = 30.0
"""Most seconds that a provider may take; half of the timeout if that is less."""
KEY = "credential_provider"
_ADVICE = "write a function that returns the credentials as a dict; obstore.auth has some"


class CredentialProvider:
    """A user's credential_provider with a limit on its time: called in a thread of its own, and not waited
    for any longer.

    obstore calls it in a thread of the client, which nothing ends. A provider that waits for a lock that a
    fork lost, or for a silent server, would hold every request for ever. All other attributes, which obstore
    may ask for, are the user's.
    """

    def __init__(self, provider: Callable[[], object], timeout: float) -> None:
        self._provider = provider
        self._limit = min(LIMIT_S, timeout / 2)
        self._threads = LimitedThreads(1, "fastload-credentials")

    def __call__(self) -> object:
        answer = self._threads.submit(self._provider)
        try:
            return answer.result(self._limit)
        except LateError:
            self._threads.give_up(answer)
            raise TimeoutError(f"the credential_provider did not answer within {self._limit:g} s") from None

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self.__dict__["_provider"], name)
        return found

    def close(self) -> None:
        """Ends the thread."""
        self._threads.close()


def bounded_provider(provider: object, timeout: float) -> CredentialProvider | None:
    """A user's provider with a limit; None if there is no provider. Raises ArgumentError if it cannot be
    one."""
    if isinstance(provider, _Sent):  # in a shallow copy of the options, which pickles nothing
        provider = provider.content
    if provider is None:
        return None
    if not callable(provider):
        raise ArgumentError(
            f"storage_options[{KEY!r}] is a {type(provider).__name__}, not a function: {_ADVICE}"
        )
    if inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(type(provider).__call__):
        raise ArgumentError(
            f"storage_options[{KEY!r}] is async, and blocking requests cannot await it: {_ADVICE}"
        )
    return CredentialProvider(provider, timeout)


class _Sent:
    """A provider on its way to another process, by cloudpickle, which also takes lambdas and closures."""

    def __init__(self, provider: object) -> None:
        self.content = provider

    def __reduce__(self) -> tuple[Any, ...]:
        import pickle

        import cloudpickle

        try:
            return pickle.loads, (cloudpickle.dumps(self.content),)
        except Exception as error:  # whatever the provider's __reduce__ raises
            failed = type(error).__name__
        raise ArgumentError(
            f"storage_options[{KEY!r}] cannot be sent to a worker process ({failed} in its pickling): "
            "give a function that opens its session when it is called, or start workers with "
            "multiprocessing_context='fork'"
        )


def sendable(options: dict[str, Any]) -> dict[str, Any]:
    """storage_options in a form that can be pickled for another process. Pickling raises ArgumentError if
    the provider cannot be sent."""
    return {
        key: _Sent(value) if key == KEY and value is not None else value for key, value in options.items()
    }
