"""Exceptions: the library's sentence with its status, and the two kinds a Python caller may want to tell apart."""

from __future__ import annotations

__all__ = ["ArgumentError", "DtypeError", "Error"]


class Error(Exception):
    """A call failed. ``str(error)`` is a sentence that holds the values at fault.

    Attributes:
        status: number of the C ABI's ``nvfp4_status`` (docs/abi.md); 1 (invalid argument) for what Python found.
        status_name: its name, such as ``"NVFP4_ERR_SHAPE"``.
    """

    def __init__(self, message: str, status: int = 1, status_name: str = "NVFP4_ERR_INVALID_ARGUMENT") -> None:
        super().__init__(message)
        self.status = status
        self.status_name = status_name

    def __reduce__(self) -> tuple[type[Error], tuple[str, int, str]]:
        return type(self), (str(self), self.status, self.status_name)


class ArgumentError(Error, ValueError):
    """A value, shape or combination that the library refuses. Also a ``ValueError``."""


class DtypeError(Error, TypeError):
    """An object or element type that is not accepted and would have to be reinterpreted. Also a ``TypeError``."""
