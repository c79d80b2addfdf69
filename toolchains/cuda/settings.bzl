"""The settings that a rule for wheels sets by transition: the platform, the CUDA version, the SM targets, the compression of fatbins."""

load("//toolchains/cuda/private:settings.bzl", _COMPRESSION_MODES = "COMPRESSION_MODES", _FATBIN_COMPRESSION = "FATBIN_COMPRESSION", _PLATFORMS = "PLATFORMS", _SM_TARGETS = "SM_TARGETS", _VERSION = "VERSION")

COMPRESSION_MODES = _COMPRESSION_MODES
FATBIN_COMPRESSION = _FATBIN_COMPRESSION
PLATFORMS = _PLATFORMS
SM_TARGETS = _SM_TARGETS
VERSION = _VERSION
