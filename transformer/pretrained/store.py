"""Loads published models from folders to our configs and parameters, and saves them in the same form."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core import modules as pure
from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError, nearest
from transformer.core.files import read_json
from transformer.core.modules import Params
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.architectures import ARCHITECTURES
from transformer.pretrained.files import SHARD, Stored, TensorFiles, write_tensors
from transformer.pretrained.layouts import to_ours, to_stored
from transformer.pretrained.names import Entry, Leaves, entries, flat, listed

CONFIG = "config.json"
DTYPES = ("bfloat16", "float16", "float32")
"""Of published models."""


def load(
    path: str | Path, *, architecture: Architecture | str | None = None, dtype: jax.typing.DTypeLike | None = None
) -> tuple[ModelConfig, Params]:
    """The config and the parameters of a published model.

    All names and shapes are checked before any tensor is read: either the whole model is loaded, or nothing.

    Args:
      path: a folder with config.json and safetensors files; or a name on the Hugging Face hub, where
        `huggingface_hub` is installed.
      architecture: one of your own, or the name of one of the library; None: that which config.json names.
      dtype: dtype of the parameters; None: as they are stored.

    Raises:
      ConfigError: files are missing or damaged, the architecture is not known, a field of config.json is
        not supported, or tensors are missing, superfluous or of other shapes; the message names them.
    """
    try:
        wanted_dtype = None if dtype is None else jnp.dtype(dtype)
    except TypeError:
        raise ConfigError(f"dtype: {dtype!r} is no dtype{nearest(str(dtype), DTYPES)}") from None
    if wanted_dtype is not None and not jnp.issubdtype(wanted_dtype, jnp.floating):
        eight = "; quantize makes parameters in 8 bits of loaded ones" if wanted_dtype == jnp.int8 else ""
        raise ConfigError(f"dtype: {wanted_dtype} is none of parameters, such as {', '.join(DTYPES)}{eight}")
    folder, architecture, config = _described(path, architecture, WEIGHTS)
    leaves = _abstract(config)
    wanted = entries(architecture, config, leaves)
    with TensorFiles(folder) as files:
        stored = _matched(architecture, wanted, files.tensors, folder)
        arrays = _read(wanted, stored, leaves, wanted_dtype)
    return config, pure.nest({path: jnp.asarray(array) for path, array in arrays.items()})


def load_config(path: str | Path, *, architecture: Architecture | str | None = None) -> ModelConfig:
    """The config of a published model, without its parameters; arguments as in `load`.

    Raises:
      ConfigError: config.json is missing or cannot be read, or as in `load`.
    """
    return _described(path, architecture)[2]


def save(
    path: str | Path,
    config: ModelConfig,
    params: Params,
    *,
    architecture: Architecture | str | None = None,
    fields: Mapping[str, Any] | None = None,
    shard_bytes: int = SHARD,
) -> None:
    """Write a model as a folder that other libraries read; `load` gives it back, computing in float32.

    What `config.dtype` says, the type of activations, is not in such folders.

    Args:
      path: a new or empty folder; it appears complete or not at all.
      config: the config of the model.
      params: the tree of `transformer.split`, in the dtype in which to store it.
      architecture: one of your own, or the name of one of the library; None: that which the config matches.
      fields: further fields of config.json, such as the ids of special tokens.
      shard_bytes: largest size of a file.

    Raises:
      ConfigError: the folder is not empty, the config matches no architecture, or the parameters are
        not those of the config.
    """
    path = Path(path).resolve()
    if isinstance(shard_bytes, bool | str) or not shard_bytes >= 1:
        raise ConfigError(f"shard_bytes: {shard_bytes!r} is not a positive number")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} is not empty")
    architecture = _of_config(config, [_known(architecture)] if architecture else ARCHITECTURES)
    leaves = {name: np.asarray(leaf) for name, leaf in flat(params).items()}
    wanted = entries(architecture, config, _same_tree(_abstract(config), leaves))
    text = _config_text(architecture, config, fields or {})
    partial = path.parent / f".{path.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / CONFIG).write_text(text + "\n", encoding="utf-8")
    write_tensors(partial, _stored(wanted, leaves), shard_bytes)
    os.replace(partial, path)


def _config_text(architecture: Architecture, config: ModelConfig, more: Mapping[str, Any]) -> str:
    """The text of config.json.

    Raises:
      ConfigError: further fields are no JSON, or what is read with them is another model or nothing that is supported.
    """
    own = architecture.write_config(config)
    try:
        text = json.dumps(own | dict(more), indent=2, sort_keys=True)
    except TypeError as error:
        raise ConfigError(f"fields: {error}") from None
    again = architecture.write_config(architecture.read_config(json.loads(text)))
    if changed := [name for name in own if again.get(name) != own[name]]:
        raise ConfigError(f"fields: they make another model; {changed[0]} is {own[changed[0]]!r} by the config")
    return text


WEIGHTS = "*.safetensors"


def find(path: str | Path, *patterns: str) -> Path:
    """The folder of a published model, downloaded where `path` is a name on the Hugging Face hub.

    Args:
      path: a folder, or the name.
      patterns: files that are downloaded besides those in JSON.

    Raises:
      ConfigError: there is no such folder, and the hub cannot be reached or does not have the name.
    """
    folder = Path(path)
    if folder.is_dir():
        return folder
    try:
        import huggingface_hub
    except ImportError:
        raise ConfigError(f"pretrained: no folder {path}; for a name on the hub, pip install huggingface_hub") from None
    if not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", str(path)):
        raise ConfigError(f"pretrained: no folder {path}, and no name on the hub")
    try:
        return Path(huggingface_hub.snapshot_download(str(path), allow_patterns=["*.json", *patterns]))
    except Exception as error:  # the library and its dependencies raise many kinds
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ConfigError(f"pretrained: no folder {path}, and the hub answers: {reason}") from None


def _described(
    path: str | Path, architecture: Architecture | str | None, *patterns: str
) -> tuple[Path, Architecture, ModelConfig]:
    """(folder, architecture, config) that a config.json describes; `patterns` as in `find`."""
    folder = find(path, *patterns)
    fields = _fields(folder)
    architecture = _named(fields, folder) if architecture is None else _known(architecture)
    try:
        return folder, architecture, architecture.read_config(fields)
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}") from None


def _known(architecture: Architecture | str) -> Architecture:
    """An architecture, also from the name of a class that it has."""
    if not isinstance(architecture, str):
        check_kind(architecture, Architecture, "pretrained: architecture")
        return architecture
    by_name = {name: each for each in ARCHITECTURES for name in each.names}
    if architecture not in by_name:
        raise ConfigError(f"pretrained: no architecture {architecture!r}{nearest(architecture, by_name)}")
    return by_name[architecture]


def _fields(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / CONFIG)
    except FileNotFoundError:
        raise ConfigError(f"{folder}: no {CONFIG}") from None


def _named(fields: dict[str, Any], folder: Path) -> Architecture:
    """The architecture of a config.json: by its class or, where none is named, the first of its type."""
    names = [name for architecture in ARCHITECTURES for name in architecture.names]
    classes = fields.get("architectures") or []
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ConfigError(f"{folder / CONFIG}: architectures: {classes!r} is not a list of names")
    if not classes and fields.get("model_type") is None:
        hint = "it is a run's, which load_run reads" if "replicas" in fields else "give one with architecture="
        raise ConfigError(f"{folder / CONFIG}: it names no architecture; {hint}")
    for architecture in ARCHITECTURES:
        of_type = not classes and architecture.model_type == fields.get("model_type")
        if of_type or any(name in architecture.names for name in classes):
            return architecture
    asked = str((classes or [fields.get("model_type")])[0])
    of_type = [name for each in ARCHITECTURES if each.model_type == fields.get("model_type") for name in each.names]
    hint = nearest(asked, of_type or names)
    raise ConfigError(f"{folder / CONFIG}: no architecture {asked!r}{hint}; give one with architecture=")


def _of_config(config: ModelConfig, candidates) -> Architecture:
    differences = {architecture.names[0]: architecture.differences(config) for architecture in candidates}
    for architecture in candidates:
        if not differences[architecture.names[0]]:
            return architecture
    of_kind = [a.names[0] for a in candidates if type(a.base) is type(config)]
    if not of_kind:
        raise ConfigError(f"pretrained: no architecture here is a {type(config).__name__}")
    # A sentence, where the others are paths, says that it cannot be written as that architecture at all.
    name = min(of_kind, key=lambda name: (any(" " in said for said in differences[name]), len(differences[name])))
    said = ", ".join(differences[name])
    raise ConfigError(f"pretrained: the config is no architecture here; of {name}, the nearest, it differs in {said}")


def _abstract(config: ModelConfig) -> Leaves:
    """Shapes of the parameters of a config."""
    return flat(pure_model(config)[0])


def _same_tree(expected: Leaves, leaves: Leaves) -> Leaves:
    if any(leaf.dtype == object for leaf in leaves.values()):
        raise ConfigError("pretrained: shapes are given in place of parameters; split(build(config, key=key)) has some")
    if wrong := sorted({str(leaf.dtype) for leaf in leaves.values()} - {*DTYPES, "float64"}):
        raise ConfigError(f"pretrained: parameters are {wrong[0]}, and {', '.join(DTYPES)} can be stored")
    if leaves.keys() == expected.keys() and all(leaves[path].shape[1:] == expected[path].shape for path in expected):
        raise ConfigError("pretrained: the parameters of several replicas are given; run.params() are those of one")
    wrong = [path for path in expected.keys() | leaves.keys() if path not in expected or path not in leaves]
    wrong += [path for path in expected if path in leaves and expected[path].shape != leaves[path].shape]
    if wrong:
        raise ConfigError(f"pretrained: not the parameters of the config: {listed(sorted(map('/'.join, wrong)))}")
    return leaves


def _matched(
    architecture: Architecture, wanted: list[Entry], tensors: Mapping[str, Stored], folder: Path
) -> dict[str, Stored]:
    """The stored tensor of every entry that has one, by the entry's name."""
    found: dict[str, Stored] = {}
    for name, tensor in tensors.items():
        canonical = _canonical(architecture, name)
        if canonical in found and not re.fullmatch(architecture.ignored, canonical):
            raise ConfigError(f"{folder}: two tensors are {canonical}, one of them {name}")
        found[canonical] = tensor
    own = {entry.name for entry in wanted}
    again = {name: entry.name for entry in wanted for name in entry.row.also if name in found and name not in own}
    first = {entry_name: name for name, entry_name in reversed(again.items())}
    stored = {name: found.get(name) or found[first[name]] for name in own if name in found or name in first}
    missing = [e.name for e in wanted if e.name not in stored and not e.row.optional]
    surplus = [n for n in found if n not in own and n not in again and not re.fullmatch(architecture.ignored, n)]
    shapes = [
        f"{entry.name} {list(stored[entry.name].shape)}, not {list(entry.shape)}"
        for entry in wanted
        if entry.name in stored and stored[entry.name].shape != entry.shape
    ]
    # A number of config.json that is not that of the files shows in shapes, and in names only after them.
    wrong = {"of another shape": shapes, "missing": missing, "not of this architecture": sorted(surplus)}
    if any(wrong.values()):
        lists = "; ".join(f"{what}: {listed(names)}" for what, names in wrong.items() if names)
        raise ConfigError(f"{folder}: tensors {lists}")
    for name, entry_name in again.items():
        if not np.array_equal(found[name].read(), stored[entry_name].read()):
            raise ConfigError(f"{folder}: {name} is not {entry_name}, and this model has one table for both")
    return stored


def _canonical(architecture: Architecture, name: str) -> str:
    """The name of a tensor as in the rows of the architecture."""
    for pattern, replacement in architecture.renames:
        name = re.sub(pattern, replacement, name)
    return name


def _read(
    wanted: list[Entry], stored: Mapping[str, Stored], leaves: Leaves, dtype
) -> dict[tuple[str, ...], np.ndarray]:
    arrays: dict[tuple[str, ...], np.ndarray] = {}
    for entry in wanted:
        tensor = stored[entry.name].read() if entry.name in stored else np.zeros(entry.shape, np.float32)
        parts = to_ours(
            tensor[entry.row.skip :] if entry.row.skip else tensor, entry.row.layout, entry.shapes, entry.sizes
        )
        for (path, index), part in zip(entry.places, parts, strict=True):
            kind = part.dtype if dtype is None else dtype
            array = arrays.setdefault(path, np.empty(leaves[path].shape, kind))
            if array.dtype != kind:
                raise ConfigError(f"{entry.name}: {kind}, and other layers are {array.dtype}; give a dtype")
            array[index] = part.astype(kind)
    return arrays


def _stored(wanted: list[Entry], leaves: Leaves) -> Iterator[tuple[str, np.ndarray]]:
    for entry in wanted:
        parts = [leaves[path][index] for path, index in entry.places]
        tensor = to_stored(parts, entry.row.layout, entry.sizes)
        if entry.row.skip:
            tensor = np.concatenate([np.zeros((entry.row.skip, *tensor.shape[1:]), tensor.dtype), tensor])
        yield entry.name, tensor
