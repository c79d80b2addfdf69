"""Modules of FlashInfer, from the description that importer.py wrote of them."""

load("//kernels:defs.bzl", "kernel_module", "kernel_tu")

def flashinfer_tu(tu):
    """Describes one TU for `kernel_module`, from its entry in @flashinfer//:modules.bzl."""
    return kernel_tu(
        src = "@flashinfer//:" + tu["src"],
        hdrs = ["@flashinfer//:" + h for h in tu["hdrs"]],
        # The order is that of upstream's command line (flashinfer/jit/cpp_ext.py).
        deps = ["@flashinfer_sources//:" + t for t in tu["third_party"] if t == "cccl"] +
               ["//toolchains/cuda:" + c for c in tu["toolkit_components"]] +
               ["@tvm_ffi//:headers", "@flashinfer//:first_party"] +
               ["@flashinfer_sources//:" + t for t in tu["third_party"] if t != "cccl"],
        copts = tu["copts"],
        device_code = tu["device_code"],
    )

def flashinfer_module(name, module):
    """Declares one module.

    Args:
        name: the module's name, by which FlashInfer loads it.
        module: its entry in @flashinfer//:modules.bzl.
    """
    kernel_module(
        name = name,
        linkopts = module["linkopts"],
        sm_targets = module["sm_targets"],
        tus = [flashinfer_tu(tu) for tu in module["tus"]],
        visibility = ["//visibility:public"],
    )
