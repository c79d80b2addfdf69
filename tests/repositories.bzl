"""The external repositories that only tests need, for MODULE.bazel (`tests`) and WORKSPACE."""

load("//tools/fetch:defs.bzl", "debian_files", "pypi_files")

def _json_constant_impl(rctx):
    rctx.file("BUILD.bazel", "")
    content = json.encode(json.decode(rctx.read(rctx.attr.src)))
    rctx.file(rctx.attr.file, '"""Made from %s."""\n\n%s = json.decode(%r)\n' % (rctx.attr.src, rctx.attr.constant, content))

_json_constant = repository_rule(
    implementation = _json_constant_impl,
    doc = "A JSON file as a constant that a BUILD file can load.",
    attrs = {
        "constant": attr.string(mandatory = True),
        "file": attr.string(mandatory = True),
        "src": attr.label(mandatory = True),
    },
)

def test_repositories():
    """Declares what only tests need.

    - `cuobjdump`: what tests of the census compare with
    - `qemu`, `tvm_ffi_aarch64`: aarch64 modules are loaded with these on x86_64
    - `sm_target_cases`: the cases of tests/sm_targets as a constant
    """
    _json_constant(
        name = "sm_target_cases",
        constant = "CASES",
        file = "cases.bzl",
        src = Label("//tests/sm_targets:cases.json"),
    )
    pypi_files(
        name = "cuobjdump",
        build_file_content = 'exports_files(["files/bin/cuobjdump"], visibility = ["//visibility:public"])\n',
        cpu = "x86_64",
        keep = ["bin/cuobjdump"],
        lock = Label("//tests/e2e:cuobjdump.lock.txt"),
        packages = ["nvidia-cuda-cuobjdump"],
        strip_prefix = "nvidia/cu13/",
    )
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
