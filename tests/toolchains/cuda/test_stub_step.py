"""stub_step.py: the functions that a header declares."""

from __future__ import annotations

import unittest

import stub_step

# As the preprocessor leaves cuda.h and cublas_api.h.
HEADER = """
typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;
typedef void ( * CUhostFn)(void *userData);
CUresult cuInit(unsigned int Flags);
CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);
CUresult cuStreamAddCallback(CUstream hStream, void ( *callback)(CUstream, CUresult, void*), void *userData,
                             unsigned int flags) __attribute__((deprecated));
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle);
static inline int cuInline(int x) { return cuInit(x); }
"""


class StubStepTest(unittest.TestCase):
    def test_functions(self) -> None:
        self.assertEqual(stub_step.functions(HEADER, "cu[A-Z]"), ["cuInit", "cuMemAlloc_v2", "cuStreamAddCallback"])
        self.assertEqual(stub_step.functions(HEADER, "cublas[A-Z]"), ["cublasCreate_v2"])


if __name__ == "__main__":
    unittest.main()
