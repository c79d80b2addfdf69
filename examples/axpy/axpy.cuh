// y[i] = a * x[i] + y[i], the example that every CUDA book begins with.
#pragma once

template <class T>
__global__ void axpy(int n, T a, const T* x, T* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
