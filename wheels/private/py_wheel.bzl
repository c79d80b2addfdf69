"""py_wheel: modules packed into a Python wheel for one (CUDA version, CPU, SM targets), and checked."""

load("//:version.bzl", "VERSION")
load("//toolchains/cuda:defs.bzl", "CudaModuleInfo")
load("//toolchains/cuda:settings.bzl", "PLATFORMS", "SM_TARGETS", CUDA_VERSION = "VERSION")
load("//tools:defs.bzl", "run_python")

visibility(["//wheels"])

_wheel_transition = transition(
    implementation = lambda _settings, attr: {
        PLATFORMS: [str(Label("//toolchains/cc:%s_linux" % attr.cpu))],
        SM_TARGETS: attr.sm_targets,
        CUDA_VERSION: attr.cuda_version,
    },
    inputs = [],
    outputs = [PLATFORMS, SM_TARGETS, CUDA_VERSION],
)

def _member(ctx, module):
    """Compresses one module; returns the member and what the zip's directory says of it."""
    stem = "%s/%s" % (ctx.label.name, module.name)
    member = ctx.actions.declare_file(stem + ".member")
    facts = ctx.actions.declare_file(stem + ".member.json")
    arguments = ctx.actions.args()
    arguments.add("--deflate", ctx.file._deflate)
    arguments.add("--file", module.library)
    arguments.add("--member", member)
    arguments.add("--facts", facts)
    run_python(
        ctx,
        program = ctx.file._wheel_member,
        arguments = [arguments],
        inputs = depset([ctx.file._deflate, module.library]),
        outputs = [member, facts],
        mnemonic = "WheelMember",
        progress_message = "Compressing %s of %s" % (module.name, ctx.label.name),
    )
    return member, facts

def _check(ctx, wheel, modules):
    """The validation of a wheel: building it fails if this does."""
    stamp = ctx.actions.declare_file(ctx.label.name + ".checked")
    arguments = ctx.actions.args()
    arguments.add("--wheel", wheel)
    arguments.add("--limit", ctx.attr.asset_limit)
    arguments.add("--budget", ctx.attr.budget)
    arguments.add_all(ctx.attr.devices, before_each = "--device")
    arguments.add_all(
        ["%s=%s" % (module.name, ",".join(module.supports)) for module in modules],
        before_each = "--supports",
    )
    arguments.add("--stamp", stamp)
    run_python(
        ctx,
        program = ctx.file._wheel_check,
        arguments = [arguments],
        inputs = depset([wheel, ctx.file._sm_targets]),
        outputs = [stamp],
        mnemonic = "WheelCheck",
        progress_message = "Checking " + wheel.basename,
    )
    return stamp

def _py_wheel_impl(ctx):
    modules = {}
    for target in ctx.attr.modules:
        module = target[CudaModuleInfo]
        if module.name in modules:
            fail(("%s: module name '%s' is given twice.\n  expected: every module of a wheel has a name of its own, by which the runtime loads it\n" +
                  "  found: %s and %s\n  To do: drop one of them, or set library_name") %
                 (ctx.label, module.name, modules[module.name].library.owner, module.library.owner))
        modules[module.name] = module

    normalised = ctx.attr.distribution.replace("-", "_").replace(".", "_")
    wheel = ctx.actions.declare_file("%s-%s-%s.whl" % (normalised, ctx.attr.version, ctx.attr.tag))
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest.json")
    spec = ctx.actions.declare_file(ctx.label.name + ".spec.json")
    ctx.actions.write(spec, json.encode_indent(dict(
        cpu = ctx.attr.cpu,
        cuda_version = ctx.attr.cuda_version,
        distribution = ctx.attr.distribution,
        files = {f.basename: f.path for f in ctx.files.package_files},
        generator = "smwheel " + VERSION,
        license = ctx.attr.license,
        license_files = {f.basename: f.path for f in ctx.files.license_files},
        minimum_driver = ctx.attr.minimum_driver,
        modules_directory = ctx.attr.modules_directory,
        package = ctx.attr.package,
        sm_family = ctx.attr.sm_family,
        sm_targets = ctx.attr.sm_targets,
        summary = ctx.attr.summary,
        tag = ctx.attr.tag,
        version = ctx.attr.version,
    ), indent = " ") + "\n")

    listing = ctx.actions.args()
    listing.use_param_file("--modules=%s", use_always = True)
    listing.set_param_file_format("multiline")
    inputs = [spec, ctx.file._deflate]
    for name in sorted(modules):
        module = modules[name]
        member, facts = _member(ctx, module)
        files = [member, facts] + ([module.images] if module.images else [])
        listing.add(name)
        listing.add_all(files)
        if not module.images:
            listing.add("-")
        inputs += files
    arguments = ctx.actions.args()
    arguments.add("--deflate", ctx.file._deflate)
    arguments.add("--spec", spec)
    arguments.add("--wheel", wheel)
    arguments.add("--manifest", manifest)
    run_python(
        ctx,
        program = ctx.file._wheel_pack,
        arguments = [arguments, listing],
        inputs = depset(inputs + ctx.files._pack + ctx.files.package_files + ctx.files.license_files),
        outputs = [wheel, manifest],
        mnemonic = "WheelPack",
        progress_message = "Packing " + wheel.basename,
    )
    return [
        DefaultInfo(files = depset([wheel])),
        OutputGroupInfo(
            _validation = depset([_check(ctx, wheel, modules.values())]),
            manifest = depset([manifest]),
            modules = depset([m.library for m in modules.values()]),
        ),
    ]

py_wheel = rule(
    implementation = _py_wheel_impl,
    doc = """Packs modules into a wheel and checks it, as part of building it.

The modules are built for the wheel's CUDA version, CPU and SM targets, whatever the command line says, so wheels of
several versions can be built at once. Output groups: `manifest` (what is inside, JSON), `modules` (the libraries).

Errors: a module name that is given twice; a module that supports a promised device and has no image for it; a wheel that is not under its limit or its budget, with its size, the excess
and the ten largest (module, SM target) pairs.""",
    attrs = {
        "asset_limit": attr.string(mandatory = True, doc = "Bytes that every wheel must stay below, strictly."),
        "budget": attr.string(mandatory = True, doc = "Bytes that this wheel must stay below, strictly."),
        "cpu": attr.string(mandatory = True, values = ["aarch64", "x86_64"], doc = "The CPU that it runs on."),
        "cuda_version": attr.string(mandatory = True, doc = "CUDA toolkit version, `13.0`."),
        "devices": attr.string_list(doc = "Compute capabilities that the wheel promises to serve: a module that could be built for one must have an image that runs there."),
        "distribution": attr.string(mandatory = True, doc = "The distribution's name."),
        "license": attr.string(default = "Apache-2.0", doc = "SPDX license expression."),
        "license_files": attr.label_list(allow_files = True, doc = "Put into the dist-info directory."),
        "minimum_driver": attr.string(mandatory = True, doc = "Oldest NVIDIA driver that runs the CUDA version."),
        "modules": attr.label_list(mandatory = True, providers = [CudaModuleInfo], doc = "The modules."),
        "modules_directory": attr.string(default = "jit_cache", doc = "Directory in the package that holds `<module>/<module>.so`."),
        "package": attr.string(mandatory = True, doc = "The Python package's name."),
        "package_files": attr.label_list(allow_files = [".py"], doc = "Python files of the package."),
        "sm_family": attr.string(mandatory = True, doc = "Name of the SM family."),
        "sm_targets": attr.string_list(mandatory = True, doc = "SM targets that each module embeds, where it has them."),
        "summary": attr.string(mandatory = True, doc = "One line for the metadata."),
        "tag": attr.string(mandatory = True, doc = "The compatibility tag."),
        "version": attr.string(mandatory = True, doc = "The wheel's version, with its local part."),
        "_deflate": attr.label(default = "@wheel_tools//:files", allow_single_file = True),
        "_pack": attr.label(default = "//tools/wheel:pack"),
        "_sm_targets": attr.label(default = "//tools/wheel:sm_targets.py", allow_single_file = True),
        "_wheel_check": attr.label(default = "//tools/wheel:wheel_check.py", allow_single_file = True),
        "_wheel_member": attr.label(default = "//tools/wheel:wheel_member.py", allow_single_file = True),
        "_wheel_pack": attr.label(default = "//tools/wheel:wheel_pack.py", allow_single_file = True),
    },
    cfg = _wheel_transition,
)
