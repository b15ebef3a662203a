"""Papers and claims as text: in a terminal, as Markdown, as a chart."""
