"""debian_files: files of pinned Debian packages as an external repository."""

visibility("//tools/fetch/...")

def _debian_files_impl(rctx):
    python = rctx.which("python3")
    if not python:
        fail("%s: no python3 on PATH, which unpacks Debian's packages. Install Python 3.10 or newer." % rctx.name)
    rctx.report_progress("apt: group %s" % rctx.attr.group)
    program = rctx.path(Label("//tools/fetch:debian.py"))
    lock = rctx.path(rctx.attr.lock)
    result = rctx.execute([python, "-E", "-s", "-B", program, "fetch", "--lock", lock, "--group", rctx.attr.group, "--dest", "files"], timeout = 3600)
    if result.return_code:
        fail("%s: %s" % (rctx.name, result.stderr.strip()))
    rctx.file("BUILD.bazel", "exports_files(%r, visibility = [\"//visibility:public\"])\n" % ["files/" + f for f in rctx.attr.files])

debian_files = repository_rule(
    implementation = _debian_files_impl,
    doc = "Files of pinned Debian packages, unpacked into `files/`.",
    attrs = {
        "files": attr.string_list(mandatory = True, doc = "Paths in the packages that are exported."),
        "group": attr.string(mandatory = True, doc = "Group in the lock."),
        "lock": attr.label(mandatory = True, doc = "The lock file of tools/fetch/debian.py."),
    },
)
