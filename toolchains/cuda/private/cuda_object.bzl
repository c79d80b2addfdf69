"""cuda_object: the host code of one TU."""

load(":actions.bzl", "TOOLCHAINS", "TU_ATTRS", "compilation_contexts", "preprocess_arguments", "run_step", "toolchains", "tu_name")
load(":providers.bzl", "CubinInfo", "CudaObjectInfo")
load(":settings.bzl", "host_transition")
load(":sm_targets.bzl", "toolkit_supports")

visibility(["//toolchains/cuda/..."])

def _cuda_object_impl(ctx):
    cuda, cc = toolchains(ctx)
    name = ctx.label.name
    tu = tu_name(ctx.file.src)
    cpp = ctx.actions.declare_file(name + ".cudafe1.cpp")
    plan = ctx.actions.declare_file(name + ".plan.json")
    unused = ctx.actions.declare_file(name + ".unused")
    object = ctx.actions.declare_file(name + ".o")
    canonical = ctx.attr.canonical[CubinInfo] if ctx.attr.canonical else None

    front = ctx.actions.args()
    front.add("--cpu", cuda.cpu)
    sm_targets = [sm for sm in ctx.attr.sm_targets if toolkit_supports(cuda.version, sm) != False]
    front.add_all(sm_targets, before_each = "--sm-target")
    front.add("--device-code", "yes" if canonical else "no")
    contexts = compilation_contexts(ctx, cuda)
    source, listing, flags, inputs = preprocess_arguments(ctx, contexts)
    run_step(
        ctx,
        step = "host-front",
        mnemonic = "CudaHostFront",
        message = "Preprocessing the host code of %s for %s, CUDA %s" % (tu, cuda.cpu, cuda.version),
        tu = tu,
        outputs = {"--cpp": cpp, "--plan": plan, "--unused": unused},
        arguments = [front, source, listing],
        inputs = inputs,
        cc = cc,
        flags = flags,
        unused = unused,
    )
    compiled = [cpp, plan]
    back = ctx.actions.args()
    back.add("--cpu", cuda.cpu)
    back.add("--cpp", cpp)
    back.add("--plan", plan)
    if canonical:
        # A name of its own, so that the key does not change with the SM target that happens to be the canonical one.
        stub = ctx.actions.declare_file(name + ".canonical.stub.c")
        ctx.actions.symlink(output = stub, target_file = canonical.stub)
        back.add("--stub", stub)
        compiled.append(stub)
    run_step(
        ctx,
        step = "host-compile",
        mnemonic = "CudaHostCompile",
        message = "Compiling the host code of %s for %s, CUDA %s" % (tu, cuda.cpu, cuda.version),
        tu = tu,
        outputs = {"--object": object},
        arguments = [back],
        # Preprocessed text includes nothing but the toolkit's own run-time headers.
        inputs = depset(compiled, transitive = [cuda.headers.compilation_context.headers]),
        cc = cc,
    )
    return [
        CudaObjectInfo(canonical = canonical, object = object, tu = tu),
        DefaultInfo(files = depset([object])),
        OutputGroupInfo(preprocessed = depset([cpp])),
    ]

cuda_object = rule(
    implementation = _cuda_object_impl,
    doc = """Compiles the host code of one TU for the target CPU.

The object does not depend on the SM targets that a wheel embeds: it refers to its fatbin by an external symbol, which
`cuda_shared_library` supplies. Output group: `preprocessed` (the text that the host compiler reads).""",
    attrs = TU_ATTRS | {
        "canonical": attr.label(providers = [CubinInfo], doc = "The TU's `cuda_library` whose host stub is compiled in. None for a TU without device code, which is then checked."),
        "sm_targets": attr.string_list(mandatory = True, doc = "All SM targets that the module can have, for host code that asks for them (`__CUDA_ARCH_LIST__`). Those that the toolkit does not know are left out."),
    },
    cfg = host_transition,
    provides = [CudaObjectInfo],
    toolchains = TOOLCHAINS,
)
