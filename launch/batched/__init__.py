"""The batched engine: the clients of one run, or of several, trained side by side as one tensor program."""
