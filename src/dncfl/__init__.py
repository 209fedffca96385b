"""Federated learning over bad wireless links: nodes and a parameter server that cooperate by a diversity network code."""

from importlib.metadata import version

__version__ = version("dncfl")
