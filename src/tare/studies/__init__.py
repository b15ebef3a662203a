"""What the user wrote: a study file, typed and frozen, with every complaint at its line."""
