"""Sweeps: many runs over a grid of settings, their table, and pictures of it."""
