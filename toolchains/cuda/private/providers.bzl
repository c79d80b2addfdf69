"""What the CUDA rules hand to each other."""

visibility(["//toolchains/cuda/...", "//kernels/...", "//wheels/..."])

CudaToolchainInfo = provider(
    doc = "A CUDA toolkit of one version, for one target CPU.",
    fields = {
        "cpu": "string: the target CPU, `x86_64` or `aarch64`",
        "headers": "CcInfo: the toolkit's own headers",
        "libs": "File: directory with the target's libcudart",
        "nvcc": "File: bin/nvcc; the other tools lie beside it",
        "tools": "depset[File]: bin/ and nvvm/, run on the build machine",
        "version": "string: `13.0`",
    },
)

CubinInfo = provider(
    doc = "The device code of one TU for one SM target.",
    fields = {
        "cubin": "File: the SASS image",
        "plan": "File: the steps that nvcc would take (JSON)",
        "sm_target": "string: `9.0a`",
        "stub": "File: the host stub, the same text for every SM target of the TU",
        "tu": "string: the name of the TU",
    },
)

CudaObjectInfo = provider(
    doc = "The host code of one TU, for one CPU, with its fatbin as an external symbol.",
    fields = {
        "canonical": "CubinInfo whose stub the host code was compiled with, or None for a TU without device code",
        "object": "File: the object",
        "tu": "string: the name of the TU",
    },
)

CudaStubInfo = provider(
    doc = "A library to link against, in place of the one that is loaded.",
    fields = {
        "has_functions": "bool: whether it has the real one's functions, so that the linker sees whether it is needed",
        "library": "File: the shared library",
    },
)

EmbeddedCubinInfo = provider(
    doc = "A cubin as read-only data for host code of one CPU, or what is in its place.",
    fields = {
        "kernel": "string: the kernel that host code asks it for",
        "name": "string: what messages call it",
        "object": "File: the object, which defines the symbols that host code refers to",
        "sm_target": "string: `10.0a`, or empty where there is no cubin",
    },
)

CudaModuleInfo = provider(
    doc = "One linked module.",
    fields = {
        "embedded": "list of EmbeddedCubinInfo: the cubins that it has in its read-only data",
        "fewer_kernels": "dict of string to string: why an image may lack kernels of its siblings, by `TU SM target`",
        "images": "File or None: JSON, the bytes of each (TU, SM target) in the module's fatbins",
        "library": "File: the shared library",
        "name": "string: the name that the runtime loads it by",
        "sm_targets": "list of strings: the SM targets that are in it",
        "supports": "list of strings: all SM targets that it could be built for",
    },
)
