"""The repositories of FlashInfer's modules: what upstream's generators say, and what is built of it."""

load("//tools:defs.bzl", "execute_python")
load("//tools/fetch:defs.bzl", "fetch_pypi")

visibility(["//kernels/flashinfer"])

_CHECKOUT = "FLASHINFER_CHECKOUT"
_PROFILE = "FLASHINFER_PROFILE"
_PROFILES = ["core", "full", "serving"]

# What packages load in place of //wheels:matrix.bzl. This repository's module extension loads that file too, and Bazel
# 7.7.1 does not track it for the extension if a package loads it at the same moment: an edit would then not be seen
# while the server runs. Loaded through here, it is loaded for packages after the extension is done.
_MATRIX = ["ASSET_LIMIT", "COMPRESSION_LEVEL", "CUBIN_GROUPS", "CUDA_VERSIONS", "GROWTH_LIMIT", "HOST_GROUPS", "RELEASE", "WHEELS", "sm_targets_of_label"]

def _trees(rctx):
    """The directories that hold `flashinfer/`, and `csrc/` and `include/`: of a checkout, else the pinned sources'."""
    checkout = rctx.getenv(_CHECKOUT)
    if not checkout:
        root = rctx.path(rctx.attr.sources).dirname.get_child("files")
        return root, root.get_child("flashinfer/data"), False
    if (checkout + "/").startswith("/tmp/"):
        fail(("%s=%s lies in /tmp, which actions do not see: they have a /tmp of their own.\n  expected: a directory elsewhere\n" +
              "  To do: move it, for instance into your home directory.") % (_CHECKOUT, checkout))
    root = rctx.path(checkout)
    for first_party in [root.get_child("flashinfer/data"), root]:
        if first_party.get_child("csrc").exists and first_party.get_child("include").exists and root.get_child("flashinfer/jit").exists:
            return root, first_party, True
    fail(("%s=%s is no FlashInfer checkout.\n  expected: flashinfer/jit, and csrc and include beside it or in flashinfer/data\n" +
          "  To do: give the absolute path of a git checkout or of an unpacked flashinfer-python wheel, or leave it out to build the pinned sources.") %
         (_CHECKOUT, checkout))

def _arguments(rctx, python_root, first_party):
    third_party = rctx.path(rctx.attr.sources).dirname.get_child("files/flashinfer/data")
    return ["--python-root", python_root, "--first-party", first_party, "--third-party", third_party]

def _flashinfer_upstream_repository_impl(rctx):
    python_root, first_party, is_checkout = _trees(rctx)
    fetch_pypi(
        rctx,
        lock = rctx.attr.lock,
        packages = ["jinja2", "markupsafe", "packaging", "filelock"],
        dest = "site",
        cpu = "x86_64",
        python_version = "3.11",
    )
    rctx.report_progress("asking FlashInfer's generators for its modules")
    arguments = _arguments(rctx, python_root, first_party) + ["--site", "site", "--out", "."]
    for label, cell in rctx.attr.cells.items():
        arguments += ["--cell", "%s=%s" % (label, cell)]
    execute_python(rctx, Label("//kernels/flashinfer:upstream.py"), arguments)
    rctx.delete("site")
    rctx.file("BUILD.bazel")
    if is_checkout:
        # What the generators read: an edit of it may change what they say. Single files are watched: where directories
        # are, Bazel fails after the checkout has been deleted, instead of fetching again.
        inputs = {f: None for label in rctx.attr.cells for f in json.decode(rctx.read(label + "/specs.json"))["inputs"]}
        for file in inputs:
            rctx.watch(python_root.get_child(file))

flashinfer_upstream_repository = repository_rule(
    implementation = _flashinfer_upstream_repository_impl,
    doc = """What upstream's generators say of all modules, for each CUDA label: `<label>/specs.json`, and the sources that they render.

With --repo_env=FLASHINFER_CHECKOUT=/absolute/path the generators are those of a checkout.""",
    attrs = {
        "cells": attr.string_dict(mandatory = True, doc = "CUDA label -> CUDA version, a colon, and the SM targets that upstream's generators are told."),
        "lock": attr.label(mandatory = True, doc = "Pins of what the generators import."),
        "sources": attr.label(mandatory = True, doc = "A file at the root of the repository of the pinned sources."),
    },
)

def _profile(rctx):
    """The file that names the modules to describe."""
    name = rctx.getenv(_PROFILE) or "core"
    if name not in _PROFILES:
        fail("%s=%s: there is no such profile.\n  expected: one of %s\n  To do: choose one of these, as in --config=full; docs/modules.md says what each has." %
             (_PROFILE, name, ", ".join(_PROFILES)))
    return Label("//kernels/flashinfer:%s.json" % name)

def _flashinfer_repository_impl(rctx):
    python_root, first_party, is_checkout = _trees(rctx)
    upstream = rctx.path(rctx.attr.upstream).dirname
    profile = _profile(rctx)
    core = Label("//kernels/flashinfer:core.json")
    deviations = Label("//kernels/flashinfer:deviations.json")
    for label in rctx.attr.cuda_labels:
        rctx.watch(upstream.get_child(label).get_child("specs.json"))
    for file in [Label("//kernels/flashinfer:include_scan.py"), profile, core, deviations]:
        rctx.watch(file)
    rctx.report_progress("describing FlashInfer's modules")
    arguments = _arguments(rctx, python_root, first_party) + [
        "--profile",
        rctx.path(profile),
        "--core",
        rctx.path(core),
        "--deviations",
        rctx.path(deviations),
        "--module-bzl",
        str(Label("//kernels/flashinfer:module.bzl")),
        "--defs-bzl",
        str(Label("//toolchains/cuda:defs.bzl")),
        "--out",
        "out",
    ]
    for label in rctx.attr.cuda_labels:
        arguments += ["--specs", upstream.get_child(label)]
    execute_python(rctx, Label("//kernels/flashinfer:importer.py"), arguments)
    moved = rctx.execute(["sh", "-c", "mv out/* . && rmdir out"])
    if moved.return_code:
        fail("%s: %s" % (rctx.name, moved.stderr))
    for name in ["csrc", "include"]:
        rctx.symlink(first_party.get_child(name), name)
    rctx.symlink(python_root.get_child("flashinfer"), "package")
    rctx.file("matrix.bzl", "\n".join(
        ["load(%r, %s)" % (str(Label("//wheels:matrix.bzl")), ", ".join(["_%s = %r" % (name, name) for name in _MATRIX])), ""] +
        ["%s = _%s" % (name, name) for name in _MATRIX] +
        [""],
    ))
    if is_checkout:
        # An edit may change what a TU includes: then this rule runs again.
        for file in json.decode(rctx.read("sources.json")):
            rctx.watch((python_root if file.startswith("flashinfer/") else first_party).get_child(file))

flashinfer_repository = repository_rule(
    implementation = _flashinfer_repository_impl,
    doc = """FlashInfer's first-party sources, a package for each module, and `matrix.bzl`, through which packages load the matrix.

With --repo_env=FLASHINFER_PROFILE=full all modules are described, in place of those of the profile `core`; with
--repo_env=FLASHINFER_CHECKOUT=/absolute/path the sources of a checkout are built in place of the pinned ones.""",
    attrs = {
        "cuda_labels": attr.string_list(mandatory = True, doc = "The CUDA labels to describe modules for."),
        "sources": attr.label(mandatory = True, doc = "A file at the root of the repository of the pinned sources."),
        "upstream": attr.label(mandatory = True, doc = "A file at the root of the repository of what upstream's generators say."),
    },
)
