"""pypi_files: files of pinned wheels as an external repository."""

load("//tools:defs.bzl", "execute_python")

visibility("//tools/fetch/...")

# pip's platform tags of NVIDIA's and other projects' wheels, by CPU: every manylinux that a glibc 2.28 machine can use
# (PEP 600), oldest last.
_PLATFORMS = {
    cpu: ["manylinux_2_%s_%s" % (minor, cpu) for minor in [28, 27, 24, 17, 12]]
    for cpu in ["aarch64", "x86_64"]
}

def fetch_pypi(rctx, lock, packages, dest, cpu = "", python_version = "", strip_prefix = "", keep = []):
    """Fetches wheels by name with pip, checks their sha256, and unpacks them into a directory of the repository.

    Fails with tools/fetch/pypi.py's message: package, version, sources tried, what to do.

    Args:
        rctx: the repository context.
        lock: label of the lock file (a pip requirements file with hashes).
        packages: names in the lock.
        dest: directory, relative to the repository; it must not exist.
        cpu: `x86_64` or `aarch64` for wheels of that CPU, empty for the machine's own.
        python_version: of the wheels, where they differ by it; empty for the machine's own.
        strip_prefix: prefix in the wheel that is taken off, with its slash; what is not below it is left out.
        keep: prefixes (after strip_prefix) of what to unpack; empty for all.
    """
    rctx.report_progress("pip: %s" % ", ".join(packages))
    arguments = ["fetch", "--lock", rctx.path(lock), "--dest", dest, "--strip", strip_prefix]
    for package in packages:
        arguments += ["--package", package]
    for platform in _PLATFORMS[cpu] if cpu else []:
        arguments += ["--platform", platform]
    if python_version:
        arguments += ["--python-version", python_version]
    for prefix in keep:
        arguments += ["--keep", prefix]
    execute_python(rctx, Label("//tools/fetch:pypi.py"), arguments)

def _pypi_files_impl(rctx):
    fetch_pypi(
        rctx,
        lock = rctx.attr.lock,
        packages = rctx.attr.packages,
        dest = "files",
        cpu = rctx.attr.cpu,
        python_version = rctx.attr.python_version,
        strip_prefix = rctx.attr.strip_prefix,
        keep = rctx.attr.keep,
    )
    rctx.file("BUILD.bazel", rctx.attr.build_file_content)

pypi_files = repository_rule(
    implementation = _pypi_files_impl,
    doc = "Files of pinned wheels, unpacked into `files/`, with a given BUILD file.",
    attrs = {
        "build_file_content": attr.string(mandatory = True, doc = "The repository's BUILD file."),
        "cpu": attr.string(doc = "`x86_64` or `aarch64` for wheels of that CPU; empty for the machine's own.", values = ["", "aarch64", "x86_64"]),
        "keep": attr.string_list(doc = "Prefixes (after `strip_prefix`) of what to unpack; empty for all."),
        "lock": attr.label(mandatory = True, doc = "The lock file: a pip requirements file with hashes."),
        "packages": attr.string_list(mandatory = True, doc = "Names in the lock."),
        "python_version": attr.string(doc = "Python version of the wheels, where they differ by it; empty for the machine's own."),
        "strip_prefix": attr.string(doc = "Prefix in the wheel that is taken off, with its slash."),
    },
)
