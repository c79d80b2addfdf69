"""The external repository of the host compiler, for MODULE.bazel (`cc`) and WORKSPACE (`cc_repositories`).

Both declare one repository, `smwheel_gcc`: GCC 10 and the C and C++ libraries of Debian 11, pinned in
debian.lock.json. It is fetched when a build first needs a compiler. Refreshing the pins, on any Debian machine:

    python3 tools/fetch/debian.py lock --lock toolchains/cc/debian.lock.json
"""

load("//toolchains/cc/private:gcc_repository.bzl", "gcc_repository")

def cc_repositories():
    """Declares `smwheel_gcc`.

    It registers no toolchain: `register_toolchains("//toolchains/cc:all")` in WORKSPACE or MODULE.bazel does.
    """
    gcc_repository(name = "smwheel_gcc")

cc = module_extension(
    implementation = lambda _module_ctx: cc_repositories(),
    doc = "Declares `smwheel_gcc`, the repository of the host compiler.",
)
