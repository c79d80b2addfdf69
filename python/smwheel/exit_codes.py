"""Exit codes of `smwheel install` and `smwheel doctor`. docs/install.md has the same table, and a test compares them."""

from __future__ import annotations

from enum import IntEnum

from smwheel.errors import SmwheelError


class ExitCode(IntEnum):
    """What a script can tell apart. 2 is what click itself exits with when an option is wrong."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NO_GPU = 3
    GPU_UNKNOWN = 4
    GPU_NOT_COVERED = 5
    MIXED_FAMILIES = 6
    CUDA = 7
    DRIVER_TOO_OLD = 8
    PLATFORM = 9
    FLASHINFER = 10
    INDEX = 11
    INSTALLER = 12
    VERIFICATION = 13
    NOT_INSTALLED = 14
    DAMAGED = 15


class CodedError(SmwheelError):
    """An error that has an exit code of its own."""

    def __init__(self, code: ExitCode, what: str, expected: str, found: str, todo: str) -> None:
        super().__init__(what, expected, found, todo)
        self.code = code
        self.exit_code = int(code)
