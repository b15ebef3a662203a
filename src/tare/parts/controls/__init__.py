"""One control per file."""
