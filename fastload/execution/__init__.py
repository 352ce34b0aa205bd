"""Decides how a loader runs: its settings, its plan, its state from epoch to epoch."""
