"""What every room stands on: files, limits, the machine, URLs, random streams, positions. Nothing here knows of datasets or loaders."""
