"""The formulas of the letter for one network and one learning task: as text, JSON, CSV and a picture."""
