"""The external repositories of the CUDA toolkits, for MODULE.bazel (`cuda`) and WORKSPACE (`cuda_repositories`).

Each is fetched only when a build needs it.
"""

load("//toolchains/cuda/private:toolkit_files.bzl", "toolkit_files")
load("//toolchains/cuda/private:toolkits.bzl", "CPUS", "TOOLKITS", "repository_name")

# Where the headers of CCCL lie differs between 12.x and 13.x.
_TOOLS_BUILD = """
load("{defs}", "cuda_headers")

package(default_visibility = ["//visibility:public"])

exports_files(["files/bin/nvcc"])

filegroup(name = "tools", srcs = ["files/bin", "files/nvvm"])

cuda_headers(
    name = "headers",
    hdrs = ["files/include"],
    includes = ["files/include"],
    system_includes = glob(["files/include/cccl"], allow_empty = True, exclude_directories = 0),
)
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

    def declare(version, part, source, cpu, keep, build_file_content):
        toolkit_files(
            name = repository_name(version, part),
            archives = source.archives,
            build_file_content = build_file_content.format(defs = defs),
            cpu = cpu,
            keep = keep,
            lock = Label(source.lock),
            packages = source.packages,
            strip_prefix = source.strip_prefix,
            version = version,
        )

    for version, toolkit in TOOLKITS.items():
        declare(version, "tools", toolkit.tools, "x86_64", ["bin/", "include/", "nvvm/"], _TOOLS_BUILD)
        for cpu in CPUS:
            declare(version, "runtime_" + cpu, toolkit.runtime, cpu, ["lib/"], _RUNTIME_BUILD)
        for component, source in toolkit.components.items():
            declare(version, component, source, "x86_64", ["include/" + component], _COMPONENT_BUILD)

cuda = module_extension(
    implementation = lambda _module_ctx: cuda_repositories(),
    doc = "Declares the repositories of the CUDA toolkits.",
)
