"""Imported last by the server that nodes are forked from."""

import gc

gc.freeze()  # nothing of what it has imported is garbage: looking would copy its memory in every node
