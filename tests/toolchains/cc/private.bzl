"""Rules for the tests of the host compiler."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")

visibility("//tests/...")

_for_platform = transition(
    implementation = lambda _settings, attr: {"//command_line_option:platforms": str(attr.platform)},
    inputs = [],
    outputs = ["//command_line_option:platforms"],
)

def _compiled_impl(ctx):
    """Calls the compiler as the CUDA rules do: the path of the toolchain's compiler, with all of its files."""
    cc = find_cc_toolchain(ctx)
    outputs = {kind: ctx.actions.declare_file("%s.%s" % (ctx.label.name, kind)) for kind in ["o", "d", "ii", "so"]}

    def run(arguments, inputs, outputs):
        ctx.actions.run(
            executable = cc.compiler_executable,
            arguments = arguments,
            inputs = depset(inputs, transitive = [cc.all_files]),
            outputs = outputs,
            mnemonic = "CompilerProbe",
        )

    compile = ctx.actions.args()
    compile.add_all(["-g", "-std=c++17", "-fPIC", "-MD", "-MF", outputs["d"], "-c", ctx.file.src, "-o", outputs["o"]])
    run([compile], [ctx.file.src], [outputs["o"], outputs["d"]])

    preprocess = ctx.actions.args()
    preprocess.add_all(["-std=c++17", "-E", ctx.file.src, "-o", outputs["ii"]])
    run([preprocess], [ctx.file.src], [outputs["ii"]])

    link = ctx.actions.args()
    link.add_all(["-shared", outputs["o"], "-o", outputs["so"]])
    run([link], [outputs["o"]], [outputs["so"]])

    files = ctx.actions.declare_file(ctx.label.name + ".files")
    ctx.actions.write(files, "".join(["%s\n" % file.path for file in cc.all_files.to_list()]))
    return [DefaultInfo(files = depset(outputs.values() + [files]))]

compiled = rule(
    implementation = _compiled_impl,
    cfg = _for_platform,
    doc = "A source file preprocessed, compiled and linked for a platform, with the list of the toolchain's files.",
    attrs = {
        "platform": attr.label(mandatory = True),
        "src": attr.label(mandatory = True, allow_single_file = True),
    },
    toolchains = use_cc_toolchain(),
)

def _built_for_impl(ctx):
    binary = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = binary, target_file = ctx.executable.binary, is_executable = True)
    return [DefaultInfo(files = depset([binary]), executable = binary)]

built_for = rule(
    implementation = _built_for_impl,
    cfg = _for_platform,
    doc = "A binary built for a platform.",
    executable = True,
    attrs = {
        "binary": attr.label(mandatory = True, executable = True, cfg = "target"),
        "platform": attr.label(mandatory = True),
    },
)
