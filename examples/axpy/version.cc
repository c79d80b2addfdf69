// Ordinary C++ goes into a module as well.
extern "C" const char* axpy_version() { return "1.0"; }
