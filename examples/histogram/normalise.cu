#include "histogram.cuh"

// The same name as in histogram.cu, and another kernel.
static __global__ void clear(float* shares) { shares[threadIdx.x] = 0; }

namespace {

__global__ void divide(const unsigned* counts, float* shares, unsigned total) {
  shares[threadIdx.x] = static_cast<float>(counts[threadIdx.x]) / total;
}

}  // namespace

int normalise(const unsigned* counts, float* shares, unsigned total) {
  clear<<<1, kBins>>>(shares);
  if (total) divide<<<1, kBins>>>(counts, shares, total);
  return cudaGetLastError();
}
