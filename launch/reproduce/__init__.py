"""The letter's two figures, computed again: its 15 curves over several seeds, beside the letter's own points."""
