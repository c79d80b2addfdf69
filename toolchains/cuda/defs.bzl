"""CUDA rules: device code compiled once per (TU, SM target, CUDA version), host code once per (TU, CPU, CUDA version).

`kernel_module` in //kernels:defs.bzl puts these together for a whole module; use them directly for anything else.
"""

load("//toolchains/cuda/private:cuda_embedded_cubin.bzl", _cuda_embedded_cubin = "cuda_embedded_cubin")
load("//toolchains/cuda/private:cuda_headers.bzl", _cuda_headers = "cuda_headers")
load("//toolchains/cuda/private:cuda_library.bzl", _cuda_library = "cuda_library")
load("//toolchains/cuda/private:cuda_object.bzl", _cuda_object = "cuda_object")
load("//toolchains/cuda/private:cuda_shared_library.bzl", _cuda_shared_library = "cuda_shared_library")
load("//toolchains/cuda/private:cuda_toolchain.bzl", _cuda_toolchain = "cuda_toolchain")
load("//toolchains/cuda/private:providers.bzl", _CubinInfo = "CubinInfo", _CudaModuleInfo = "CudaModuleInfo", _CudaObjectInfo = "CudaObjectInfo", _CudaToolchainInfo = "CudaToolchainInfo", _EmbeddedCubinInfo = "EmbeddedCubinInfo")
load("//toolchains/cuda/private:system_headers.bzl", _cuda_system_headers = "system_headers")

cuda_embedded_cubin = _cuda_embedded_cubin
cuda_headers = _cuda_headers
cuda_library = _cuda_library
cuda_object = _cuda_object
cuda_shared_library = _cuda_shared_library
cuda_system_headers = _cuda_system_headers
cuda_toolchain = _cuda_toolchain

CubinInfo = _CubinInfo
CudaModuleInfo = _CudaModuleInfo
CudaObjectInfo = _CudaObjectInfo
CudaToolchainInfo = _CudaToolchainInfo
EmbeddedCubinInfo = _EmbeddedCubinInfo
