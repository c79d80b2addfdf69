"""cuda_shared_library: host objects and fatbins, linked into a module."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load(":actions.bzl", "STEP_ATTRS", "TOOLCHAINS", "run_step", "toolchains")
load(":providers.bzl", "CubinInfo", "CudaModuleInfo", "CudaObjectInfo", "CudaStubInfo", "EmbeddedCubinInfo")
load(":settings.bzl", "FatbinCompressionInfo", "host_transition")
load(":sm_targets.bzl", "sm_target_key")

visibility(["//toolchains/cuda/..."])

def _fatbin(ctx, cuda, cc, name, tus):
    """One object with the fatbins of all TUs that have device code, and the file of their images' sizes."""
    images = ctx.actions.args()
    images.use_param_file("--images=%s", use_always = True)
    images.set_param_file_format("multiline")
    inputs = []
    for object, cubins in tus:
        plan = cubins[0].plan
        images.add_all(["TU", object.tu])
        images.add_all([plan, object.canonical.stub])
        inputs += [plan, object.canonical.stub]
        for cubin in cubins:
            images.add_all(["IMAGE", cubin.sm_target])
            images.add_all([cubin.cubin, cubin.stub])
            inputs += [cubin.cubin, cubin.stub]
    fatbin = ctx.actions.declare_file(ctx.label.name + ".fatbin.o")
    sizes = ctx.actions.declare_file(ctx.label.name + ".images.json")
    mode = ctx.actions.args()
    mode.add("--compression", ctx.attr._fatbin_compression[FatbinCompressionInfo].mode)
    run_step(
        ctx,
        program = ctx.file._fatbin_step,
        mnemonic = "CudaFatbin",
        message = "Joining the cubins of %s for %s, CUDA %s" % (name, cuda.cpu, cuda.version),
        outputs = {"--object": fatbin, "--sizes": sizes},
        arguments = [mode, images],
        inputs = depset(inputs),
        cc = cc,
        tu = name,
    )
    return fatbin, sizes

def _cuda_shared_library_impl(ctx):
    cuda, cc = toolchains(ctx)
    name = ctx.attr.library_name or ctx.label.name
    cubins = {}
    for target in ctx.attr.cubins:
        cubin = target[CubinInfo]
        if cubin.sm_target in cubins.setdefault(cubin.tu, {}):
            fail("%s: TU %s is given twice for SM target %s" % (ctx.label, cubin.tu, cubin.sm_target))
        cubins[cubin.tu][cubin.sm_target] = cubin
    objects = [target[CudaObjectInfo] for target in ctx.attr.objects]
    in_fatbins = sorted({sm: None for by_sm in cubins.values() for sm in by_sm}, key = sm_target_key)
    embedded = [target[EmbeddedCubinInfo] for target in ctx.attr.embedded]
    present = [e for e in embedded if e.sm_target]
    sm_targets = sorted({sm: None for sm in in_fatbins + [e.sm_target for e in present]}, key = sm_target_key)
    with_device_code = [o for o in objects if o.canonical]
    if (with_device_code or embedded) and not sm_targets:
        fail(("%s: none of the SM targets that this build asks for is one that the module has.\n" +
              "  expected: at least one of %s\n  To do: name some, as in --//toolchains/cuda:sm_targets=8.0,9.0a") %
             (ctx.label, ", ".join(ctx.attr.sm_targets)))
    tus = [
        (o, [cubins[o.tu][sm] for sm in in_fatbins])
        for o in with_device_code
    ]
    linked = [o.object for o in objects] + [e.object for e in embedded]
    sizes = None
    if tus:
        fatbin, sizes = _fatbin(ctx, cuda, cc, name, tus)
        linked.append(fatbin)

    linking = [d[CcInfo].linking_context for d in ctx.attr.deps]
    for context in linking:
        for linker_input in context.linker_inputs.to_list():
            for library in linker_input.libraries:
                linked += library.pic_objects or library.objects or [library.pic_static_library or library.static_library]

    stubs = [target[CudaStubInfo] for target in ctx.attr.stubs + [ctx.attr._driver]]
    needed = [stub.library for stub in stubs if not stub.has_functions]
    called = depset([stub.library for stub in stubs if stub.has_functions]).to_list()
    library = ctx.actions.declare_file("%s/%s.so" % (ctx.label.name, name))
    arguments = ctx.actions.args()
    arguments.add("-shared")
    arguments.add("-o", library)
    arguments.add_all(linked)
    arguments.add_all(ctx.files.link_late)

    # Nothing that is linked in from an archive is part of the module's interface.
    arguments.add("-Wl,--exclude-libs,ALL")
    arguments.add_all(["-Wl,--gc-sections", "-Wl,--build-id=none", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack", "-s"])
    arguments.add(cuda.libs, format = "-L%s")

    # As upstream does, but a module that does not call a library need not find it when it is loaded.
    arguments.add_all(["-Wl,--as-needed", "-l:libcudart.so." + cuda.version.split(".")[0]])
    arguments.add_all(ctx.attr.linkopts)
    arguments.add_all(called)
    arguments.add_all(needed, before_each = "-Wl,--no-as-needed")
    ctx.actions.run(
        executable = cc.compiler_executable,
        arguments = [arguments],
        inputs = depset(linked + ctx.files.link_late + called + needed + [cuda.libs], transitive = [cc.all_files]),
        outputs = [library],
        mnemonic = "CudaLink",
        progress_message = "Linking %s for %s, CUDA %s" % (name, cuda.cpu, cuda.version),
        execution_requirements = {"supports-path-mapping": "1"},
        toolchain = "@bazel_tools//tools/cpp:toolchain_type",
    )
    return [
        CudaModuleInfo(
            embedded = present,
            fewer_kernels = ctx.attr.fewer_kernels,
            images = sizes,
            library = library,
            name = name,
            sm_targets = sm_targets,
            supports = ctx.attr.sm_targets,
        ),
        DefaultInfo(files = depset([library])),
    ]

cuda_shared_library = rule(
    implementation = _cuda_shared_library_impl,
    doc = """Links the TUs of a module, with a fatbin of the given cubins for each, into a shared library.

Errors: two SM targets whose host stubs differ (names the TU and the SM targets); no SM target that the build asks for.""",
    attrs = STEP_ATTRS | {
        "cubins": attr.label_list(providers = [CubinInfo], doc = "`cuda_library` targets: every TU with device code for every SM target to embed."),
        "deps": attr.label_list(cfg = host_transition, providers = [CcInfo], doc = "C++ libraries that are linked in."),
        "embedded": attr.label_list(providers = [EmbeddedCubinInfo], doc = "`cuda_embedded_cubin` targets: every one whose symbols the objects refer to."),
        "fewer_kernels": attr.string_dict(doc = "Why the image of a TU for an SM target may lack kernels that another image of the TU has, by `TU SM target`: `{\"a/b.cu 7.5\": \"needs cp.async\"}`. A wheel's build fails for any other image that does."),
        "library_name": attr.string(doc = "Name that the runtime loads the module by. Default: the target's name."),
        "link_late": attr.label_list(allow_files = [".a"], doc = "Archives that are searched after the objects and before the C++ library; none of their symbols is exported.", default = ["//toolchains/cc:libstdcxx_nonshared"]),
        "linkopts": attr.string_list(doc = "More flags for the linker."),
        "objects": attr.label_list(providers = [CudaObjectInfo], mandatory = True, doc = "`cuda_object` targets: every TU."),
        "sm_targets": attr.string_list(doc = "All SM targets that the module can be built for, for the check of what a wheel promises and for messages."),
        "stubs": attr.label_list(providers = [CudaStubInfo], doc = "Libraries that the module may call, as `//toolchains/cuda:stub_<library>`: `cublas`, `cublasLt`, `nccl`, `nvrtc`, and torch's. Every module may call the driver's."),
        "_driver": attr.label(default = "//toolchains/cuda:stub_cuda", providers = [CudaStubInfo]),
        "_fatbin_compression": attr.label(default = "//toolchains/cuda:fatbin_compression"),
        "_fatbin_step": attr.label(default = "//toolchains/cuda/private:fatbin_step.py", allow_single_file = True),
    },
    provides = [CudaModuleInfo],
    toolchains = TOOLCHAINS,
)
