"""One figure a file: from findings to a chart, a sentence and a table."""
