"""The question of a study, its answer by form, and what a comparison is called."""
