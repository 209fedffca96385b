"""The client process: training, slot 1, relaying."""
