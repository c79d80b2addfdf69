"""libstdcxx_nonshared: the few members of libstdc++.a that a module must carry itself."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain", "use_cpp_toolchain")

visibility(["//toolchains/cc"])

def _libstdcxx_nonshared_impl(ctx):
    cc = find_cpp_toolchain(ctx)
    archive = ctx.actions.declare_file(ctx.label.name + ".a")
    arguments = ctx.actions.args()
    arguments.add(cc.ar_executable)
    arguments.add(archive)
    arguments.add(ctx.file.static)
    arguments.add_all(ctx.attr.members)
    ctx.actions.run_shell(
        # The archive's index has no time stamps or owners (D).
        command = 'set -e; ar=$PWD/$1; out=$PWD/$2; from=$PWD/$3; shift 3; cd "$(mktemp -d)"; "$ar" x "$from" "$@"; "$ar" rcsD "$out" "$@"',
        arguments = [arguments],
        inputs = depset([ctx.file.static], transitive = [cc.all_files]),
        outputs = [archive],
        mnemonic = "CcNonshared",
        execution_requirements = {"supports-path-mapping": "1"},
        toolchain = "@bazel_tools//tools/cpp:toolchain_type",
    )
    return [DefaultInfo(files = depset([archive]))]

libstdcxx_nonshared = rule(
    implementation = _libstdcxx_nonshared_impl,
    doc = """Some members of libstdc++.a as an archive.

A module that uses a symbol newer than its platform tag allows takes it from here, everything else from the machine's
libstdc++.so.6. Red Hat's gcc-toolset does the same and calls the archive libstdc++_nonshared.a.""",
    attrs = {
        "members": attr.string_list(mandatory = True, doc = "Names of the members."),
        "static": attr.label(mandatory = True, allow_single_file = [".a"], doc = "libstdc++.a of the target CPU."),
    },
    toolchains = use_cpp_toolchain(),
)
