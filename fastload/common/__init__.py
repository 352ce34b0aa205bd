"""Common ground of all rooms: files, limits, the machine, URLs, random streams, positions. Nothing here
knows of datasets or loaders."""
