"""The external repositories of what wheels are packed and checked with, for MODULE.bazel (`wheels`) and WORKSPACE."""

load("//tools/fetch:defs.bzl", "debian_files", "pypi_files")

def wheel_repositories():
    """Declares what build actions of wheels load.

    - `wheel_tools`: Python packages
    - `libzstd`: reads compressed device code
    """
    debian_files(
        name = "libzstd",
        files = ["usr/lib/x86_64-linux-gnu/libzstd.so.1"],
        group = "libzstd",
        lock = Label("//wheels:zstd.lock.json"),
    )
    pypi_files(
        name = "wheel_tools",
        build_file_content = 'exports_files(["files"], visibility = ["//visibility:public"])\n',
        lock = Label("//wheels:lock.txt"),
        packages = ["deflate"],
    )

wheels = module_extension(
    implementation = lambda _module_ctx: wheel_repositories(),
    doc = "Declares the repositories of what wheels are packed and checked with.",
)
