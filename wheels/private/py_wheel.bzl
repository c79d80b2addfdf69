"""py_wheel: modules packed into a Python wheel for one (CUDA version, CPU, SM targets), and checked."""

load("//:version.bzl", "VERSION")
load("//toolchains/cuda:defs.bzl", "CudaModuleInfo")
load("//toolchains/cuda:settings.bzl", "COMPRESSION_MODES", "FATBIN_COMPRESSION", "PLATFORMS", "SM_TARGETS", CUDA_VERSION = "VERSION")
load("//toolchains/cuda:sm_targets.bzl", "DEVICES", "runs_on")
load("//tools:defs.bzl", "run_python")

visibility(["//wheels"])

_MODULES = "//kernels:modules"

_wheel_transition = transition(
    implementation = lambda _settings, attr: {
        PLATFORMS: [str(Label("//toolchains/cc:%s_linux" % attr.cpu))],
        SM_TARGETS: attr.sm_targets,
        CUDA_VERSION: attr.cuda_version,
        FATBIN_COMPRESSION: attr.fatbin_compression,
    },
    inputs = [],
    outputs = [PLATFORMS, SM_TARGETS, CUDA_VERSION, FATBIN_COMPRESSION],
)

# What a module is made of does not depend on which others there are.
_module_transition = transition(
    implementation = lambda _settings, _attr: {_MODULES: []},
    inputs = [],
    outputs = [_MODULES],
)

def _run(ctx, program, mnemonic, message, arguments, inputs, outputs):
    """Runs a program of //tools/wheel, which finds its neighbours and the pinned libraries beside it."""
    run_python(
        ctx,
        program = program,
        arguments = arguments,
        inputs = depset(inputs + ctx.files._programs + [ctx.file._deflate, ctx.file._zstd]),
        outputs = outputs,
        mnemonic = mnemonic,
        progress_message = message,
    )

def _member(ctx, module):
    """Compresses one module; returns the member and what the zip's directory says of it."""
    stem = "%s/%s" % (ctx.label.name, module.name)
    member = ctx.actions.declare_file(stem + ".member")
    facts = ctx.actions.declare_file(stem + ".member.json")
    arguments = ctx.actions.args()
    arguments.add("--deflate", ctx.file._deflate)
    arguments.add("--level", ctx.attr.compression_level)
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

def _facts(ctx, module):
    """Measures one module on its bytes, and fails if it is not what it was built to be; returns what was measured."""
    facts = ctx.actions.declare_file("%s/%s.facts.json" % (ctx.label.name, module.name))
    arguments = ctx.actions.args()
    arguments.add("--module", module.library)
    arguments.add("--name", module.name)
    arguments.add("--cpu", ctx.attr.cpu)
    arguments.add("--cuda-version", ctx.attr.cuda_version)
    arguments.add("--deflate", ctx.file._deflate)
    arguments.add("--tag", ctx.attr.tag)
    arguments.add("--zstd", ctx.file._zstd)
    if module.images:
        arguments.add("--images", module.images)
    arguments.add_all(
        ["%s=%s" % (key, module.fewer_kernels[key]) for key in sorted(module.fewer_kernels)],
        before_each = "--fewer-kernels",
    )
    arguments.add_all(["%s %s %s" % (e.name, e.sm_target, e.kernel) for e in module.embedded], before_each = "--embedded")
    arguments.add("--facts", facts)
    _run(
        ctx,
        program = ctx.file._module_check,
        mnemonic = "ModuleCheck",
        message = "Checking %s of %s" % (module.name, ctx.label.name),
        arguments = [arguments],
        inputs = [module.library] + ([module.images] if module.images else []),
        outputs = [facts],
    )
    return facts

def _check(ctx, wheel, spec, listing, facts, modules):
    """The validation of a wheel: building it fails if this does."""
    stamp = ctx.actions.declare_file(ctx.label.name + ".checked")
    arguments = ctx.actions.args()
    arguments.add("--wheel", wheel)
    arguments.add("--spec", spec)
    arguments.add_all(
        ["%s=%s" % (name, ",".join(modules[name].supports)) for name in sorted(modules)],
        before_each = "--supports",
    )
    if ctx.file.baseline:
        arguments.add("--baseline", ctx.file.baseline)
    arguments.add("--stamp", stamp)
    _run(
        ctx,
        program = ctx.file._wheel_check,
        mnemonic = "WheelCheck",
        message = "Checking " + wheel.basename,
        arguments = [arguments, listing],
        inputs = [wheel, spec] + facts + ctx.files.baseline,
        outputs = [stamp],
    )
    return stamp

def _report(ctx, wheel):
    """What is in a wheel, by module and SM target: JSON and text."""
    data = ctx.actions.declare_file(ctx.label.name + ".report.json")
    text = ctx.actions.declare_file(ctx.label.name + ".report.txt")
    arguments = ctx.actions.args()
    arguments.add("report", wheel)
    arguments.add("--json", data)
    arguments.add("--text", text)
    _run(
        ctx,
        program = ctx.file._size_report,
        mnemonic = "WheelReport",
        message = "Reporting on " + wheel.basename,
        arguments = [arguments],
        inputs = [wheel],
        outputs = [data, text],
    )
    return [data, text]

def _py_wheel_impl(ctx):
    modules = {}
    for target in ctx.attr.modules:
        module = target[CudaModuleInfo]
        if module.name in modules:
            fail(("%s: module name '%s' is given twice.\n  expected: every module of a wheel has a name of its own, by which the runtime loads it\n" +
                  "  found: %s and %s\n  To do: drop one of them, or set library_name") %
                 (ctx.label, module.name, modules[module.name].library.owner, module.library.owner))
        modules[module.name] = module

    # Most modules support the same SM targets.
    supports = {}
    for module in modules.values():
        key = ",".join(module.supports)
        if key not in supports:
            supports[key] = [device for device in DEVICES if [sm for sm in module.supports if runs_on(sm, device)]]

    normalised = ctx.attr.distribution.replace("-", "_").replace(".", "_")
    wheel = ctx.actions.declare_file("%s-%s-%s.whl" % (normalised, ctx.attr.version, ctx.attr.tag))
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest.json")
    spec = ctx.actions.declare_file(ctx.label.name + ".spec.json")
    ctx.actions.write(spec, json.encode_indent(dict(
        asset_limit = int(ctx.attr.asset_limit),
        budget = int(ctx.attr.budget),
        compression_level = ctx.attr.compression_level,
        cpu = ctx.attr.cpu,
        cuda_version = ctx.attr.cuda_version,
        devices = ctx.attr.devices,
        distribution = ctx.attr.distribution,
        files = {f.basename: f.path for f in ctx.files.package_files},
        generator = "smwheel " + VERSION,
        growth_limit = ctx.attr.growth_limit,
        license = ctx.attr.license,
        license_files = {f.basename: f.path for f in ctx.files.license_files},
        minimum_driver = ctx.attr.minimum_driver,
        modules_directory = ctx.attr.modules_directory,
        name = ctx.label.name,
        not_built = ctx.attr.not_built,
        package = ctx.attr.package,
        siblings = ctx.attr.siblings,
        sm_family = ctx.attr.sm_family,
        sm_targets = ctx.attr.sm_targets,
        summary = ctx.attr.summary,
        # Of what modules support, only this is in the wheel: an SM target more in another wheel leaves this one alone.
        supports = {
            name: supports[",".join(modules[name].supports)]
            for name in sorted(modules)
        },
        tag = ctx.attr.tag,
        version = ctx.attr.version,
    ), indent = " ") + "\n")
    members = _words("--members=%s", ctx)
    facts_listing = _words("--facts=%s", ctx)
    inputs = [spec]
    facts = []
    for name in sorted(modules):
        measured = _facts(ctx, modules[name])
        member, member_facts = _member(ctx, modules[name])
        facts.append(measured)
        facts_listing.add_all([name, measured], uniquify = False)
        members.add(name)
        members.add_all([member, member_facts, measured])
        inputs += [member, member_facts, measured]
    arguments = ctx.actions.args()
    arguments.add("--deflate", ctx.file._deflate)
    arguments.add("--spec", spec)
    arguments.add("--wheel", wheel)
    arguments.add("--manifest", manifest)
    _run(
        ctx,
        program = ctx.file._wheel_pack,
        mnemonic = "WheelPack",
        message = "Packing " + wheel.basename,
        arguments = [arguments, members],
        inputs = inputs + ctx.files.package_files + ctx.files.license_files,
        outputs = [wheel, manifest],
    )
    return [
        DefaultInfo(files = depset([wheel])),
        OutputGroupInfo(
            _validation = depset([_check(ctx, wheel, spec, facts_listing, facts, modules)]),
            facts = depset(facts),
            manifest = depset([manifest]),
            modules = depset([m.library for m in modules.values()]),
            report = depset(_report(ctx, wheel)),
        ),
    ]

def _words(option, ctx):
    """Args that a program reads from a file, a word a line."""
    words = ctx.actions.args()
    words.use_param_file(option, use_always = True)
    words.set_param_file_format("multiline")
    return words

py_wheel = rule(
    implementation = _py_wheel_impl,
    doc = """Packs modules into a wheel and checks it on its bytes, as part of building it.

The modules are built for the wheel's CUDA version, CPU and SM targets, whatever the command line says, so wheels of
several versions can be built at once. Output groups:

- `manifest`: what is inside, the wheel's own manifest.json
- `report`: its size by module and SM target, as JSON and text
- `facts`: what was measured on each module, with the names of its kernels, JSON
- `modules`: the libraries

Errors: a module name that is given twice; a module whose device code is not what it was built from, or that asks more
of the machine than the tag says; a module that supports a promised device and has no image for it; a wheel that is not
under its limit or its budget, or has outgrown its baseline, with what grew; a zip that strict readers refuse.""",
    attrs = {
        "asset_limit": attr.string(mandatory = True, doc = "Bytes that every wheel must stay below, strictly."),
        "budget": attr.string(mandatory = True, doc = "Bytes that this wheel must stay below, strictly."),
        "baseline": attr.label(allow_single_file = [".json"], doc = "A report of the wheel as it was, to which `growth_limit` refers."),
        "compression_level": attr.int(default = 6, values = list(range(1, 13)), doc = "libdeflate's level of the members."),
        "cpu": attr.string(mandatory = True, values = ["aarch64", "x86_64"], doc = "The CPU that it runs on."),
        "cuda_version": attr.string(mandatory = True, doc = "CUDA toolkit version, `13.0`."),
        "devices": attr.string_list(doc = "Compute capabilities that the wheel promises to serve: a module that could be built for one must have an image that runs there."),
        "distribution": attr.string(mandatory = True, doc = "The distribution's name."),
        "fatbin_compression": attr.string(values = COMPRESSION_MODES, doc = "fatbinary's --compress-mode for all modules. Default: as the flags of each TU say."),
        "growth_limit": attr.string(default = "5", doc = "Percent by which the wheel may be larger than `baseline`."),
        "license": attr.string(default = "Apache-2.0", doc = "SPDX license expression."),
        "license_files": attr.label_list(allow_files = True, doc = "Put into the dist-info directory."),
        "minimum_driver": attr.string(mandatory = True, doc = "Oldest NVIDIA driver that runs the CUDA version."),
        "modules": attr.label_list(mandatory = True, cfg = _module_transition, providers = [CudaModuleInfo], doc = "The modules."),
        "modules_directory": attr.string(default = "jit_cache", doc = "Directory in the package that holds `<module>/<module>.so`."),
        "not_built": attr.string_dict(doc = "Modules that the wheel should have and that can't be built -> why. The manifest says so."),
        "package": attr.string(mandatory = True, doc = "The Python package's name."),
        "package_files": attr.label_list(allow_files = [".py"], doc = "Python files of the package."),
        "siblings": attr.string_list_dict(doc = "Version of each other wheel of the same CUDA version and CPU -> the compute capabilities that it serves. The package names it to a person whose GPU this wheel has no code for."),
        "sm_family": attr.string(mandatory = True, doc = "Name of the SM family."),
        "sm_targets": attr.string_list(mandatory = True, doc = "SM targets that each module embeds, where it has them."),
        "summary": attr.string(mandatory = True, doc = "One line for the metadata."),
        "tag": attr.string(mandatory = True, doc = "The compatibility tag."),
        "version": attr.string(mandatory = True, doc = "The wheel's version, with its local part."),
        "_deflate": attr.label(default = "@wheel_tools//:files", allow_single_file = True),
        "_module_check": attr.label(default = "//tools/wheel:module_check.py", allow_single_file = True),
        "_programs": attr.label(default = "//tools/wheel:programs"),
        "_size_report": attr.label(default = "//tools/wheel:size_report.py", allow_single_file = True),
        "_wheel_check": attr.label(default = "//tools/wheel:wheel_check.py", allow_single_file = True),
        "_wheel_member": attr.label(default = "//tools/wheel:wheel_member.py", allow_single_file = True),
        "_wheel_pack": attr.label(default = "//tools/wheel:wheel_pack.py", allow_single_file = True),
        "_zstd": attr.label(default = "//tools/wheel:libzstd", allow_single_file = True),
    },
    cfg = _wheel_transition,
)
