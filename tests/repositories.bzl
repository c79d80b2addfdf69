"""The external repositories that only tests need, for MODULE.bazel (`tests`) and WORKSPACE."""

load("//tools/fetch:defs.bzl", "debian_files", "pypi_files")

def test_repositories():
    """Declares `qemu` and `tvm_ffi_aarch64`, with which aarch64 modules are loaded on x86_64."""
    debian_files(
        name = "qemu",
        files = ["usr/bin/qemu-aarch64-static"],
        group = "qemu",
        lock = Label("//tests/e2e/aarch64:qemu.lock.json"),
    )
    pypi_files(
        name = "tvm_ffi_aarch64",
        build_file_content = 'exports_files(["files/lib/libtvm_ffi.so"], visibility = ["//visibility:public"])\n',
        cpu = "aarch64",
        keep = ["lib/"],
        lock = Label("//kernels/flashinfer:lock.txt"),
        packages = ["apache-tvm-ffi"],
        python_version = "3.11",
        strip_prefix = "tvm_ffi/",
    )

tests = module_extension(
    implementation = lambda _module_ctx: test_repositories(),
    doc = "Declares the repositories that only tests need.",
)
