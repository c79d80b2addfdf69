// What a census must find: instances of a template, a kernel of internal linkage, and no device function.
template <class T>
__global__ void scale(T* p, T by) { p[threadIdx.x] *= by; }

namespace {
__device__ __noinline__ int helper(int x) { return x * 3 + 1; }
__global__ void hidden(int* p) { *p = helper(*p); }
}  // namespace

extern "C" void launch_stored(float* f, double* d, int* i) {
  scale<<<1, 32>>>(f, 2.0f);
  scale<<<1, 32>>>(d, 2.0);
  hidden<<<1, 1>>>(i);
}
