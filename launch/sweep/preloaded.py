"""What all workers on this machine are forked from, once: their imports, which they then share."""

import gc

import dncfl.launch.reference
import dncfl.server.global_model  # noqa: F401

gc.freeze()  # nothing of it is garbage: looking would copy its memory in every worker, and take a second at the end
