"""bzl_files: the .bzl files of a package, for the extraction of their documentation."""

visibility(["//tools"])

def bzl_files(name):
    """Exports the package's .bzl files, and groups them.

    Args:
        name: of the group.
    """
    visibility = ["//tests/docs:__pkg__"]
    srcs = native.glob(["*.bzl"])
    native.exports_files(srcs, visibility = visibility)
    native.filegroup(name = name, srcs = srcs, visibility = visibility)
