"""One probe per file."""
