"""The external repository of what wheels are packed with, for MODULE.bazel (`wheels`) and WORKSPACE."""

load("//tools/fetch:defs.bzl", "pypi_files")

def wheel_repositories():
    """Declares `wheel_tools`, with the Python packages that build actions import."""
    pypi_files(
        name = "wheel_tools",
        build_file_content = 'exports_files(["files"], visibility = ["//visibility:public"])\n',
        lock = Label("//wheels:lock.txt"),
        packages = ["deflate"],
    )

wheels = module_extension(
    implementation = lambda _module_ctx: wheel_repositories(),
    doc = "Declares the repository of what wheels are packed with.",
)
