"""Faults on purpose at a node, where they take more than a process can do to itself: see `dncfl.common.faults`."""

import asyncio
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

from dncfl.common.fault_injection import FaultInjector
from dncfl.common.faults import SLOWER, Fault, seconds_of
from dncfl.common.payload import Payload
from dncfl.common.radio import Radio
from dncfl.node.settings import NodeSettings

Frames = list[Any]


class NodeFaults:
    """The faults that are planned for one node, and what is left of those that have struck."""

    def __init__(self, settings: NodeSettings, cut: Callable[[int, float], None]) -> None:
        """`cut` lets the node hear nothing of a peer for some seconds."""
        self._injector = FaultInjector(settings.faults, settings.fault_log)
        self._cut = cut
        self._spoil: list[Fault] = []
        self._frames_before: Frames = []
        self._slower = False
        self._last_step = 0.0

    async def meet(self, point: str, round: int) -> None:
        """Suffer the faults that are planned for this point. Raises InjectedFault."""
        for fault in self._injector.strike(point, round):
            match fault.kind:
                case "delay":
                    await asyncio.sleep(seconds_of(fault))
                case "slow":
                    self._slower = True
                case "cut" if fault.peer is not None:
                    self._cut(fault.peer, seconds_of(fault))
                case _:
                    self._spoil.append(fault)

    def begin_training(self) -> None:
        """The first step of a training begins."""
        self._last_step = perf_counter()

    def before_step(self) -> None:
        """The next step of a training begins, in the thread of training."""
        if self._slower:
            sleep((SLOWER - 1) * (perf_counter() - self._last_step))
        self._last_step = perf_counter()

    def sent_for(self, frames: Frames, payload: Payload, radio: Radio) -> list[Frames]:
        """What is sent in place of the next transmission."""
        sent = [frames]
        for fault in self._spoil:
            if fault.kind == "corrupt":
                plane = payload.plane.copy()
                plane[plane.size // 2] ^= 1
                sent[0] = [*frames[:2], plane, *frames[3:]]
            elif fault.kind == "lie":
                sent[0] = radio.lie(frames, payload)
            elif fault.kind == "duplicate":
                sent.append(frames)
            elif self._frames_before:
                sent.append(self._frames_before)
        self._spoil, self._frames_before = [], frames
        return sent
