"""Engines: what runs a loader's plan. Native threads, worker processes, or the calling process; their
settings, plan and state."""
