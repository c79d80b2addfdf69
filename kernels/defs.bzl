"""kernel_module: one module, from its TUs to the shared library.

    kernel_module(
        name = "norm",
        sm_targets = ["8.0", "9.0a", "12.0f"],
        tus = [
            kernel_tu(src = "norm.cu", hdrs = ["norm.cuh"], deps = [":headers"]),
            kernel_tu(src = "norm_binding.cu", deps = [":headers"], device_code = False),
        ],
    )
"""

load("//kernels/private:kernel_module.bzl", _embedded_cubin = "embedded_cubin", _kernel_module = "kernel_module", _kernel_tu = "kernel_tu")

embedded_cubin = _embedded_cubin
kernel_module = _kernel_module
kernel_tu = _kernel_tu
