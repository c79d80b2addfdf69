"""system_headers: headers of CUDA code, for C++ code."""

load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

visibility(["//toolchains/cuda/..."])

def _system_headers_impl(ctx):
    contexts = [d[CcInfo].compilation_context for d in ctx.attr.deps]
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(transitive = [c.headers for c in contexts]),
        system_includes = depset([d for c in contexts for d in c.includes.to_list() + c.system_includes.to_list()]),
    ))]

system_headers = rule(
    implementation = _system_headers_impl,
    doc = """The headers of `deps`, whose include directories are all searched as the system's.

C++ rules check that each header that is included is declared, and take none of a source directory for declared unless it
is a system header.""",
    attrs = {"deps": attr.label_list(mandatory = True, providers = [CcInfo], doc = "Headers, as `cuda_headers` declares them.")},
    provides = [CcInfo],
)
