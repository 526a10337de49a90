"""Several workers on one queue: their processes, what they say, and how a cluster's tasks share it."""
