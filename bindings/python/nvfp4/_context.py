"""The process's CPU context, the log, the version and what the library supports."""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Callable
from typing import Any

from . import _abi, _names
from ._arrays import unsigned

_lock = threading.RLock()  # a log function called while a context is made may make a call itself
_log_lock = threading.Lock()


class Context:
    """An nvfp4_context, destroyed when the last call that uses it is over."""

    def __init__(self, device: int = 0, ordinal: int = 0, threads: int = 0) -> None:
        self.handle = ctypes.c_void_p()
        desc = _abi.ContextDesc(device=device, ordinal=ordinal, threads=threads)
        _abi.call("context_create", ctypes.byref(desc), ctypes.byref(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            _abi.lib.nvfp4_context_destroy(self.handle)


_cpu: Context | None = None


def cpu() -> Context:
    """The context of every call; a caller keeps the reference while it uses the handle."""
    global _cpu
    context = _cpu
    if context is None:
        with _lock:
            if _cpu is None:
                _cpu = Context()
            context = _cpu
    return context


def set_threads(threads: int) -> None:
    """Use `threads` CPU threads a call from now on, the calling one included; 0 is all that the process may use.

    The number of threads never changes a byte of a result.

    Raises:
        Error: the library refuses the number.
    """
    global _cpu
    context = Context(threads=unsigned(threads, 32, "threads"))
    with _lock:
        _cpu = context


def version() -> str:
    """Version of the loaded library, such as ``"0.1.0"``."""
    text: bytes = _abi.lib.nvfp4_version_string()
    return text.decode()


# What the library may call. When nvfp4_set_log returns, the former function is no longer running anywhere.
_log_function: Any = None


def set_log(callback: Callable[[int, str], object] | None, level: str = "info") -> None:
    """Send the library's log lines to ``callback(level, message)``; None turns the log off (as it is at the start).

    Args:
        callback: called from whichever thread makes the line, with the level's number (1 error, 2 warn, 3 info,
            4 plan). It must not call `set_log`. An exception in it is reported by ``sys.unraisablehook`` and goes no further.
        level: ``"error"``, ``"warn"``, ``"info"`` or ``"plan"``: lines up to that one are passed on.

    Raises:
        Error: unknown level.
    """
    global _log_function
    number = _names.number(_names.LOG_LEVEL, level, "level")
    if callback is None:
        _abi.call("set_log", _abi.LOG_FN(), None, 0)
        _log_function = None
        return

    def forward(_user: int | None, line_level: int, message: bytes) -> None:
        callback(line_level, message.decode(errors="replace"))

    function = _abi.LOG_FN(forward)
    with _log_lock:
        _abi.call("set_log", function, None, number)
        _log_function = function


@atexit.register
def _stop_log() -> None:
    if _log_function is not None:
        _abi.lib.nvfp4_set_log(_abi.LOG_FN(), None, 0)
