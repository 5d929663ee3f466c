"""Process start-up: what has to be set before JAX allocates or compiles. Call `start` first."""

import ctypes
import functools
import os
import sys
from pathlib import Path

import jax

from transformer.core.errors import ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


@functools.cache
def start(cache: Path | None = None) -> None:
    """Settings that make a laptop fast; call it before the first array. Called again, it does nothing.

    - glibc returns every buffer over 32 MB to the system and faults it in again at the next step, whatever its size
      where a thread other than the first one asked for it: keep them (without, a step whose logits have 300 MB has
      256,000 page faults, and a tenth of its time is theirs).
    - each CPU core becomes a JAX device, so that replicas run side by side.
    - compiled programs are kept on disk: a second start compiles nothing.

    Args:
      cache: folder of compiled programs; None is `~/.cache/transformer/xla`.

    Raises:
      ConfigError: JAX has begun already.
    """
    keep_large_buffers()
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        try:
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
        except RuntimeError:
            raise ConfigError("start: JAX has begun; call it before the first array is made") from None
    jax.config.update("jax_compilation_cache_dir", str(cache or Path.home() / ".cache" / "transformer" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def keep_large_buffers() -> None:
    """Keep freed memory in the process (glibc only, elsewhere nothing)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 2**30)
    mallopt(_M_TRIM_THRESHOLD, -1)  # never
    mallopt(_M_ARENA_MAX, 1)  # what belongs to other threads keeps no buffer of more than 64 MB
