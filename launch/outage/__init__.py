"""The code alone, without training: how likely it recovers what the nodes sent."""
