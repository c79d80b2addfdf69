"""axpy on the GPU, by way of ctypes."""

import ctypes
from pathlib import Path

library = ctypes.CDLL(str(Path(__file__).parent / "lib" / "axpy" / "axpy.so"))
library.axpy_version.restype = ctypes.c_char_p
