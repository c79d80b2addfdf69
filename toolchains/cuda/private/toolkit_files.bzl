"""toolkit_files: one part of a CUDA toolkit as an external repository, from NVIDIA's wheels, its archives, or this machine."""

load("//tools/fetch:defs.bzl", "fetch_pypi")

visibility(["//toolchains/cuda"])

# Where NVIDIA serves its redistributable archives. A mirror has the same paths below its own address.
_REDIST = "https://developer.download.nvidia.com/compute/cuda/redist"
_MIRROR = "CUDA_REDIST_MIRROR"

# CPU -> the platform of NVIDIA's archives, and the directories below an installed toolkit that hold its libraries.
_PLATFORMS = {
    "aarch64": struct(redist = "linux-sbsa", directories = ["targets/sbsa-linux/lib"]),
    "x86_64": struct(redist = "linux-x86_64", directories = ["targets/x86_64-linux/lib", "lib64", "lib"]),
}

def _local_setting(version):
    """The setting that names an installed toolkit of a version."""
    return "CUDA_HOME_" + version.replace(".", "_")

def _fetch_redist(rctx):
    """Fetches pinned archives from the mirror, else from NVIDIA's server, and unpacks them into `files/`."""
    manifest = json.decode(rctx.read(rctx.attr.lock))
    platform = _PLATFORMS[rctx.attr.cpu].redist
    mirrors = [m for m in (rctx.getenv(_MIRROR) or "").split(" ") if m]
    for name in rctx.attr.archives:
        pin = manifest[name][platform]
        urls = ["%s/%s" % (base.rstrip("/"), pin["relative_path"]) for base in mirrors + [_REDIST]]
        rctx.report_progress("%s of CUDA %s" % (name, rctx.attr.version))
        archive = urls[0].rpartition("/")[2]
        if not rctx.download(url = urls, output = archive, sha256 = pin["sha256"], allow_fail = True).success:
            fail(("%s %s of CUDA %s (%s) could not be fetched.\n" +
                  "  expected: the archive with sha256 %s (pinned in %s)\n" +
                  "  sources tried (what each answered is in Bazel's warnings):\n    %s\n" +
                  "  To do: check the network; or name a mirror that has this path, https:// or file://:\n" +
                  "    --repo_env=%s=file:///path/of/mirror\n" +
                  "  or build with an installed toolkit of CUDA %s, which is not hermetic:\n" +
                  "    --repo_env=%s=/usr/local/cuda-%s") %
                 (name, manifest[name]["version"], rctx.attr.version, platform, pin["sha256"], rctx.attr.lock.name, "\n    ".join(urls), _MIRROR, rctx.attr.version, _local_setting(rctx.attr.version), rctx.attr.version))
        rctx.extract(archive, "files", archive.removesuffix(".tar.xz"))
        rctx.delete(archive)

def _copy_local(rctx, home):
    """Copies the part out of an installed toolkit into `files/`."""
    version = rctx.attr.version
    setting = "%s=%s" % (_local_setting(version), home)
    nvcc = rctx.path(home).get_child("bin/nvcc")
    rctx.watch(nvcc)
    found = rctx.execute([nvcc, "--version"]) if nvcc.exists else None
    if not found or " release %s," % version not in found.stdout:
        fail(("%s is not a toolkit of CUDA %s.\n  expected: its directory, with bin/nvcc of release %s\n  found:    %s\n" +
              "  To do: correct the path, or leave the setting out to build with the pinned toolkit.") %
             (setting, version, version, [line for line in found.stdout.splitlines() if "release" in line] if found else "no bin/nvcc"))

    # buildifier: disable=print
    print("\nWARNING: %s: CUDA %s is taken from this machine. What is built with it is not hermetic." % (setting, version))
    for prefix in rctx.attr.keep:
        directory, _, stem = prefix.rpartition("/")
        candidates = _PLATFORMS[rctx.attr.cpu].directories if directory == "lib" else [directory]
        sources = [rctx.path(home).get_child(d) for d in candidates]
        files = [f for source in sources if source.exists for f in source.readdir(watch = "no") if f.basename.startswith(stem)]
        if directory == "lib":
            files = [f for f in files if f.basename.startswith("libcudart.so")]
        if not files:
            fail("%s has no %s for %s.\n  expected: such files in %s\n  To do: install this part of CUDA %s, or leave the setting out to build with the pinned toolkit." %
                 (setting, prefix if directory != "lib" else "libcudart", rctx.attr.cpu, " or ".join([str(s) for s in sources]), version))
        copied = rctx.execute(["sh", "-c", 'mkdir -p "$0" && cp -RL -- "$@" "$0"', "files/" + directory] + files)
        if copied.return_code:
            fail("%s: %s" % (setting, copied.stderr))

def _toolkit_files_impl(rctx):
    home = rctx.getenv(_local_setting(rctx.attr.version))
    if home:
        _copy_local(rctx, home)
    elif rctx.attr.archives:
        _fetch_redist(rctx)
    else:
        fetch_pypi(
            rctx,
            lock = rctx.attr.lock,
            packages = rctx.attr.packages,
            dest = "files",
            cpu = rctx.attr.cpu,
            strip_prefix = rctx.attr.strip_prefix,
            keep = rctx.attr.keep,
        )
    rctx.file("BUILD.bazel", rctx.attr.build_file_content)

toolkit_files = repository_rule(
    implementation = _toolkit_files_impl,
    doc = """One part of a CUDA toolkit, in `files/`: `bin`, `nvvm`, `include` or `lib`.

It comes from the pinned source, NVIDIA's wheels or its redistributable archives. Settings, each given with --repo_env:

- `CUDA_REDIST_MIRROR`: addresses, separated by spaces, that serve the archives under NVIDIA's own paths; they are asked first
- `CUDA_HOME_<version>`, as in `CUDA_HOME_12_9=/usr/local/cuda-12.9`: an installed toolkit, in place of the pinned one

Errors: a source that can't be reached, another sha256 than the pinned one, a directory that is no toolkit of the version.""",
    attrs = {
        "archives": attr.string_list(doc = "Components in the release's manifest."),
        "build_file_content": attr.string(mandatory = True, doc = "The repository's BUILD file."),
        "cpu": attr.string(mandatory = True, values = ["aarch64", "x86_64"], doc = "The CPU that the files are for."),
        "keep": attr.string_list(mandatory = True, doc = "Prefixes of the files that are wanted."),
        "lock": attr.label(mandatory = True, doc = "The pins: a pip requirements file with hashes, or a release's manifest."),
        "packages": attr.string_list(doc = "Names in the requirements file."),
        "strip_prefix": attr.string(doc = "Prefix in the wheels that is taken off."),
        "version": attr.string(mandatory = True, doc = "CUDA version, `12.9`."),
    },
)
