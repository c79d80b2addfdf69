"""cuda_library: the device code of one TU for one SM target."""

load(":actions.bzl", "TOOLCHAINS", "TU_ATTRS", "compilation_contexts", "preprocess_arguments", "run_step", "toolchains", "tu_name")
load(":providers.bzl", "CubinInfo")
load(":settings.bzl", "device_transition")

visibility(["//toolchains/cuda/..."])

def _cuda_library_impl(ctx):
    cuda, cc = toolchains(ctx)
    name = ctx.label.name
    sm = ctx.attr.sm_target
    tu = tu_name(ctx.file.src)
    ii = ctx.actions.declare_file(name + ".ii")
    plan = ctx.actions.declare_file(name + ".plan.json")
    unused = ctx.actions.declare_file(name + ".unused")
    cubin = ctx.actions.declare_file(name + ".cubin")
    stub = ctx.actions.declare_file(name + ".stub.c")

    target = ctx.actions.args()
    target.add("--sm-target", sm)

    source, listing, flags, inputs = preprocess_arguments(ctx, compilation_contexts(ctx, cuda))
    run_step(
        ctx,
        step = "preprocess",
        mnemonic = "CudaPreprocess",
        message = "Preprocessing %s for SM target %s, CUDA %s" % (tu, sm, cuda.version),
        tu = tu,
        outputs = {"--ii": ii, "--plan": plan, "--unused": unused},
        arguments = [target, source, listing],
        inputs = inputs,
        cc = cc,
        flags = flags,
        unused = unused,
    )
    compile = ctx.actions.args()
    compile.add("--ii", ii)
    compile.add("--plan", plan)
    run_step(
        ctx,
        step = "cubin",
        mnemonic = "CudaCubin",
        message = "Compiling %s for SM target %s, CUDA %s" % (tu, sm, cuda.version),
        tu = tu,
        outputs = {"--cubin": cubin, "--stub": stub},
        arguments = [target, compile],
        inputs = depset([ii, plan]),
    )
    return [
        CubinInfo(cubin = cubin, plan = plan, sm_target = sm, stub = stub, tu = tu),
        DefaultInfo(files = depset([cubin])),
        OutputGroupInfo(preprocessed = depset([ii]), stub = depset([stub])),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    doc = """Compiles the device code of one TU for one SM target to a cubin.

Its configuration holds the CUDA version and nothing of a wheel, so every wheel names the same action. Output groups:
`preprocessed` (the text that cicc reads), `stub` (the host stub).

Errors: an SM target that nvcc does not know; a compile error, which names the TU and the SM target; a header of the
machine's own, which names it.""",
    attrs = TU_ATTRS | {
        "host_dependent": attr.bool(doc = "The device code depends on the host CPU: compile it for each. Default: False, compile it once."),
        "sm_target": attr.string(mandatory = True, doc = "One SM target, such as `8.0`, `9.0a` or `12.0f`."),
    },
    cfg = device_transition,
    provides = [CubinInfo],
    toolchains = TOOLCHAINS,
)
