"""flashinfer_module: the targets of one of FlashInfer's modules, from the description that importer.py wrote of it."""

load("@flashinfer//:matrix.bzl", "CUDA_VERSIONS", "sm_targets_of_label")
load("//kernels:defs.bzl", "embedded_cubin", "kernel_module", "kernel_tu")
load("//toolchains/cuda:sm_targets.bzl", "parse_sm_target", "runs_on", "sm_target_key")

# Labels as strings that mean the same in whatever repository a package is.
_SOURCES = str(Label("@flashinfer//:BUILD.bazel")).removesuffix("BUILD.bazel")
_THIRD_PARTY = str(Label("@flashinfer_sources//:BUILD.bazel")).removesuffix("BUILD.bazel")
_TVM_FFI = str(Label("@tvm_ffi//:headers"))
_CUDA = str(Label("//toolchains/cuda:BUILD.bazel")).removesuffix("BUILD.bazel")
_PYTHON = str(Label("//kernels/flashinfer:python_headers"))
_SETTINGS = str(Label("//kernels/flashinfer/settings:BUILD.bazel")).removesuffix("BUILD.bazel")

# Libraries that upstream's modules are linked to and that are stubs here.
_STUBS = ["c10", "c10_cuda", "cublas", "cublasLt", "cuda", "nccl", "nvrtc", "torch", "torch_cpu", "torch_cuda", "torch_python"]

def images_of(cuda_label, built):
    """For each SM target that a cell asks for, the one that upstream builds for it, if any.

    Upstream builds 10.0f in place of 10.7a for modules whose CUTLASS has no 10.7 (map_sm107_to_100f in
    flashinfer/compilation_context.py): what it builds and nobody asked for stands in.

    Args:
        cuda_label: `cu130`.
        built: list of the SM targets that upstream builds the module for.

    Returns:
        dict: SM target asked for -> SM target built.
    """
    asked = sm_targets_of_label(cuda_label)
    images = {}
    for sm in asked:
        device = parse_sm_target(sm)
        standing_in = [b for b in built if b not in asked and runs_on(b, "%d.%d" % (device.major, device.minor))]
        if sm in built:
            images[sm] = sm
        elif standing_in:
            images[sm] = standing_in[0]
    return images

def flashinfer_tu(tu):
    """Describes one TU for `kernel_module`.

    Args:
        tu: dict, its description by importer.py.

    Returns:
        struct for `kernel_module(tus = [...])`.
    """
    cuda = tu["lang"] == "cuda"
    own = [_SOURCES + "includes/" + d for d in tu["includes"]]
    python = [_PYTHON] if "python" in tu["third_party"] else []
    cccl = [_THIRD_PARTY + "cccl" if cuda else _SETTINGS + "cccl"] if "cccl" in tu["third_party"] else []
    return kernel_tu(
        name = tu.get("name"),
        src = _SOURCES + tu["src"],
        hdrs = [_SOURCES + h for h in tu["hdrs"]],
        # The order is that of upstream's command line (flashinfer/jit/cpp_ext.py).
        deps = own + cccl +
               [_SOURCES + "includes/" + d for d in tu["late_includes"]] +
               python +
               [_CUDA + c for c in tu["toolkit_components"] + ([] if cuda else ["headers"])] +
               [_TVM_FFI, _SOURCES + "first_party"] +
               [_THIRD_PARTY + t for t in tu["third_party"] if t not in ["cccl", "python"]],
        copts = tu["copts"],
        device_code = tu["device_code"],
    )

def flashinfer_embedded(cubin):
    """Describes one embedded cubin for `kernel_module`.

    Args:
        cubin: dict, its description by importer.py.

    Returns:
        struct for `kernel_module(embedded = [...])`.
    """
    tu = cubin["tu"]
    return embedded_cubin(
        name = cubin["name"],
        src = _SOURCES + tu["src"],
        hdrs = [_SOURCES + h for h in tu["hdrs"]],
        # Of include directories upstream gives it the toolkit's, which every TU has, and its own: neither TVM-FFI's nor CCCL's.
        deps = [_SOURCES + "includes/" + d for d in tu["includes"]] + [_CUDA + c for c in tu["toolkit_components"]],
        copts = tu["copts"],
        kernel = cubin["kernel"],
        sm_target = cubin["sm_target"],
        symbol = cubin["symbol"],
    )

def flashinfer_module(name, tus, sm_targets, linkopts, embedded = [], fewer_kernels = {}, own_package = True):
    """Declares one module.

    Args:
        name: the module's name, by which FlashInfer loads it.
        tus: list of the descriptions of its TUs.
        sm_targets: CUDA label -> list of the SM targets that upstream builds it for.
        linkopts: upstream's flags for the linker.
        embedded: list of the descriptions of its embedded cubins.
        fewer_kernels: `src SM target` -> why its image may lack kernels that others of the TU have.
        own_package: whether the module is alone in its package; names of targets are shorter then.
    """
    images = {}
    versions = {}
    for label in sorted(sm_targets):
        of_label = images_of(label, sm_targets[label])
        images |= of_label
        versions[CUDA_VERSIONS[label]] = sorted({image: None for image in of_label.values()}, key = sm_target_key)
    libraries = [o for o in linkopts if o.removeprefix("-l") in _STUBS and o.startswith("-l")]
    kernel_module(
        name = name,
        embedded = [flashinfer_embedded(cubin) for cubin in embedded],
        # By the names that TUs have in messages and manifests.
        fewer_kernels = {"flashinfer/" + image: reason for image, reason in fewer_kernels.items()},
        linkopts = [o for o in linkopts if o not in libraries],
        settings = {sm: _SETTINGS + "sm_" + sm for sm in images} if own_package else {},
        sm_targets = images,
        stubs = [_CUDA + "stub_" + o.removeprefix("-l") for o in libraries],
        tu_prefix = "" if own_package else name + ".",
        tus = [flashinfer_tu(tu) for tu in tus],
        versions = versions,
        visibility = ["//visibility:public"],
    )
