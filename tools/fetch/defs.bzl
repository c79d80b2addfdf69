"""Repository rules that fetch pinned packages by name, through the person's own package clients."""

load("//tools/fetch/private:debian_files.bzl", _debian_files = "debian_files")
load("//tools/fetch/private:pypi_files.bzl", _fetch_pypi = "fetch_pypi", _pypi_files = "pypi_files")

debian_files = _debian_files
fetch_pypi = _fetch_pypi
pypi_files = _pypi_files
