"""The same findings for other programs and other pages: Markdown, LaTeX, and the trials as a table."""
