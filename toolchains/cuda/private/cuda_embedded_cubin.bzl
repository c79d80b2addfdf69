"""cuda_embedded_cubin: a cubin as read-only data, for host code that loads it itself."""

load(":actions.bzl", "STEP_ATTRS", "TOOLCHAINS", "run_step", "toolchains")
load(":providers.bzl", "CubinInfo", "EmbeddedCubinInfo")
load(":settings.bzl", "host_transition")

visibility(["//toolchains/cuda/..."])

def _cuda_embedded_cubin_impl(ctx):
    cuda, cc = toolchains(ctx)
    name = ctx.attr.cubin_name or ctx.label.name
    object = ctx.actions.declare_file(ctx.label.name + ".o")
    cubin = ctx.attr.cubin[CubinInfo] if ctx.attr.cubin else None
    arguments = ctx.actions.args()
    arguments.add("--symbol", ctx.attr.symbol)
    inputs = []
    if cubin:
        arguments.add("--cubin", cubin.cubin)
        arguments.add("--sm-target", cubin.sm_target)
        inputs.append(cubin.cubin)
    run_step(
        ctx,
        program = ctx.file._embed_step,
        mnemonic = "CudaEmbed",
        message = "Embedding cubin %s for %s, CUDA %s" % (name, cuda.cpu, cuda.version),
        outputs = {"--object": object},
        arguments = [arguments],
        inputs = depset(inputs),
        cc = cc,
        tu = name,
    )
    return [
        DefaultInfo(files = depset([object])),
        EmbeddedCubinInfo(kernel = ctx.attr.kernel, name = name, object = object, sm_target = cubin.sm_target if cubin else ""),
    ]

cuda_embedded_cubin = rule(
    implementation = _cuda_embedded_cubin_impl,
    doc = """Makes an object for the target CPU that has a cubin between the hidden symbols `<symbol>` and `<symbol>_end`.

The cubin is in a section `.cubin.<sm target>.<cubin_name>`, by which ModuleCheck finds it in the linked module.
Host objects refer to the embedded cubins of every SM target. Those that a build leaves out need a definition too: without
`cubin` there are 64 zeros.

Errors: a name or a symbol that is no identifier.""",
    attrs = STEP_ATTRS | {
        "cubin": attr.label(providers = [CubinInfo], doc = "The `cuda_library`. Default: none, 64 zeros are in its place."),
        "cubin_name": attr.string(doc = "An identifier, by which checks and messages call it. Default: the target's name."),
        "kernel": attr.string(mandatory = True, doc = "The kernel that host code asks it for. A wheel's build fails if the cubin lacks it."),
        "symbol": attr.string(mandatory = True, doc = "The symbol of its first byte."),
        "_embed_step": attr.label(default = "//toolchains/cuda/private:embed_step.py", allow_single_file = True),
    },
    cfg = host_transition,
    provides = [EmbeddedCubinInfo],
    toolchains = TOOLCHAINS,
)
