"""Sections of the device check (tools/device_check.py), one file a topic; each reports its parts one by
one."""
