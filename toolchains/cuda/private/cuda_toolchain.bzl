"""cuda_toolchain: a CUDA toolkit of one version, for one target CPU."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load(":providers.bzl", "CudaToolchainInfo")

visibility(["//toolchains/cuda/..."])

def _cuda_toolchain_impl(ctx):
    return [platform_common.ToolchainInfo(cuda = CudaToolchainInfo(
        cpu = ctx.attr.cpu,
        headers = ctx.attr.headers[CcInfo],
        libs = ctx.file.libs,
        nvcc = ctx.file.nvcc,
        tools = depset(ctx.files.tools),
        version = ctx.attr.version,
    ))]

cuda_toolchain = rule(
    implementation = _cuda_toolchain_impl,
    doc = "Declares a CUDA toolkit. Register it with `toolchain()`, with `target_settings` that select its version.",
    attrs = {
        "cpu": attr.string(mandatory = True, values = ["aarch64", "x86_64"], doc = "The target CPU."),
        "headers": attr.label(mandatory = True, providers = [CcInfo], doc = "The toolkit's headers (`cuda_headers`)."),
        "libs": attr.label(mandatory = True, allow_single_file = True, doc = "Directory with the target's libcudart."),
        "nvcc": attr.label(mandatory = True, allow_single_file = True, doc = "bin/nvcc."),
        "tools": attr.label(mandatory = True, allow_files = True, doc = "The directories bin/ and nvvm/."),
        "version": attr.string(mandatory = True, doc = "Toolkit version, `13.0`."),
    },
    provides = [platform_common.ToolchainInfo],
)
