"""The errors of the package, all ValueErrors."""

from __future__ import annotations


class FormatError(ValueError):
    """The file is not a valid .gqf file: damaged, truncated, or another kind of file.

    offset is the position in the file, in bytes, of the first field that is wrong.
    """

    def __init__(self, path: str, offset: int, message: str) -> None:
        super().__init__(f"{path}: byte {offset}: {message}")
        self.path, self.offset, self.message = path, offset, message


class UnsupportedError(ValueError):
    """The file may be valid but needs a newer reader, or exceeds a limit of this one."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path, self.message = path, message
