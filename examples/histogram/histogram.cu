// Counts bytes. Every kind of name that only one TU can see is used here: the halves of a TU that are compiled apart
// must agree on each.
#include "histogram.cuh"

__constant__ unsigned char translation[kBins];

static __global__ void clear(unsigned* counts) { counts[threadIdx.x] = 0; }

namespace {

template <int kThreads>
__global__ void count(const unsigned char* bytes, int n, unsigned* counts) {
  __shared__ unsigned local[kBins];
  for (int i = threadIdx.x; i < kBins; i += kThreads) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
    atomicAdd(&local[translation[bytes[i]]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += kThreads) atomicAdd(&counts[i], local[i]);
}

}  // namespace

extern "C" int histogram(const unsigned char* table, const unsigned char* bytes, int n, unsigned* counts, float* shares) {
  if (cudaError_t status = cudaMemcpyToSymbol(translation, table, kBins)) return status;
  clear<<<1, kBins>>>(counts);
  count<128><<<32, 128>>>(bytes, n, counts);
  return normalise(counts, shares, n);
}
