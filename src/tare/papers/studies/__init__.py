"""The papers' experiments as study files."""
