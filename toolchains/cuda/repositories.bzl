"""The external repositories of the CUDA toolkits, for MODULE.bazel (`cuda`) and WORKSPACE (`cuda_repositories`).

Each is fetched only when a build needs it.
"""

load("//toolchains/cuda/private:toolkits.bzl", "CPUS", "TOOLKITS", "repository_name")
load("//tools/fetch:defs.bzl", "pypi_files")

_TOOLS_BUILD = """
load("{defs}", "cuda_headers")

package(default_visibility = ["//visibility:public"])

exports_files(["files/bin/nvcc", "files/lib"])

filegroup(name = "tools", srcs = ["files/bin", "files/nvvm"])

cuda_headers(name = "headers", hdrs = ["files/include"], includes = ["files/include"], system_includes = ["files/include/cccl"])
"""

_RUNTIME_BUILD = """
exports_files(["files/lib"], visibility = ["//visibility:public"])
"""

_COMPONENT_BUILD = """
load("{defs}", "cuda_headers")

cuda_headers(name = "headers", hdrs = ["files/include"], system_includes = ["files/include"], visibility = ["//visibility:public"])
"""

def cuda_repositories():
    """Declares the repositories of every toolkit in private/toolkits.bzl."""
    defs = str(Label("//toolchains/cuda:defs.bzl"))
    for version, toolkit in TOOLKITS.items():
        pypi_files(
            name = repository_name(version, "tools"),
            build_file_content = _TOOLS_BUILD.format(defs = defs),
            cpu = "x86_64",
            keep = ["bin/", "include/", "nvvm/"],
            lock = Label(toolkit.lock),
            packages = toolkit.tools,
            strip_prefix = toolkit.strip_prefix,
        )
        for cpu in CPUS:
            pypi_files(
                name = repository_name(version, "runtime_" + cpu),
                build_file_content = _RUNTIME_BUILD,
                cpu = cpu,
                keep = ["lib/"],
                lock = Label(toolkit.lock),
                packages = toolkit.runtime,
                strip_prefix = toolkit.strip_prefix,
            )
        for component, packages in toolkit.components.items():
            pypi_files(
                name = repository_name(version, component),
                build_file_content = _COMPONENT_BUILD.format(defs = defs),
                cpu = "x86_64",
                keep = ["include/"],
                lock = Label(toolkit.lock),
                packages = packages,
                strip_prefix = toolkit.strip_prefix,
            )

cuda = module_extension(
    implementation = lambda _module_ctx: cuda_repositories(),
    doc = "Declares the repositories of the CUDA toolkits.",
)
