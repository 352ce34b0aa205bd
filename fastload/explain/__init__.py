"""Reports of a loader: counters, its plan in words, measured costs."""
