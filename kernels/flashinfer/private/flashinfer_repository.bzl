"""flashinfer_repository: FlashInfer's first-party sources, and its modules as upstream's generators describe them."""

load("//tools:defs.bzl", "execute_python")
load("//tools/fetch:defs.bzl", "fetch_pypi")

visibility(["//kernels/flashinfer"])

_CHECKOUT = "FLASHINFER_CHECKOUT"

_BUILD = """
load("{defs}", "cuda_headers")

package(default_visibility = ["//visibility:public"])

exports_files(glob(["csrc/**", "generated/**", "include/**"]))

# Directories only: each TU names the headers that it includes.
cuda_headers(name = "first_party", system_includes = ["include", "csrc"])

# Include directories that only some modules have.
[cuda_headers(name = "includes/" + directory, includes = [directory]) for directory in {includes}]
"""

# What packages load in place of //wheels:matrix.bzl. This repository's module extension loads that file too, and Bazel
# 7.7.1 does not track it for the extension if a package loads it at the same moment: an edit would then not be seen
# while the server runs. Loaded through here, it is loaded for packages after the extension is done.
_MATRIX = ["ASSET_LIMIT", "COMPRESSION_LEVEL", "CUBIN_GROUPS", "GROWTH_LIMIT", "HOST_GROUPS", "RELEASE", "WHEELS", "sm_targets_of_label"]

def _trees(rctx):
    """The directories that hold `flashinfer/`, and `csrc/` and `include/`: of a checkout, else the pinned sources'."""
    checkout = rctx.getenv(_CHECKOUT)
    if not checkout:
        root = rctx.path(rctx.attr.sources).dirname.get_child("files")
        return root, root.get_child("flashinfer/data"), False
    root = rctx.path(checkout)
    for first_party in [root.get_child("flashinfer/data"), root]:
        if first_party.get_child("csrc").exists and first_party.get_child("include").exists and root.get_child("flashinfer/jit").exists:
            return root, first_party, True
    fail(("%s=%s is no FlashInfer checkout.\n  expected: flashinfer/jit, and csrc and include beside it or in flashinfer/data\n" +
          "  To do: give the absolute path of a git checkout or of an unpacked flashinfer-python wheel, or leave it out to build the pinned sources.") %
         (_CHECKOUT, checkout))

def _take_generated(rctx, label, sources):
    """Links the sources that upstream rendered for one CUDA label into generated/, shared by all labels."""
    for name in sources:
        shared, own = rctx.path(name), rctx.path(label).get_child(name)
        if not shared.exists:
            rctx.symlink(own, shared)
        elif rctx.read(shared) != rctx.read(own):
            fail("%s: upstream renders %s differently for different CUDA versions (%s and %s); modules of all versions share their sources." %
                 (rctx.name, name, shared.realpath, own))

def _flashinfer_repository_impl(rctx):
    python_root, first_party, is_checkout = _trees(rctx)
    third_party = rctx.path(rctx.attr.sources).dirname.get_child("files/flashinfer/data")
    fetch_pypi(
        rctx,
        lock = rctx.attr.lock,
        packages = ["jinja2", "markupsafe", "packaging", "filelock"],
        dest = "site",
        cpu = "x86_64",
        python_version = "3.11",
    )
    rctx.report_progress("asking FlashInfer's generators for its modules")
    rctx.watch(Label("//kernels/flashinfer:include_scan.py"))
    for label, cell in rctx.attr.cells.items():
        cuda_version, _, sm_targets = cell.partition(":")
        arguments = {
            "--archs": sm_targets,
            "--cuda": cuda_version,
            "--first-party": first_party,
            "--out": label,
            "--profile": rctx.path(rctx.attr.profile),
            "--python-root": python_root,
            "--site": "site",
            "--third-party": third_party,
        }
        execute_python(rctx, Label("//kernels/flashinfer:importer.py"), [word for pair in arguments.items() for word in pair])
    rctx.delete("site")
    for name in ["csrc", "include"]:
        rctx.symlink(first_party.get_child(name), name)
    labels = rctx.attr.cells.keys()
    tus = {label: [tu for m in json.decode(rctx.read(label + "/modules.json")).values() for tu in m["tus"]] for label in labels}
    for label in labels:
        _take_generated(rctx, label, sorted({f: None for tu in tus[label] for f in [tu["src"]] + tu["hdrs"] if f.startswith("generated/")}))
    rctx.file("modules.bzl", "\n".join(
        ['"""FlashInfer\'s modules by CUDA label."""', ""] +
        ['load("//:%s/modules.bzl", %s = "MODULES")' % (label, label) for label in labels] +
        ["", "MODULES = {%s}" % ", ".join(['"%s": %s' % (label, label) for label in labels]), ""],
    ))
    rctx.file("matrix.bzl", "\n".join(
        ["load(%r, %s)" % (str(Label("//wheels:matrix.bzl")), ", ".join(["_%s = %r" % (name, name) for name in _MATRIX])), ""] +
        ["%s = _%s" % (name, name) for name in _MATRIX] +
        [""],
    ))
    rctx.file("BUILD.bazel", _BUILD.format(
        defs = str(Label("//toolchains/cuda:defs.bzl")),
        includes = sorted({directory: None for label in labels for tu in tus[label] for directory in tu["includes"]}),
    ))
    if is_checkout:
        # An edit may change what a TU includes, or what a generator says: then this rule runs again. Single files are
        # watched: where directories are, Bazel fails after the checkout has been deleted, instead of fetching again.
        generators = [f for f in python_root.get_child("flashinfer/jit").readdir(watch = "no") if f.basename.endswith(".py")]
        sources = {f: None for label in labels for tu in tus[label] for f in [tu["src"]] + tu["hdrs"] if not f.startswith("generated/")}
        for file in generators + [first_party.get_child(f) for f in sources]:
            rctx.watch(file)

flashinfer_repository = repository_rule(
    implementation = _flashinfer_repository_impl,
    doc = """FlashInfer's first-party sources, `modules.bzl`, and `matrix.bzl`, through which packages load the matrix.

With --repo_env=FLASHINFER_CHECKOUT=/absolute/path the sources of a checkout are built in place of the pinned ones.""",
    attrs = {
        "cells": attr.string_dict(mandatory = True, doc = "CUDA label -> CUDA version, a colon, and the SM targets that upstream's generators are told."),
        "lock": attr.label(mandatory = True, doc = "Pins of what the generators import."),
        "profile": attr.label(mandatory = True, doc = "The generators to ask, JSON."),
        "sources": attr.label(mandatory = True, doc = "A file at the root of the repository of the pinned sources."),
    },
)
