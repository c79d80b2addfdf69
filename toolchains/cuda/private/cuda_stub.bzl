"""cuda_stub: a library with the functions of one of CUDA's and nothing in them, to link against."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//tools:defs.bzl", "run_python")
load(":actions.bzl", "TOOLCHAINS", "toolchains")
load(":settings.bzl", "host_transition")

visibility(["//toolchains/cuda/..."])

def _cuda_stub_impl(ctx):
    cuda, cc = toolchains(ctx)
    soname = ctx.attr.soname
    if "%s" in soname:
        soname = soname % cuda.version.split(".")[0]
    library = ctx.actions.declare_file("%s/lib%s.so" % (ctx.label.name, ctx.attr.library))
    contexts = [d[CcInfo].compilation_context for d in ctx.attr.deps] + [cuda.headers.compilation_context]
    arguments = ctx.actions.args()
    arguments.add("--cxx", cc.compiler_executable)
    arguments.add("--header", ctx.attr.header)
    arguments.add("--functions", ctx.attr.functions)
    arguments.add("--soname", soname)
    arguments.add("--out", library)
    arguments.add("--")
    for context in contexts:
        arguments.add_all(context.includes)
        arguments.add_all(context.system_includes)
    run_python(
        ctx,
        program = ctx.file._stub_step,
        arguments = [arguments],
        inputs = depset(transitive = [cc.all_files] + [c.headers for c in contexts]),
        outputs = [library],
        mnemonic = "CudaStub",
        progress_message = "Making the stub of %s for %s" % (soname, cuda.cpu),
        toolchain = "@bazel_tools//tools/cpp:toolchain_type",
    )
    return [DefaultInfo(files = depset([library]))]

cuda_stub = rule(
    implementation = _cuda_stub_impl,
    doc = """A shared library with the soname of one of CUDA's and the functions that its header declares, which do nothing.

A module that calls one of them is linked to it, and asks the loader for the real one. Its symbols stay without a version,
which any version of the real one has, so the driver's library need not be here, nor hundreds of megabytes of the toolkit's.""",
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], doc = "Where the header is, if not in the toolkit's own headers."),
        "functions": attr.string(mandatory = True, doc = "Pattern of what the functions' names begin with, `nvrtc`."),
        "header": attr.string(mandatory = True, doc = "The header that declares them, `nvrtc.h`."),
        "library": attr.string(mandatory = True, doc = "Name of the library, `cublas`."),
        "soname": attr.string(mandatory = True, doc = "Its soname, `libcublas.so.%s`, where %s stands for the toolkit's major version."),
        "_stub_step": attr.label(default = "//toolchains/cuda/private:stub_step.py", allow_single_file = True),
    },
    cfg = host_transition,
    toolchains = TOOLCHAINS,
)
