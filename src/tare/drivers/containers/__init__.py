"""Containers: engines, OCI bundles, what is asked of them, and the place inside."""
