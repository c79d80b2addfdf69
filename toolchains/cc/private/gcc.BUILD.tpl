load("@rules_cc//cc/toolchains:cc_toolchain.bzl", "cc_toolchain")
load("@CONFIG@", "cc_toolchain_config")

package(default_visibility = ["//visibility:public"])

_CPUS = @CPUS@

exports_files(["pin"] + glob(["bin/*"]))

[filegroup(
    name = "libstdcxx_static_" + cpu,
    srcs = ["libstdcxx/%s/libstdc++.a" % cpu],
) for cpu in _CPUS]

# Directories, not their 5,000 files: an action has a dozen inputs of the compiler instead.
[filegroup(
    name = "files_" + cpu,
    srcs = [
        "lib",
        "pin",
        cpu,
    ] + glob(["bin/%s-*" % cpu]),
) for cpu in _CPUS]

[cc_toolchain_config(
    name = "config_" + cpu,
    cpu = cpu,
    gcc = "bin/%s-linux-gnu-gcc" % cpu,
    tree = cpu,
) for cpu in _CPUS]

[cc_toolchain(
    name = "cc_" + cpu,
    all_files = ":files_" + cpu,
    ar_files = ":files_" + cpu,
    as_files = ":files_" + cpu,
    compiler_files = ":files_" + cpu,
    dwp_files = ":files_" + cpu,
    linker_files = ":files_" + cpu,
    objcopy_files = ":files_" + cpu,
    strip_files = ":files_" + cpu,
    supports_param_files = True,
    toolchain_config = ":config_" + cpu,
) for cpu in _CPUS]
