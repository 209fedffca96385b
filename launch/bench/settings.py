"""Where the benchmarks measure."""

SMALL, LARGE = 21_840, 11_200_000
"""Parameters of the letter's model and of a ResNet-18."""

HUGE = 10**9
"""Symbols for a GPU to encode."""

OUTAGE = 0.19445
"""P_e at SNR 3, R 0.6."""
