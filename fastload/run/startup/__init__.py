"""Folder that a drop-in run puts on PYTHONPATH: its `sitecustomize.py` is the first file that each Python
process of the run imports."""
