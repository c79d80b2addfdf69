"""cuda_stub: an empty library in place of one of CUDA's, to link against."""

load(":actions.bzl", "TOOLCHAINS", "toolchains")
load(":settings.bzl", "host_transition")

visibility(["//toolchains/cuda/..."])

def _cuda_stub_impl(ctx):
    cuda, cc = toolchains(ctx)
    soname = ctx.attr.soname
    if "%s" in soname:
        soname = soname % cuda.version.split(".")[0]
    library = ctx.actions.declare_file("%s/lib%s.so" % (ctx.label.name, ctx.attr.library))
    arguments = ctx.actions.args()
    arguments.add_all(["-shared", "-nostdlib", "-Wl,--build-id=none", "-s", "-x", "c++", "/dev/null"])
    arguments.add(soname, format = "-Wl,-soname,%s")
    arguments.add("-o", library)
    ctx.actions.run(
        executable = cc.compiler_executable,
        arguments = [arguments],
        inputs = cc.all_files,
        outputs = [library],
        mnemonic = "CudaStub",
        progress_message = "Making the stub of %s for %s" % (soname, cuda.cpu),
        execution_requirements = {"supports-path-mapping": "1"},
        toolchain = "@bazel_tools//tools/cpp:toolchain_type",
    )
    return [DefaultInfo(files = depset([library]))]

cuda_stub = rule(
    implementation = _cuda_stub_impl,
    doc = """An empty shared library with the soname of one of CUDA's.

A module that is linked to it asks the loader for the real one. Its symbols stay without a version, which any version of
the real one has, so the driver's library need not be here, nor hundreds of megabytes of the toolkit's.""",
    attrs = {
        "library": attr.string(mandatory = True, doc = "Name of the library, `cublas`."),
        "soname": attr.string(mandatory = True, doc = "Its soname, `libcublas.so.%s`, where %s stands for the toolkit's major version."),
    },
    cfg = host_transition,
    toolchains = TOOLCHAINS,
)
