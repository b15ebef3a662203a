"""The papers' own tables, row by row, beside what the same studies gave on one's own machines."""
