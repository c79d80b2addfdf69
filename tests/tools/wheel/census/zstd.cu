__global__ void plain(int* p) { *p = 1; }
extern "C" void launch_zstd(int* p) { plain<<<1, 1>>>(p); }
