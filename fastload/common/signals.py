"""Signals while a call waits.

NOTE [ signals while a call waits ]
Python runs a signal's handler between two instructions of its own. A signal that arrives after the last of
them and before the system call that waits does not interrupt that call: Ctrl-C would be held back for as long
as the call waits. So the thread of a loop never waits without a limit.
"""

from __future__ import annotations

SIGNALS_S = 0.25
"""Most seconds for which a call of the loop's thread waits at once."""
