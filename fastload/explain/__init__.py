"""What a loader tells of itself: counters, its plan in words, measured costs."""
