"""Asks NVML for the driver and all GPUs of the machine, and prints JSON. Runs in a process of its own, since it may hang.

The functions and structures are those of nvml.h (NVIDIA Management Library, API reference). NVML does not know
CUDA_VISIBLE_DEVICES, and counts GPUs by PCI bus ID.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

# On WSL2 the library is not on the loader's path in every distribution.
LIBRARIES = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"]

# nvml.h: NVML_DEVICE_UUID_V2_BUFFER_SIZE and others are at most 96 bytes.
_BUFFER = 96


def text(function: Any, *arguments: Any) -> str | None:
    """A string that an NVML function writes into a buffer; None if it fails."""
    buffer = ctypes.create_string_buffer(_BUFFER)
    return buffer.value.decode(errors="replace") if function(*arguments, buffer, _BUFFER) == 0 else None


def mig_uuids(nvml: Any, device: Any) -> list[str]:
    """UUIDs of the MIG devices of a GPU."""
    count = ctypes.c_uint()
    # Drivers before 450 know nothing of MIG.
    if not hasattr(nvml, "nvmlDeviceGetMaxMigDeviceCount"):
        return []
    if nvml.nvmlDeviceGetMaxMigDeviceCount(device, ctypes.byref(count)) != 0:
        return []
    uuids = []
    for index in range(count.value):
        mig = ctypes.c_void_p()
        if nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index, ctypes.byref(mig)) == 0:
            uuid = text(nvml.nvmlDeviceGetUUID, mig)
            uuids += [uuid] if uuid else []
    return uuids


def gpu(nvml: Any, index: int) -> dict[str, Any]:
    """What NVML says of a GPU. What it does not say is None."""
    device = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        return {"uuid": None, "name": None, "device": None, "mig": []}
    major, minor = ctypes.c_int(), ctypes.c_int()
    status = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    return {
        "uuid": text(nvml.nvmlDeviceGetUUID, device),
        "name": text(nvml.nvmlDeviceGetName, device),
        "device": f"{major.value}.{minor.value}" if status == 0 else None,
        "mig": mig_uuids(nvml, device),
    }


def main() -> dict[str, Any]:
    """All of it, or the error."""
    errors = []
    nvml: Any = None
    for name in LIBRARIES:
        try:
            nvml = ctypes.CDLL(name)
            break
        except OSError as error:
            errors.append(str(error))
    if nvml is None:
        return {"missing": True, "error": errors[0]}
    status = nvml.nvmlInit_v2()
    if status != 0:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        return {"error": f"nvmlInit: {nvml.nvmlErrorString(status).decode(errors='replace')}"}
    cuda, count = ctypes.c_int(), ctypes.c_uint()
    found: dict[str, Any] = {"driver": text(nvml.nvmlSystemGetDriverVersion), "cuda": None, "gpus": None}
    if nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda)) == 0:
        # nvml.h: NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR.
        found["cuda"] = f"{cuda.value // 1000}.{cuda.value % 1000 // 10}"
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
        found["gpus"] = [gpu(nvml, index) for index in range(count.value)]
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
