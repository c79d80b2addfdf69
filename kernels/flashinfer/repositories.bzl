"""The external repositories of FlashInfer's sources, for MODULE.bazel (`flashinfer`) and WORKSPACE."""

load("//kernels/flashinfer/private:flashinfer_repository.bzl", "flashinfer_repository", "flashinfer_upstream_repository")
load("//tools/fetch:defs.bzl", "debian_files", "pypi_files")
load("//wheels:matrix.bzl", "CELLS", "RELEASE", "sm_targets_of_label")

_LOCK = Label("//kernels/flashinfer:lock.txt")

_SOURCES_BUILD = """
load("{defs}", "cuda_headers")

package(default_visibility = ["//visibility:public"])

exports_files(["files/flashinfer_python-{version}.dist-info/licenses/LICENSE"])

# The trees that FlashInfer carries along, with the include directories that its own build gives them.
cuda_headers(name = "cccl", hdrs = ["files/flashinfer/data/cccl"], includes = ["files/flashinfer/data/cccl/" + d for d in ["cub", "libcudacxx/include", "thrust"]])

cuda_headers(name = "cutlass", hdrs = ["files/flashinfer/data/cutlass"], system_includes = ["files/flashinfer/data/cutlass/" + d for d in ["include", "tools/util/include"]])

cuda_headers(name = "spdlog", hdrs = ["files/flashinfer/data/spdlog"], system_includes = ["files/flashinfer/data/spdlog/include"])
"""

_TVM_FFI_BUILD = """
load("{defs}", "cuda_headers")

cuda_headers(
    name = "headers",
    hdrs = ["files/include", "files/3rdparty/dlpack/include"],
    system_includes = ["files/include", "files/3rdparty/dlpack/include"],
    visibility = ["//visibility:public"],
)
"""

# Of the oldest Python that modules may be loaded by: they are built for its stable ABI.
_PYTHON_BUILD = """
load("{defs}", "cuda_headers")

cuda_headers(
    name = "headers",
    hdrs = ["files/usr/include"],
    system_includes = ["files/usr/include/python3.9", "files/usr/include"],
    visibility = ["//visibility:public"],
)
"""

def flashinfer_repositories():
    """Declares `flashinfer` (its modules and first-party sources) and what these are made of.

    That is `flashinfer_sources`, `flashinfer_upstream`, `python_headers` and `tvm_ffi`.
    """
    defs = str(Label("//toolchains/cuda:defs.bzl"))
    pypi_files(
        name = "flashinfer_sources",
        build_file_content = _SOURCES_BUILD.format(defs = defs, version = RELEASE),
        lock = _LOCK,
        packages = ["flashinfer-python"],
    )
    pypi_files(
        name = "tvm_ffi",
        build_file_content = _TVM_FFI_BUILD.format(defs = defs),
        cpu = "x86_64",
        keep = ["include/", "3rdparty/dlpack/include/"],
        lock = _LOCK,
        packages = ["apache-tvm-ffi"],
        # The headers are the same for every Python version; one is named so that the pin is one file.
        python_version = "3.11",
        strip_prefix = "tvm_ffi/",
    )
    debian_files(
        name = "python_headers",
        build_file_content = _PYTHON_BUILD.format(defs = defs),
        group = "python",
        lock = Label("//kernels/flashinfer:python.lock.json"),
    )
    sources = Label("@flashinfer_sources//:BUILD.bazel")
    flashinfer_upstream_repository(
        name = "flashinfer_upstream",
        cells = {
            label: "%s:%s" % (cell.cuda_version, " ".join(sm_targets_of_label(label)))
            for label, cell in CELLS.items()
        },
        lock = _LOCK,
        sources = sources,
    )
    flashinfer_repository(
        name = "flashinfer",
        cuda_labels = CELLS.keys(),
        sources = sources,
        upstream = Label("@flashinfer_upstream//:BUILD.bazel"),
    )

flashinfer = module_extension(
    implementation = lambda _module_ctx: flashinfer_repositories(),
    doc = "Declares the repositories of FlashInfer's sources.",
)
