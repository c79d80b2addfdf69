"""debian_files: files of pinned Debian packages as an external repository."""

load("//tools:defs.bzl", "execute_python")

visibility("//tools/fetch/...")

def _debian_files_impl(rctx):
    rctx.report_progress("apt: group %s" % rctx.attr.group)
    execute_python(
        rctx,
        Label("//tools/fetch:debian.py"),
        ["fetch", "--lock", rctx.path(rctx.attr.lock), "--group", rctx.attr.group, "--dest", "files"],
    )
    exported = "exports_files(%r, visibility = [\"//visibility:public\"])\n" % ["files/" + f for f in rctx.attr.files]
    rctx.file("BUILD.bazel", rctx.attr.build_file_content or exported)

debian_files = repository_rule(
    implementation = _debian_files_impl,
    doc = "Files of pinned Debian packages, unpacked into `files/`.",
    attrs = {
        "build_file_content": attr.string(doc = "The repository's BUILD file. Default: one that exports `files`."),
        "files": attr.string_list(doc = "Paths in the packages that are exported."),
        "group": attr.string(mandatory = True, doc = "Group in the lock."),
        "lock": attr.label(mandatory = True, doc = "The lock file of tools/fetch/debian.py."),
    },
)
