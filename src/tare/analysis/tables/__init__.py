"""A user's own tables: reading them, files of other tools, and what they may mislead by."""
