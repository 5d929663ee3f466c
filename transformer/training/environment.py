"""What a run ran on; in the same environment its numbers are reproducible bit for bit."""

import importlib.metadata
import os
import platform
from typing import Any

import jax


def environment() -> dict[str, Any]:
    """Versions, devices and processor, as JSON."""
    packages = ("transformer", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "devices": [device.device_kind for device in jax.devices()],
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
