"""The CUDA toolkits that can be built with: one table, from which repositories, toolchains and settings are made."""

visibility(["//toolchains/cuda/..."])

# The sources of a part of a toolkit, pinned by sha256 in a lock.
def _pypi(lock, packages, strip_prefix):
    """NVIDIA's wheels. The lock is a pip requirements file."""
    return struct(lock = "//toolchains/cuda:locks/" + lock, packages = packages, strip_prefix = strip_prefix, archives = [])

def _redist(release, archives):
    """NVIDIA's redistributable archives. The lock is the release's own manifest, with the components that are used."""
    return struct(lock = "//toolchains/cuda:locks/redistrib_%s.json" % release, packages = [], strip_prefix = "", archives = archives)

# Adding a version: an entry here, its lock, and its repositories' names in MODULE.bazel.
#   tools       what the build machine runs, and the headers
#   runtime     what modules are linked with, by CPU
#   components  headers that come in packages of their own, fetched only when a module includes them
def _cuda_12(version, release):
    # There is no nvcc 12 among NVIDIA's wheels. Of cuBLAS and NVRTC the wheel is the smaller source, and the CUDA version's
    # own.
    return struct(
        tools = _redist(release, ["cuda_nvcc", "cuda_cudart", "cuda_cccl"]),
        runtime = _redist(release, ["cuda_cudart"]),
        components = {
            "cublas": _pypi(version + ".txt", ["nvidia-cublas-cu12"], "nvidia/cublas/"),
            "curand": _redist(release, ["libcurand"]),
            "nvrtc": _pypi(version + ".txt", ["nvidia-cuda-nvrtc-cu12"], "nvidia/cuda_nvrtc/"),
        },
    )

def _cuda_13(version):
    def part(packages):
        return _pypi(version + ".txt", packages, "nvidia/cu13/")

    return struct(
        tools = part(["nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-runtime"]),
        runtime = part(["nvidia-cuda-runtime"]),
        components = {
            "cublas": part(["nvidia-cublas"]),
            "curand": part(["nvidia-curand"]),
            "nvrtc": part(["nvidia-cuda-nvrtc"]),
        },
    )

TOOLKITS = {
    "12.8": _cuda_12("12.8", "12.8.2"),
    "12.9": _cuda_12("12.9", "12.9.2"),
    "13.0": _cuda_13("13.0"),
    "13.4": _cuda_13("13.4"),
}

# Every component that some toolkit has, for the labels //toolchains/cuda:<component>.
COMPONENTS = ["cublas", "curand", "nvrtc"]

# Libraries that a module may be linked to without being here: what loads it has them, or finds them by this soname. %s
# stands for the toolkit's major version. What they have is what the header declares, with names that begin so; component is
# where the header is, if not among the toolkit's own.
STUBS = {
    "cublas": struct(soname = "libcublas.so.%s", header = "cublas_v2.h", functions = "cublas[A-Z]", component = "cublas"),
    "cublasLt": struct(soname = "libcublasLt.so.%s", header = "cublasLt.h", functions = "cublasLt[A-Z]", component = "cublas"),
    "cuda": struct(soname = "libcuda.so.1", header = "cuda.h", functions = "cu[A-Z]", component = None),
    "nvrtc": struct(soname = "libnvrtc.so.%s", header = "nvrtc.h", functions = "nvrtc[A-Z]", component = "nvrtc"),
}

CPUS = ["aarch64", "x86_64"]

def repository_name(version, part):
    """The name of the external repository of a toolkit's part: `tools`, `runtime_<cpu>` or a component."""
    return "cuda_%s_%s" % (version.replace(".", "_"), part)
