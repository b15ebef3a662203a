"""One model a file. Each has TITLE, for people, and build(), which returns the module; torch is imported in build()."""
