"""Where a pass stands, and how another goes on from there."""
