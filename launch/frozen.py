"""Imported last by a server that processes are forked from: it freezes what it has imported, which they then share."""

import gc

gc.freeze()  # nothing of it is garbage: looking would copy its memory in every process, and take a second at the end
