"""The actions of toolchains/cuda, each one step of nvcc_steps.py."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//tools:defs.bzl", "run_python")

visibility(["//toolchains/cuda/..."])

_CUDA_TOOLCHAIN = "//toolchains/cuda:toolchain_type"
TOOLCHAINS = [_CUDA_TOOLCHAIN] + use_cc_toolchain()

STEP_ATTRS = {
    "_steps": attr.label(
        default = "//toolchains/cuda/private:nvcc_steps.py",
        allow_single_file = True,
    ),
}

TU_ATTRS = STEP_ATTRS | {
    "copts": attr.string_list(doc = "nvcc's flags, without include directories and without SM targets. Default: none."),
    "deps": attr.label_list(providers = [CcInfo], doc = "Headers: `cuda_headers` or `cc_library` targets. Their include directories are searched in this order."),
    "hdrs": attr.label_list(allow_files = True, doc = "Headers that this TU includes itself, found through the include directories of `deps`."),
    "src": attr.label(mandatory = True, allow_single_file = [".cu"], doc = "The TU."),
}

def toolchains(ctx):
    """The CUDA and the C++ toolchain of a rule that has TOOLCHAINS."""
    return (ctx.toolchains[_CUDA_TOOLCHAIN].cuda, find_cc_toolchain(ctx))

def run_step(ctx, *, mnemonic, message, outputs, tu, arguments, inputs, step = None, program = None, cc = None, flags = None, unused = None):
    """Runs one step of nvcc_steps.py, or a program beside it that imports it.

    Args:
        ctx: the rule context; it must have TOOLCHAINS and STEP_ATTRS.
        mnemonic: the action's.
        message: progress message.
        outputs: dict of option to File.
        tu: string, the name of the TU, or of the module for a step that joins several.
        arguments: list of Args, in their order.
        inputs: depset of Files.
        step: the step's name.
        program: File, the program, for what is no step of nvcc_steps.py.
        cc: the C++ toolchain, for steps that run the host compiler.
        flags: Args of nvcc's flags, for steps that do a dry run.
        unused: File of the list of unused inputs, for steps that preprocess.
    """
    cuda, _ = toolchains(ctx)
    common = ctx.actions.args()
    if step:
        common.add(step)
    common.add("--nvcc", cuda.nvcc)
    common.add("--version", cuda.version)
    common.add("--tu", tu)
    if cc:
        common.add("--cxx", cc.compiler_executable)
    for option, output in outputs.items():
        common.add(option, output)
    run_python(
        ctx,
        program = program or ctx.file._steps,
        arguments = [common] + arguments + ([flags] if flags else []),
        inputs = depset([ctx.file._steps], transitive = [inputs, cuda.tools] + ([cc.all_files] if cc else [])),
        outputs = outputs.values(),
        mnemonic = mnemonic,
        progress_message = message,
        unused_inputs_list = unused,
        toolchain = _CUDA_TOOLCHAIN,
    )

def tu_name(src):
    """The name of a TU in messages and in names of internal linkage.

    Args:
        src: File, the TU.

    Returns:
        string: a path that is the same for every configuration and directory.
    """
    if not src.short_path.startswith("../"):
        return src.short_path
    repository, _, path = src.short_path.removeprefix("../").partition("/")

    # The name that the repository was declared with: canonical names differ between MODULE.bazel and WORKSPACE.
    return "%s/%s" % (repository.replace("+", "~").split("~")[-1], path)

def preprocess_arguments(ctx, contexts):
    """The arguments of a step that preprocesses the TU: its headers, and nvcc's flags.

    Args:
        ctx: the rule context; it must have TU_ATTRS.
        contexts: list of compilation contexts, in the order in which their directories are searched.

    Returns:
        tuple: Args of the TU, Args of the list of headers, Args of nvcc's flags, depset of the inputs.
    """
    headers = depset(ctx.files.hdrs, transitive = [c.headers for c in contexts])
    source = ctx.actions.args()
    source.add("--src", ctx.file.src)
    listing = ctx.actions.args()
    listing.add_all(headers, expand_directories = False)
    listing.use_param_file("--headers=%s", use_always = True)
    listing.set_param_file_format("multiline")
    flags = ctx.actions.args()
    flags.add("--")
    flags.add_all(depset(transitive = [c.includes for c in contexts]), format_each = "-I%s")
    flags.add_all(depset(transitive = [c.quote_includes for c in contexts]), format_each = "-Xcompiler=-iquote,%s")
    flags.add_all(depset(transitive = [c.system_includes for c in contexts]), before_each = "-isystem")
    flags.add_all(ctx.attr.copts)
    return (source, listing, flags, depset([ctx.file.src], transitive = [headers]))

def compilation_contexts(ctx, cuda):
    """The compilation contexts of a TU: its own dependencies' before the toolkit's."""
    return [d[CcInfo].compilation_context for d in ctx.attr.deps] + [cuda.headers.compilation_context]
