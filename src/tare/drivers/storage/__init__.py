"""Media, data sets on them, and what the page cache holds of those."""
