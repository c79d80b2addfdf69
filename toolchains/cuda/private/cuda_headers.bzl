"""cuda_headers: include directories as they lie in the source tree, for CUDA and C++ rules."""

load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

visibility(["//toolchains/cuda/..."])

def _directory(ctx, path):
    return "/".join([part for part in [ctx.label.workspace_root, ctx.label.package, path] if part and part != "."])

def _cuda_headers_impl(ctx):
    for file in ctx.files.hdrs:
        if not file.is_source:
            fail("%s: %s is generated, but headers of CUDA code must be source files. Generate it in a repository rule." % (ctx.label, file.short_path))
    context = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        includes = depset([_directory(ctx, d) for d in ctx.attr.includes]),
        system_includes = depset([_directory(ctx, d) for d in ctx.attr.system_includes]),
    )
    own = CcInfo(compilation_context = context)
    return [
        cc_common.merge_cc_infos(direct_cc_infos = [own], cc_infos = [d[CcInfo] for d in ctx.attr.deps]),
        DefaultInfo(files = depset(ctx.files.hdrs)),
    ]

cuda_headers = rule(
    implementation = _cuda_headers_impl,
    doc = """Headers, and the directories in which they are searched.

A directory as label (a source directory) stands for all that is in it, at the cost of one input; its contents are
tracked with the startup flag in .bazelrc.""",
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], doc = "Headers that these include."),
        "hdrs": attr.label_list(allow_files = True, doc = "Headers or source directories. Default: none, only the directories' names."),
        "includes": attr.string_list(doc = "Directories for -I, relative to the package."),
        "system_includes": attr.string_list(doc = "Directories for -isystem, relative to the package."),
    },
    provides = [CcInfo],
)
