"""What the packages of this repository share: running Python programs, and documentation."""

load("//tools/private:bzl_files.bzl", _bzl_files = "bzl_files")
load("//tools/private:run_python.bzl", _execute_python = "execute_python", _run_python = "run_python")

bzl_files = _bzl_files
execute_python = _execute_python
run_python = _run_python
