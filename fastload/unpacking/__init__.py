"""Unpacking: reads packed datasets whole: verifies them, and writes their samples as files of other
layouts and libraries."""
