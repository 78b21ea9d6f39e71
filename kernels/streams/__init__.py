"""Which work runs beside which: one thin interface, on CUDA streams, one after the other, or as a trace."""

from kernels.streams.interface import MAIN, SIDE, Streams
from kernels.streams.serial import SerialStreams
from kernels.streams.trace import Trace, TraceFault

__all__ = ["MAIN", "SIDE", "SerialStreams", "Streams", "Trace", "TraceFault"]
