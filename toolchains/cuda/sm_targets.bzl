"""The algebra of SM targets: how they are written, their order, and what runs where.

tools/wheel/sm_targets.py is the same for Python programs; both are tested on tests/sm_targets/cases.json.

Sources: NVIDIA's CUDA C++ Programming Guide, "Application Compatibility" and "Feature Availability" (suffixes `a` and
`f`); nvcc's manual, "GPU Feature List"; the CUDA Toolkit release notes of the versions in `_SINCE`.
"""

load("//toolchains/cuda/private:sm_targets.bzl", _DEVICES = "DEVICES", _family_members = "family_members", _parse_sm_target = "parse_sm_target", _runs_on = "runs_on", _sm_name = "sm_name", _sm_target_key = "sm_target_key", _toolkit_supports = "toolkit_supports")

DEVICES = _DEVICES
family_members = _family_members
parse_sm_target = _parse_sm_target
runs_on = _runs_on
sm_name = _sm_name
sm_target_key = _sm_target_key
toolkit_supports = _toolkit_supports
