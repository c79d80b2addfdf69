"""The CUDA toolkits that can be built with: one table, from which repositories, toolchains and settings are made."""

visibility(["//toolchains/cuda/..."])

# Adding a version: an entry here, its lock file, and its repositories' names in MODULE.bazel.
#   tools       what the build machine runs, and the headers
#   runtime     what modules are linked with, by CPU
#   components  headers that come in packages of their own, fetched only when a module includes them
def _cuda_13(version):
    return struct(
        lock = "//toolchains/cuda:locks/%s.txt" % version,
        strip_prefix = "nvidia/cu13/",
        tools = ["nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-runtime"],
        runtime = ["nvidia-cuda-runtime"],
        components = {
            "cublas": ["nvidia-cublas"],
            "curand": ["nvidia-curand"],
        },
    )

TOOLKITS = {version: _cuda_13(version) for version in ["13.0", "13.4"]}

# Every component that some toolkit has, for the labels //toolchains/cuda:<component>.
COMPONENTS = ["cublas", "curand"]

CPUS = ["aarch64", "x86_64"]

def repository_name(version, part):
    """The name of the external repository of a toolkit's part: `tools`, `runtime_<cpu>` or a component."""
    return "cuda_%s_%s" % (version.replace(".", "_"), part)
