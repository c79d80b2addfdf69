template <int N>
__global__ void unrolled(float* p) {
#pragma unroll
  for (int i = 0; i < N; ++i) p[i] = p[i] * p[i + 1] + 1;
}

extern "C" void launch_lz4(float* p) {
  unrolled<2><<<1, 1>>>(p);
  unrolled<64><<<1, 1>>>(p);
}
