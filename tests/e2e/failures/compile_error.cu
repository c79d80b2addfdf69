__global__ void broken(int* p) { *p = there_is_no_such_name; }
