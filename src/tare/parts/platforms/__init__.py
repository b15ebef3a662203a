"""One platform per file."""
