// Whether `char` is signed is the host CPU's matter, and nvcc makes device code follow it.
__global__ void is_negative(const char* in, int* out) { *out = *in < 0; }
