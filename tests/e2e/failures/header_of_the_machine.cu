#include "/proc/self/environ"
__global__ void fine(int* p) { *p = 1; }
