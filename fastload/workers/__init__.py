"""Who fills the rows of a slot."""
