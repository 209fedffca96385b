"""The batched engine: the clients of one run, or of several, trained side by side as one tensor program."""

SIDE_BY_SIDE = ("dataset", "data_root", "model", "device", "rounds", "local_epochs", "batch_size", "lr", "momentum")
"""Settings that runs side by side have in common."""
