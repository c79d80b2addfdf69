extern "C" const char body[], body_end[];
extern "C" long embedded_bytes() { return body_end - body; }
