"""Real servers of objects that tests and benchmarks start: each is a context manager that ends its own
process."""
