"""py_wheel: modules packed into a Python wheel, and checked."""

load("//wheels/private:py_wheel.bzl", _py_wheel = "py_wheel")

py_wheel = _py_wheel
