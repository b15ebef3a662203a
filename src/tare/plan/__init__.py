"""What will be done: the cells of a study, repeated in shuffled blocks."""
