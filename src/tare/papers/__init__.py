"""The five papers: their studies, claims and tables, and the pages that show them beside what was measured."""
