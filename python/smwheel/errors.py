"""What a person reads when something can't be done."""

from __future__ import annotations


class SmwheelError(Exception):
    """An error with its reason. The command line prints it and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, expected: str, found: str, todo: str) -> None:
        """Says what it is about, what was expected, what was found and what to do."""
        super().__init__(f"{what}\n  expected: {expected}\n  found:    {found}\n  To do: {todo}")
