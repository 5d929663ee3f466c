"""The folder of a run: whose it is, and what it ran on."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from transformer.config.run import Replica, RunConfig, fingerprint
from transformer.config.variant import ConfigError, to_json
from transformer.data.dataset import Dataset, fingerprint_arrays
from transformer.models.pure import Params
from transformer.training.checkpoint import write_durably
from transformer.training.environment import environment

WhenNotEmpty = Literal["refuse", "resume", "overwrite"]
"""What to do with a folder that holds an earlier run."""


def prepare_workdir(workdir: Path, wanted: dict[str, Any], when_not_empty: WhenNotEmpty) -> None:
    """Make the folder a run of that identity, or refuse.

    Raises:
      ConfigError: the folder is not empty and nothing was said about it, or holds another run.
    """
    path = workdir / "config.json"
    if workdir.exists() and not workdir.is_dir():
        raise ConfigError(f"workdir: {workdir} is not a folder")
    if workdir.exists() and any(workdir.iterdir()):
        if when_not_empty == "refuse":
            raise ConfigError(f"workdir: {workdir} is not empty; --resume goes on with it, --overwrite starts again")
        if not path.exists():
            raise ConfigError(f"workdir: {workdir} is not empty and holds no config.json of a run")
        if when_not_empty == "overwrite":
            shutil.rmtree(workdir)
        elif differing := _differences(json.loads(path.read_text()), wanted):
            raise ConfigError(f"workdir: {workdir} holds another run, which differs in {', '.join(differing)}")
    workdir.mkdir(parents=True, exist_ok=True)
    write_durably(path, json.dumps(wanted, indent=1, sort_keys=True))
    write_durably(workdir / "environment.json", json.dumps(environment(), indent=1, sort_keys=True))


def identity(
    config: RunConfig, replicas: Sequence[Replica], data: Dataset, initial: Params | None = None
) -> dict[str, Any]:
    """Everything that decides the numbers of a run, as JSON, and its hash."""
    body = {"run": to_json(config), "replicas": to_json(list(replicas)), "data": data.fingerprint}
    if initial is not None:
        leaves = jax.tree.leaves_with_path(initial)
        body["initial"] = fingerprint_arrays({jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves})
    return {"sha256": fingerprint(body), **body}


def _differences(stored: Any, wanted: Any, path: str = "") -> list[str]:
    """The paths at which two JSON values differ, without the hash of the whole."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        names = sorted((stored.keys() | wanted.keys()) - {"sha256"})
        return [d for n in names for d in _differences(stored.get(n), wanted.get(n), f"{path}.{n}" if path else n)]
    return [] if stored == wanted else [path]
