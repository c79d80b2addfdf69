"""module_parts: compiled parts of modules for one (CUDA version, CPU), as the wheels have them."""

load("//toolchains/cuda:settings.bzl", "PLATFORMS", CUDA_VERSION = "VERSION")

visibility(["//wheels"])

# Of what a wheel's transition sets, the settings that the rules of device and host code do not reset: the parts are then
# the configured targets that the wheels name.
_parts_transition = transition(
    implementation = lambda _settings, attr: {
        PLATFORMS: [str(Label("//toolchains/cc:%s_linux" % attr.cpu))],
        CUDA_VERSION: attr.cuda_version,
    },
    inputs = [],
    outputs = [PLATFORMS, CUDA_VERSION],
)

module_parts = rule(
    implementation = lambda ctx: [DefaultInfo(files = depset(ctx.files.parts))],
    doc = """Builds parts of modules for a CUDA version and a CPU: what several wheels share, without a wheel.

A machine that builds it fills a shared cache with just that.""",
    attrs = {
        "cpu": attr.string(mandatory = True, values = ["aarch64", "x86_64"], doc = "The CPU of host code. Device code does not depend on it."),
        "cuda_version": attr.string(mandatory = True, doc = "CUDA toolkit version, `13.0`."),
        "parts": attr.label_list(mandatory = True, doc = "`<module>.cubins.sm_<target>` or `<module>.hosts` of `kernel_module`."),
    },
    cfg = _parts_transition,
)
