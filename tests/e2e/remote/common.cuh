#pragma once

inline __device__ int position() { return blockIdx.x * blockDim.x + threadIdx.x; }
