"""Resuming: the position of a pass, saved by state_dict() and continued by a later pass."""
