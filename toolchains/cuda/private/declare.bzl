"""Everything in toolchains/cuda/BUILD.bazel that follows from the table of toolkits."""

load(":cuda_stub.bzl", "cuda_stub")
load(":cuda_toolchain.bzl", "cuda_toolchain")
load(":system_headers.bzl", "system_headers")
load(":toolkits.bzl", "COMPONENTS", "CPUS", "STUBS", "TOOLKITS", "repository_name")

visibility(["//toolchains/cuda"])

def declare_toolkits(name = "cuda"):
    """Settings, toolchains and component labels of every toolkit.

    Args:
        name: prefix of the toolchains' names.
    """
    for version in TOOLKITS:
        native.config_setting(
            name = "is_" + version,
            flag_values = {":version": version},
        )
        tools = "@%s//:" % repository_name(version, "tools")
        for cpu in CPUS:
            toolchain = "%s_%s_%s" % (name, version, cpu)
            cuda_toolchain(
                name = toolchain,
                cpu = cpu,
                headers = tools + "headers",
                libs = "@%s//:files/lib" % repository_name(version, "runtime_" + cpu),
                nvcc = tools + "files/bin/nvcc",
                tags = ["manual"],
                tools = tools + "tools",
                version = version,
            )
            native.toolchain(
                name = toolchain + "_toolchain",
                exec_compatible_with = ["@platforms//cpu:x86_64", "@platforms//os:linux"],
                target_compatible_with = ["@platforms//cpu:" + cpu, "@platforms//os:linux"],
                target_settings = [":is_" + version],
                toolchain = ":" + toolchain,
                toolchain_type = ":toolchain_type",
            )
    for library, stub in STUBS.items():
        cuda_stub(
            name = "stub_" + library,
            functions = stub.functions,
            header = stub.header,
            library = library,
            soname = stub.soname,
            deps = [":" + stub.component] if stub.component else [],
            tags = ["manual"],
            visibility = ["//visibility:public"],
        )

    # The toolkit's own headers, for C++ code. CUDA code has them by its toolchain.
    system_headers(
        name = "headers",
        deps = select({":is_" + version: ["@%s//:headers" % repository_name(version, "tools")] for version in TOOLKITS}),
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )
    for component in COMPONENTS:
        native.alias(
            name = component,
            actual = select(
                {
                    ":is_" + version: "@%s//:headers" % repository_name(version, component)
                    for version, toolkit in TOOLKITS.items()
                    if component in toolkit.components
                },
                no_match_error = "no CUDA toolkit of the chosen version has the component " + component,
            ),
            tags = ["manual"],
            visibility = ["//visibility:public"],
        )
