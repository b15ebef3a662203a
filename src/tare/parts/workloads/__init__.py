"""One workload per file."""
