"""How Python programs of this repository are run: as build actions, and by repository rules."""

load("//tools/private:run_python.bzl", _execute_python = "execute_python", _run_python = "run_python")

execute_python = _execute_python
run_python = _run_python
