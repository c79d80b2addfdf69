"""What a preprocessed text says that it is made of."""

from __future__ import annotations

import os
import re

# `# 12 "external/<repository>/csrc/norm.cu"`, before or after nvcc_steps.py has given the repository its plain name.
_MARKER = re.compile(r'^# \d+ "external/(?:[^/"]*[~+])?flashinfer/([^"]+)"', re.MULTILINE)


def first_party(text: bytes) -> set[str]:
    """The first-party files of FlashInfer's that line markers name, as the include scan calls them."""
    # A header that is included as "../math.cuh" is named with the dots.
    return {os.path.normpath(path) for path in _MARKER.findall(text.decode(errors="surrogateescape"))}
