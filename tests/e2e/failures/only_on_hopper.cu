__global__ void everywhere(int* p) { *p = 1; }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__global__ void only_on_hopper(int* p) { *p = 2; }
#endif
extern "C" void launch_everywhere(int* p) { everywhere<<<1, 1>>>(p); }
