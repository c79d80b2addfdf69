extern "C" const char* small_version() { return "1.0"; }
