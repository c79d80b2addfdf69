"""Two small kernel libraries, by way of ctypes."""

import ctypes
from pathlib import Path

_LIB = Path(__file__).parent / "lib"

axpy = ctypes.CDLL(str(_LIB / "axpy" / "axpy.so"))
axpy.axpy_version.restype = ctypes.c_char_p
histogram = ctypes.CDLL(str(_LIB / "histogram" / "histogram.so"))
