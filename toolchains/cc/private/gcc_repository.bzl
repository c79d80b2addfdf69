"""gcc_repository: GCC and its libraries from pinned Debian packages, for both CPUs."""

load("//toolchains/cc/private:cpus.bzl", "BINUTILS", "CPUS", "DRIVERS", "GCC")
load("//tools:defs.bzl", "execute_python")

visibility(["//toolchains/cc/..."])

def _gcc_repository_impl(rctx):
    groups = sorted(CPUS) + ["shared"]
    rctx.report_progress("apt: GCC %s of Debian, 200 MB" % GCC)
    arguments = ["fetch", "--lock", rctx.path(rctx.attr.lock)]
    for group in groups:
        arguments += ["--group", group, "--dest", group]
    execute_python(rctx, rctx.attr._debian, arguments)

    rctx.report_progress("arranging GCC's trees")
    arguments = [".", "--gcc-version", GCC]
    for cpu in sorted(CPUS):
        arguments += ["--tree", "%s=%s" % (cpu, CPUS[cpu].gcc)]
    for tool in DRIVERS + BINUTILS:
        arguments += ["--tool", tool]
    execute_python(rctx, rctx.attr._arrange, arguments)

    for cpu, tree in CPUS.items():
        substitutions = {
            "@CPU@": cpu,
            "@CXX_INCLUDE@": ":".join(["$tree/" + path for path in tree.cxx_include + tree.c_include]),
            "@C_INCLUDE@": ":".join(["$tree/" + path for path in tree.c_include]),
        }
        for tool in DRIVERS + BINUTILS:
            rctx.template(
                "bin/%s-linux-gnu-%s" % (cpu, tool),
                rctx.attr._driver if tool in DRIVERS else rctx.attr._binutil,
                substitutions | {"@TOOL@": tool},
                executable = True,
            )
    rctx.template("BUILD.bazel", rctx.attr._build, {
        "@CONFIG@": str(Label("//toolchains/cc/private:cc_toolchain_config.bzl")),
        "@CPUS@": repr(sorted(CPUS)),
    })

gcc_repository = repository_rule(
    implementation = _gcc_repository_impl,
    doc = """GCC from pinned Debian packages.

    x86_64/ aarch64/  per target CPU: compiler (it runs on x86_64), headers and libraries, one source directory each
    lib/              the libraries that the compilers and binutils themselves need
    bin/              the tools, as wrappers that can be called from any directory
    libstdcxx/        libstdc++.a per CPU, for who takes a member of it
    pin               a digest of each directory: the ordinary input that changes with the source directories
""",
    attrs = {
        "lock": attr.label(
            default = Label("//toolchains/cc:debian.lock.json"),
            doc = "The pinned packages, in groups: one per CPU, and `shared` for the libraries in lib/.",
        ),
        "_arrange": attr.label(default = Label("//toolchains/cc/private:arrange.py")),
        "_binutil": attr.label(default = Label("//toolchains/cc/private:binutil.sh")),
        "_build": attr.label(default = Label("//toolchains/cc/private:gcc.BUILD.tpl")),
        "_debian": attr.label(default = Label("//tools/fetch:debian.py")),
        "_driver": attr.label(default = Label("//toolchains/cc/private:driver.sh")),
    },
)
