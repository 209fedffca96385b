"""Benchmarks of the codec and of whole rounds against what else one could use; `dncfl bench` runs them."""
