"""Checks of a model's config, before anything is built: what concerns the whole, or choices of two families.

What concerns one choice alone, that choice checks itself (`check`).
"""

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from transformer.core.checks import check_fields
from transformer.core.errors import ConfigError
from transformer.embeddings.embedding import Embedding
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import OF_TOKENS

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


def check_model(config: "ModelConfig") -> None:
    """Raise `ConfigError` where a field has another type, or sizes or choices do not fit each other."""
    check_fields(config, "model.")
    for name in config.sizes:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError(f"model.{name}: {value} is not a positive number")
    for name in ("dropout", "stochastic_depth"):
        if not 0 <= getattr(config, name) < 1:
            raise ConfigError(f"model.{name}: {getattr(config, name)} is not in [0, 1)")
    if config.predict_ahead < 0:
        raise ConfigError(f"model.predict_ahead: {config.predict_ahead} is negative")
    if config.predict_ahead and not config.causal:
        raise ConfigError(f"model.predict_ahead: {config.predict_ahead}, but an encoder sees future tokens too")
    config.embedding.check()
    config.head.check(config.d_model)
    kinds = config.kinds
    if config.weights is not None and not any(_has_linear_layers(kind) for kind in kinds):
        raise ConfigError(
            f"model.weights: {config.weights}, but no layer has attention or a dense feed-forward network"
        )
    _check_pattern(config, kinds)
    for kind in kinds:
        _check_layer(kind)
    _check_positions(config, kinds)
    _check_sharing(config, kinds)
    _check_memory(config, kinds)
    _check_downsampling(config)


def _has_linear_layers(kind: "ModelConfig") -> bool:
    """Whether a layer has what `weights` are of."""
    return kind.attention is not None or (kind.feed_forward is not None and kind.feed_forward.has_linear_layers)


def _check_pattern(config: "ModelConfig", kinds: list["ModelConfig"]) -> None:
    period, distinct = config.period, config.num_distinct_layers
    if config.num_layers % period or distinct % period or distinct > config.num_layers:
        raise ConfigError(
            f"model.pattern: {config.num_layers} layers, {distinct} of them distinct, are not whole turns of "
            f"{period} layers"
        )
    paths = [one.path for one in config.pattern]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise ConfigError(f"model.pattern: {twice[0]} alternates twice")
    for one in config.pattern:
        own, default = _at(config, one.path), _at(type(config), one.path)
        # Positions and residual connections also act outside of the layers.
        if one.path not in ("position", "residual") and own not in (default, *one.values):
            raise ConfigError(f"model.pattern: it sets {one.path} everywhere, so {own} would be unused")
    for kind in kinds:
        if not kind.residual.shares_stream(config.residual):
            raise ConfigError(
                f"model.pattern: {kind.residual} and {config.residual} cannot share one stream; use one kind"
            )


def _at(config: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def _check_positions(config: "ModelConfig", kinds: list["ModelConfig"]) -> None:
    positions = [one.values for one in config.pattern if one.path == "position"]
    for kind in kinds:
        if kind.position in (None, config.position):
            continue
        if not kind.position.enters_layers(config.d_model, config.max_length):
            raise ConfigError(f"model.pattern: {kind.position} cannot be set layer by layer; use rope")
    everywhere = [config.position, *(position for values in positions for position in values)]
    moving = next((p for p in everywhere if p is not None and "remap" in p.acts), None)
    if positions and moving is not None:
        raise ConfigError(f"model.pattern: {moving} changes positions in all layers alike; use it without a pattern")
    own = config.position
    if positions and own is not None and own not in positions[0] and not own.enters_embedding:
        raise ConfigError(f"model.pattern: it sets position in every layer, so {own} would be unused")
    if own is not None and "to_block" in own.acts and not config.residual.plain:
        raise ConfigError(f"model.position: {own} is added to one stream, not to those of {config.residual}; use pre")
    for kind in kinds:
        of_position = (mixer.num_maps(k) for k in kinds if k.position == kind.position for mixer in k.mixers)
        position = kind.position
        if position is not None and position.orders and not position.enters_embedding and not any(of_position):
            raise ConfigError(
                f"model.position: {position} enters attention, and the model has none ({_what(kind)}); use learned, or "
                "none"
            )
    maps = {mixer.num_maps(kind) for kind in kinds for mixer in kind.mixers} - {0}
    if len(maps) > 1 and own is not None and own.parameters(config.d_model, 1, config.max_length):
        raise ConfigError(f"model.position: {own} has parameters for one number of heads, and layers have {maps}")


def _what(kind: "ModelConfig") -> str:
    return f"mixer={_text(kind.mixer)}"


def _text(choice: Any) -> str:
    return "none" if choice is None else str(choice)


def _check_sharing(config: "ModelConfig", kinds: list["ModelConfig"]) -> None:
    if not config.shares:
        return
    first = kinds[0].attention
    if first is None or "key" not in first.roles:
        raise ConfigError(
            f"mixer.sharing: the first layer, of {_what(kinds[0])}, has nothing to pass on; use "
            "alternate('mixer.sharing', [none, keys_values])"
        )
    for kind in kinds[1:]:
        if kind.attention is None:
            raise ConfigError(f"mixer.sharing: layers of {_what(kind)} pass nothing on; use attention in all layers")
    _check_shapes_shared(config, kinds)
    if "keys_values" not in config.shares:
        return
    for before, kind in pairwise(kinds):
        placing = [p for p in (before.position, kind.position) if p is not None and "to_key" in p.acts]
        takes = kind.attention is not None and kind.attention.shares == "keys_values"
        if takes and placing and before.position != kind.position:
            raise ConfigError(
                f"mixer.sharing: layers with position={_text(kind.position)} take over keys placed by "
                f"{_text(before.position)}; use one position for both"
            )
    for kind in kinds:
        if kind.position is not None and "key_features" in kind.position.acts:
            raise ConfigError(
                f"mixer.sharing: {kind.position} keeps numbers with the keys of each layer, and some have no keys"
            )


def _check_shapes_shared(config: "ModelConfig", kinds: list["ModelConfig"]) -> None:
    """Values go through all layers, scores to the next one."""
    attentions = [(kind, kind.attention) for kind in kinds if kind.attention is not None]
    shapes = [own.shape(kind) for kind, own in attentions]
    sizes = {(shape.num_kv_heads, shape.value_size) for shape in shapes}
    if "values" in config.shares and len(sizes) > 1:
        heads = " and ".join(f"{number} heads of {size}" for number, size in sorted(sizes))
        raise ConfigError(f"mixer.sharing: values of {heads} are passed on; use the same in all layers")
    for i, (_, own) in enumerate(attentions):
        before, here = shapes[i - 1].num_maps, shapes[i].num_maps
        if own.shares == "scores" and before != here:
            raise ConfigError(
                f"mixer.sharing: {here} heads take over the scores of {before}; use as many in both layers"
            )


def _check_memory(config: "ModelConfig", kinds: list["ModelConfig"]) -> None:
    """Checks of a model that reads a text in segments."""
    if config.memory_length is None:
        return
    if not config.causal:
        raise ConfigError(f"model.memory_length: {config.memory_length}, but an encoder reads no text in segments")
    for kind in (config, *kinds):
        position, attention = kind.position, kind.attention
        if position is not None and (not position.extrapolates or "remap" in position.acts):
            raise ConfigError(
                f"model.memory_length: positions continue across segments, and those of {position} end; use rope"
            )
        if any(not isinstance(mixer, Attention) for mixer in kind.mixers):
            raise ConfigError(f"model.memory_length: {_what(kind)} hands no segments on; use attention")
        if kind.looks_back:
            raise ConfigError(f"model.memory_length: {kind.feed_forward} hands no segments on; use dense")
        if attention is not None and attention.heads is not None and attention.heads.longest is not None:
            raise ConfigError(
                f"model.memory_length: {attention.heads} has a table of positions, which ends; use heads=none"
            )
    if sharing := _sharing_tokens(config):
        raise ConfigError(f"model.memory_length: the tokens of earlier segments are not kept for {sharing}")


def _check_downsampling(config: "ModelConfig") -> None:
    choice, position = config.downsampling, config.position
    if choice is None:
        return
    choice.check(config.num_layers, config.period, config.d_model)
    if choice.condenses and config.causal:
        raise ConfigError(
            f"model.downsampling: {choice} reads all tokens, later ones too, and the model is causal; use "
            "none, or an encoder"
        )
    if choice.condenses and position is not None and position.orders and "to_embedding" not in position.acts:
        raise ConfigError(
            f"model.downsampling: {choice} sees no order of tokens but that in their embedding; use learned "
            f"positions in place of {position}"
        )
    grids = [own for kind in config.kinds if (own := kind.position) is not None and own.counts_grid]
    if grids and not choice.condenses:
        raise ConfigError(f"model.downsampling: {choice} joins patches, and {grids[0]} counts them on a grid; use none")
    if not config.residual.plain:
        raise ConfigError(f"model.downsampling: {config.residual} keeps a stream of its own; use pre")
    if config.shares:
        raise ConfigError(f"model.downsampling: layers would take over {config.shares[0]} of other tokens")
    if config.memory_length is not None:
        raise ConfigError(f"model.memory_length: the layers of {choice} keep states of different tokens")


def _check_layer(config: "ModelConfig") -> None:
    for name, norm in {"norm": config.norm, "embedding_norm": config.embedding_norm}.items():
        if norm is None:
            continue
        norm.check(config.d_model)
        if norm.mixes_tokens and config.causal:
            raise ConfigError(
                f"model.{name}: the statistics of {norm} are taken over all tokens, later ones too, and the model is "
                "causal; use layernorm, or an encoder"
            )
    connections = config.connections
    if not connections:
        raise ConfigError(f"model.block: {config.block} has no sublayers, because mixer and feed_forward are none")
    for connection in connections:
        residuals = {made.residual for made in connection}
        if len(residuals) > 1:
            raise ConfigError(
                f"feed_forward.residual: the sublayers of {config.block} share one connection, which is "
                f"{config.residual}; use none"
            )
        if config.block.own_norms and "input" not in residuals.pop().norms:
            raise ConfigError(
                f"model.block: the sublayers of {config.block} each normalize their input, and {config.residual} "
                "has no norm there; use parallel"
            )
        for made in connection:
            made.value.check(config)
    for mixer in config.mixers:
        if mixer.causal is not None and mixer.causal != config.causal:
            how = "reads from left to right" if mixer.causal else "mixes each token with all others"
            kind = "a causal model" if mixer.causal else "an encoder"
            raise ConfigError(f"model.mixer: {mixer} {how}; use attention, or {kind}")


def refuse_token_values(config: "ModelConfig") -> None:
    """Raise `ConfigError` where layers take over values of a table of tokens."""
    if sharing := _sharing_tokens(config):
        raise ConfigError(f"mixer.sharing: {sharing} is for language models; use values")


def _sharing_tokens(config: "ModelConfig") -> str:
    """The text of a choice that takes over something of the tokens; empty without one."""
    choices = (kind.attention.sharing for kind in config.kinds if kind.attention is not None)
    return next((str(sharing) for sharing in choices if sharing is not None and sharing.takes in OF_TOKENS), "")


def refuse_token_logits(config: "ModelConfig", why: str) -> None:
    """Raise `ConfigError` where there is what only logits of tokens can use."""
    head = config.head
    for name in ("transform", "bias", "score_mod"):
        if getattr(head, name):
            raise ConfigError(f"head.{name}: {getattr(head, name)} applies to logits of tokens, {why}")
    for name in ("predict_ahead", "memory_length"):
        if value := getattr(config, name):
            raise ConfigError(f"model.{name}: {value} needs logits of tokens, {why}")


def refuse_tokens(config: "ModelConfig", inputs: str) -> None:
    """Raise `ConfigError` where a model of other inputs, such as patches, has what only tokens can use."""
    refuse_token_values(config)
    refuse_token_logits(config, f"and this model reads {inputs}")
    own = replace(config.embedding, initializer=Embedding.initializer)
    if own != Embedding():
        raise ConfigError(f"model.embedding: {own} applies to tokens, and this model reads {inputs}")


def required(config: "ModelConfig", name: str) -> Any:
    """A field that the data of a run sets; raises `ConfigError` where it is still open."""
    value = getattr(config, name)
    if value is None:
        raise ConfigError(f"model.{name} is not set: there is no data here to take it from")
    return value
