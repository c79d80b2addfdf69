"""The settings that a rule for wheels sets by transition: the platform, the CUDA version, the SM targets."""

load("//toolchains/cuda/private:settings.bzl", _PLATFORMS = "PLATFORMS", _SM_TARGETS = "SM_TARGETS", _VERSION = "VERSION")

PLATFORMS = _PLATFORMS
SM_TARGETS = _SM_TARGETS
VERSION = _VERSION
