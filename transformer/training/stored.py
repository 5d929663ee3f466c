"""A run read back from its folder: config, replicas, parameters."""

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, use_abstract_mesh

from transformer.core.errors import ConfigError
from transformer.core.files import read_text
from transformer.core.json import from_json
from transformer.core.sources import sources
from transformer.data.dataset import Dataset, load_data, read_run_config
from transformer.data.tokenizer_training import make_tokenizer
from transformer.data.tokenizers import Tokenizer, UnknownText, read_tokenizer
from transformer.runs.config import Replica
from transformer.runs.mesh import ONE_DEVICE, MeshConfig
from transformer.runs.tokenizers import FromFile, Tokenization
from transformer.training import checkpoint
from transformer.training.asked import AskedRun
from transformer.training.metrics import read_metrics
from transformer.training.program import make_program
from transformer.training.workdir import read_identity


@dataclass(frozen=True, repr=False)
class StoredRun(AskedRun):
    """A run from `load_run`; what was measured is of the last evaluation up to `step`, NaN where there was none."""

    step: int
    """Number of steps that the parameters were trained for."""
    fingerprint: str
    """Hash of the data that they were trained on."""

    @functools.cached_property
    def data(self) -> Dataset:
        """The data the run was trained on, with its own tokenizers.

        Raises:
          ConfigError: the data that the config describes has changed since.
        """
        source, why = str(self.config.data), "data of your own are not kept in it"
        try:
            data = load_data(self.config.data, self.workdir if self.tokenizers else None)
            source = data.source
            if data.fingerprint == self.fingerprint:
                return data
        except UnknownText as error:
            why = str(error)
        raise ConfigError(
            f"data: {self.workdir} was trained on other data than {source}, which its config names; {why}"
        )

    def __repr__(self) -> str:
        """With how far it is, where it is not finished."""
        whole, steps = super().__repr__(), self.config.steps
        return whole if self.step >= steps else f"{whole[:-1]}, step={self.step:,} of {steps:,})"

    @property
    def _held_out(self) -> Mapping[str, np.ndarray]:
        return getattr(self.data, "validation", {})

    # A cached property may stand for a property, which type checkers do not see.
    @functools.cached_property
    def tokenizers(self) -> dict[str, Tokenizer]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The tokenizers of that data, by the names they have there; they are kept in the folder."""
        how = getattr(self.config.data, "tokenizer", None)
        return {path.stem: _tokenizer(how, path) for path in sorted(self.workdir.glob("*tokenizer.json"))}

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes of that data."""
        return getattr(self.data, "classes", ())


def _tokenizer(how: Any, path: Path) -> Tokenizer:
    """The tokenizer of a file; of a rule of one's own it is of the class that the rule makes."""
    if not isinstance(how, Tokenization) or type(how).__module__ == Tokenization.__module__:
        return read_tokenizer(path, isinstance(how, FromFile) and how.special)
    with contextlib.suppress(ConfigError):
        found = make_tokenizer(how, (), path)
        if found.definition == read_text(path):
            return found
    raise ConfigError(f"data.tokenizer: the rule of {how} makes another tokenizer than {path}, its `stored`")


def load_run(workdir: str | Path, mesh: MeshConfig = ONE_DEVICE) -> StoredRun:
    """The newest checkpoint of a run, finished or not, or of a cell of a study; nothing in the folder changes.

    Args:
      workdir: the folder of the run or cell.
      mesh: the devices that share the parameters.

    Raises:
      ConfigError: there is no run, it has no checkpoint yet, or one of its variants is not defined here, or
        otherwise than it was.
      CheckpointError: every checkpoint is damaged.
    """
    workdir = Path(workdir)
    stored = read_identity(workdir)
    config = read_run_config(stored.run)
    old, new = stored.sources, sources(config)
    if changed := sorted(name for name in old | new if old.get(name) != new.get(name)):
        raise ConfigError(f"workdir: {changed[0]} is not defined here as it was for the run in {workdir}")
    replicas = tuple(from_json(Replica, replica) for replica in stored.replicas)
    # Nothing is trained here: devices need not divide the batch, which no shape but that of a memory depends on.
    times = 1 if config.model.memory_length is not None else mesh.data or jax.device_count()
    # Arrays, not parts of the program, where an objective asks for its teacher while it is traced.
    with jax.ensure_compile_time_eval(), use_abstract_mesh(AbstractMesh((), ())):
        program = make_program(config.replace(batch_size=times * config.batch_size), replicas, mesh)
        found = checkpoint.restore(workdir / "checkpoints", program.abstract_state)
    if found is None:
        raise ConfigError(f"workdir: {workdir} has no checkpoint yet")
    state, notes = found
    diverged_at, measured = np.asarray(state.diverged_at), _last_evaluation(workdir, len(replicas), notes.position)
    for values in measured.values():
        values[diverged_at >= 0] = np.nan
    return StoredRun(
        workdir,
        config,
        replicas,
        state.evaluated,
        **measured,
        diverged_at=diverged_at,
        step=notes.position,
        fingerprint=notes.fingerprint,
    )


def _last_evaluation(workdir: Path, count: int, step: int) -> dict[str, np.ndarray]:
    """(R,) of what is measured at every evaluation, by its field of a run."""
    names = {
        "validation_loss": "validation_loss",
        "accuracy": "validation_accuracy",
        "exact_match": "validation_exact_match",
    }
    found = {field: np.full(count, np.nan) for field in names}
    for line in read_metrics(workdir):
        for field, name in names.items():
            if name in line and line["step"] <= step:
                found[field][line["replica"]] = line[name]
    return found
