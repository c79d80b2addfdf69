"""Asks the CUDA driver for its version and the GPUs that it shows, and prints JSON. Runs in a process of its own, since it may hang.

The functions and constants are those of cuda.h (CUDA Driver API). The driver applies CUDA_VISIBLE_DEVICES itself.
"""

from __future__ import annotations

import ctypes
import json
import uuid
from typing import Any

LIBRARIES = ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"]

# cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR, CUDA_ERROR_NO_DEVICE.
_MAJOR, _MINOR, _NO_DEVICE = 75, 76, 100


def gpu(cuda: Any, index: int) -> dict[str, Any]:
    """What the driver says of a GPU. What it does not say is None."""
    device, value = ctypes.c_int(), ctypes.c_int()
    name, identity = ctypes.create_string_buffer(96), (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    capability = []
    for attribute in (_MAJOR, _MINOR):
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0:
            capability.append(str(value.value))
    return {
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(identity))}" if cuda.cuDeviceGetUuid(identity, device) == 0 else None,
        "name": name.value.decode(errors="replace") if cuda.cuDeviceGetName(name, 96, device) == 0 else None,
        "device": ".".join(capability) if len(capability) == 2 else None,
        "mig": [],
    }


def main() -> dict[str, Any]:
    """All of it, or the error."""
    errors = []
    cuda: Any = None
    for name in LIBRARIES:
        try:
            cuda = ctypes.CDLL(name)
            break
        except OSError as error:
            errors.append(str(error))
    if cuda is None:
        return {"missing": True, "error": errors[0]}
    version, count = ctypes.c_int(), ctypes.c_int()
    found: dict[str, Any] = {"driver": None, "cuda": None, "gpus": None}
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
        found["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        return {**found, "gpus": []}
    if status != 0:
        message = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(message))
        return {**found, "error": f"cuInit: {(message.value or str(status).encode()).decode()}"}
    if cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
        found["gpus"] = [gpu(cuda, index) for index in range(count.value)]
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
