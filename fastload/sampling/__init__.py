"""Order of an epoch: the samplers that a loader's arguments ask for, the parts that ranks have of it, and
what is known of a sampler."""
