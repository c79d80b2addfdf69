"""Decompresses Zstandard frames with libzstd, which is pinned in wheels/zstd.lock.json.

Python itself reads Zstandard from 3.14 on only, and a package of it is bound to the Python version that it was fetched
for, while an action runs the Python of wherever it runs. The C interface is the same for all of them.
"""

from __future__ import annotations

import ctypes

# zstd.h: what ZSTD_getFrameContentSize says instead of a size.
_UNKNOWN, _NO_FRAME = (1 << 64) - 1, (1 << 64) - 2


class ZstdError(Exception):
    """The bytes are not a frame of the size that was expected. The message is what they are."""


class Zstd:
    """libzstd, from a path. Raises OSError if it can't be loaded."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        size, pointer = ctypes.c_size_t, ctypes.c_char_p
        for name, result, arguments in (
            ("ZSTD_getFrameContentSize", ctypes.c_ulonglong, [pointer, size]),
            ("ZSTD_decompress", size, [pointer, size, pointer, size]),
            ("ZSTD_isError", ctypes.c_uint, [size]),
            ("ZSTD_getErrorName", pointer, [size]),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments

    def decompress(self, data: bytes, size: int) -> memoryview:
        """The content of a frame that says it is `size` bytes. Raises ZstdError. Nothing else is allocated than that."""
        said = self._library.ZSTD_getFrameContentSize(data, len(data))
        if said != size:
            found = {_UNKNOWN: "one that doesn't say", _NO_FRAME: "no frame"}.get(said, f"one of {said} bytes")
            raise ZstdError(found)
        content = ctypes.create_string_buffer(max(size, 1))
        result = self._library.ZSTD_decompress(content, size, data, len(data))
        if self._library.ZSTD_isError(result):
            raise ZstdError(self._library.ZSTD_getErrorName(result).decode())
        return memoryview(content).cast("B")[:result]
