__global__ void kernel(int* p) { *p = 1; }
extern "C" void launch_kernel(int* p) { kernel<<<1, 1>>>(p); }
