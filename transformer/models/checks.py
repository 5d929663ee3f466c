"""Checks of a model's config, before anything is built."""

from typing import TYPE_CHECKING

from transformer.core.values import ConfigError, check_fields
from transformer.mixers.attention.projections import InverseRootScale, SeparateProjections
from transformer.norms.norm import NoNorm, Norm
from transformer.positions.position import NoPosition

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


def check_model(config: "ModelConfig") -> None:
    """Raise `ConfigError` where a field has another type, or sizes or choices do not fit each other."""
    check_fields(config, "model.")
    for name in config.sizes:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError(f"model.{name}: {value} is not a positive number")
    if config.head_dim is None and config.d_model % config.num_heads:
        raise ConfigError(
            f"model.num_heads: {config.num_heads} heads do not divide d_model {config.d_model}; "
            f"the nearest that does is {nearest_divisor(config.d_model, config.num_heads)}, or set head_dim"
        )
    if config.num_heads % config.kv_heads:
        raise ConfigError(
            f"model.num_kv_heads: {config.kv_heads} key-value heads do not divide {config.num_heads} query heads; "
            f"the nearest that does is {nearest_divisor(config.num_heads, config.kv_heads)}"
        )
    for name in ("dropout", "attention_dropout", "feed_forward_dropout", "stochastic_depth"):
        if not 0 <= getattr(config, name) < 1:
            raise ConfigError(f"model.{name}: {getattr(config, name)} is not in [0, 1)")
    if config.future_tokens < 0:
        raise ConfigError(f"model.future_tokens: {config.future_tokens} is negative")
    if config.future_tokens and not config.causal:
        raise ConfigError(f"model.future_tokens: {config.future_tokens}, but an encoder sees future tokens too")
    config.readout.check(config.d_model)
    if config.logit_score.positional:
        raise ConfigError(
            f"model.logit_score: {config.logit_score} reads positions, and logits have none; use soft_cap"
        )
    _check_pattern(config)
    _check_memory(config)
    _check_resolution(config)
    for layer in range(config.pattern.period):
        _check_layer(config.layer_config(layer))
    own = config.feed_forward_residual
    if own is not None and not own.shares_stream(config.residual):
        raise ConfigError(
            f"model.feed_forward_residual: {own} and {config.residual} cannot share one stream; leave it unset"
        )


def _check_pattern(config: "ModelConfig") -> None:
    period, distinct = config.pattern.period, config.num_distinct_layers
    if config.num_layers % period or distinct % period or distinct > config.num_layers:
        raise ConfigError(
            f"model.pattern: {config.num_layers} layers, {distinct} of them distinct, are not whole turns of "
            f"{period} layers"
        )
    for name in config.pattern.changes(0):
        own = name in ("position", "residual")  # these also act outside of the layers
        if not own and getattr(config, name) != getattr(type(config), name):
            raise ConfigError(f"model.pattern: it sets {name} everywhere, so {getattr(config, name)} would be unused")
    layers = [config.layer_config(layer) for layer in range(period)]
    for layer in layers:
        if not layer.residual.shares_stream(config.residual):
            raise ConfigError(
                f"model.pattern: {layer.residual} and {config.residual} cannot share one stream; use one kind"
            )
        if layer.position != config.position and not layer.position.enters_layers(config):
            raise ConfigError(f"model.pattern: {layer.position} cannot be set layer by layer; use rope")
    positions = config.pattern.position
    moving = next((position for position in (config.position, *positions) if position.moves), None)
    if positions and moving is not None:
        raise ConfigError(f"model.pattern: {moving} changes positions in all layers alike; use it without a pattern")
    if positions and config.position not in (*positions, NoPosition()) and not config.position.enters_embedding():
        raise ConfigError(f"model.pattern: it sets position in every layer, so {config.position} would be unused")
    if config.position.enters_blocks and not config.residual.plain:
        raise ConfigError(
            f"model.position: {config.position} is added to one stream, not to those of {config.residual}; use pre"
        )
    if config.carries and not (layers[0].carry.own_keys_values and layers[0].block.attends):
        raise ConfigError(
            f"model.carry: the first layer, of {layers[0].carry} and {layers[0].block}, has nothing to pass on; "
            "use pattern(carry=[none, keys_values])"
        )
    if "keys_values" in config.carries and any(layer.position.remembers for layer in layers):
        raise ConfigError(
            f"model.carry: {config.position} keeps numbers with the keys of each layer, and some layers have no keys"
        )
    if "keys_values" in config.carries and config.convolution is not None:
        raise ConfigError("model.carry: layers without keys of their own keep nothing for model.convolution")
    for layer in layers:
        attend = any(other.block.attends for other in layers if other.position == layer.position)
        if layer.position.orders and not layer.position.enters_embedding() and not attend:
            raise ConfigError(
                f"model.position: {layer.position} enters attention, and {layer.block} has none; use learned"
            )


def _check_memory(config: "ModelConfig") -> None:
    """Checks of a model that reads a text in segments."""
    if config.memory_length is None:
        return
    if not config.causal:
        raise ConfigError(f"model.memory_length: {config.memory_length}, but an encoder reads no text in segments")
    for position in (config.position, *config.pattern.position):
        if not position.extrapolates or position.moves:
            raise ConfigError(
                f"model.memory_length: positions continue across segments, and those of {position} end; use rope"
            )
    if "token_values" in config.carries:
        raise ConfigError("model.memory_length: the tokens of earlier segments are not kept for value_embeddings")
    if config.heads.longest is not None:
        raise ConfigError(f"model.memory_length: {config.heads} has a table of positions, which ends; use plain")


def _check_resolution(config: "ModelConfig") -> None:
    config.resolution.check(config.num_layers, config.pattern.period)
    if config.resolution.whole:
        return
    config.resolution.parameters(config.d_model)  # has checks of its own
    if config.resolution.condenses and config.causal:
        raise ConfigError(
            f"model.resolution: {config.resolution} reads all tokens, later ones too, and the model is causal; use "
            "full, or an encoder"
        )
    if config.resolution.condenses and config.position.orders and not config.position.enters_embedding():
        raise ConfigError(
            f"model.resolution: {config.resolution} sees no order of tokens but that in their embedding; use learned "
            f"positions in place of {config.position}"
        )
    if not config.residual.plain:
        raise ConfigError(f"model.resolution: {config.residual} keeps a stream of its own; use pre")
    if config.carries:
        raise ConfigError(f"model.resolution: layers would take over {config.carries[0]} of other tokens")
    if config.memory_length is not None:
        raise ConfigError(f"model.memory_length: the layers of {config.resolution} keep states of different tokens")


def _check_layer(config: "ModelConfig") -> None:
    _check_norms(config)
    _check_attention(config)
    _check_heads(config)
    _check_sublayers(config)


def _check_norms(config: "ModelConfig") -> None:
    widths = {
        "norm": config.d_model,
        "embedding_norm": config.d_model,
        "qk_norm": config.heads.key_size(config.head_sizes),
        "value_norm": config.heads.value_size(config.head_sizes),
        "attention_inner_norm": config.merge.width(config.num_heads, config.value_size),
        "feed_forward_inner_norm": config.ff_width,
    }
    norms: dict[str, Norm] = {name: getattr(config, name) for name in widths}
    norms |= {f"{kind}_inner_norm": config.inner_norm(kind) for kind in ("attention", "feed_forward")}
    for name, norm in norms.items():
        norm.check(widths[name])
        if norm.mixes_tokens and config.causal:
            raise ConfigError(
                f"model.{name}: the statistics of {norm} are taken over all tokens, later ones too, and the model is "
                "causal; use layernorm, or an encoder"
            )
        if norm.mixes_tokens and name not in ("norm", "embedding_norm"):
            raise ConfigError(f"model.{name}: {norm} is a norm of whole sequences; use layernorm")


def _check_attention(config: "ModelConfig") -> None:
    if config.attention_dropout and not config.attention.forms_weights:
        raise ConfigError(f"model.attention_dropout: {config.attention} never forms the weights; use exact")
    if config.position.rescores and not (config.attention.forms_weights and config.causal):
        raise ConfigError(
            f"model.position: {config.position} measures distance by the scores of tokens up to the query; use exact "
            "attention in a causal model, or rope"
        )
    if config.position.reads_weights and not config.attention.forms_weights:
        raise ConfigError(
            f"model.position: {config.attention} never forms the weights {config.position} needs; use exact"
        )
    if config.causal and config.reach.sinks and (config.position.remembers or config.position.rescores):
        raise ConfigError(
            f"model.reach: {config.position} sums over the tokens between two, and a cache of {config.reach} has none "
            "between the first and the latest; use global_tokens"
        )
    if config.carry.takes == "scores" and not config.attention.forms_weights:
        raise ConfigError(f"model.carry: {config.attention} never forms the scores; use exact")
    if not config.attention.computes(config.weighting):
        raise ConfigError(f"model.weighting: {config.attention} does not compute {config.weighting}; use exact")
    if not config.attention.changes_scores and not config.score.plain:
        raise ConfigError(f"model.score: {config.attention} has no kernel for {config.score}; use exact")
    sizes = (config.heads.key_size(config.head_sizes), config.heads.value_size(config.head_sizes))
    if config.attention.one_size and sizes[0] != sizes[1]:
        raise ConfigError(
            f"model.attention: {config.attention} has no kernel for keys of {sizes[0]} and values of {sizes[1]} "
            "features; use exact"
        )
    if config.attention.recurrent and not config.causal:
        raise ConfigError(f"model.attention: {config.attention} sums from left to right; use exact, or a causal model")
    if config.attention.recurrent and config.reach.mask() is not None:
        raise ConfigError(f"model.reach: {config.attention} cannot leave out what {config.reach} does; use full")
    if not config.weighting.biased and config.position.biased:
        raise ConfigError(f"model.weighting: {config.weighting} takes no bias, and {config.position} is one; use rope")
    if not config.weighting.biased and not config.score.plain:
        raise ConfigError(f"model.score: {config.weighting} forms no scores for {config.score} to change; use plain")
    if not config.weighting.scaled and config.scale != InverseRootScale():
        raise ConfigError(f"model.scale: in {config.weighting} the factor {config.scale} cancels; use inverse_root")
    if not config.reach.mixes_tokens:
        return
    if config.causal:
        raise ConfigError(
            f"model.reach: {config.reach} attends to mixtures of all tokens, and the model is causal; use full, "
            "or an encoder"
        )
    placed = config.position.biased or config.position.reads_weights
    if placed or config.weighting.relative:
        raise ConfigError(f"model.reach: the mixtures of {config.reach} have no position; use rope and softmax")


def _check_heads(config: "ModelConfig") -> None:
    heads, sizes = config.heads, config.head_sizes
    heads.check(sizes)
    config.projection.check(config.d_model, config.num_heads, config.kv_heads, config.head_size, config.value_size)
    config.merge.check(config.d_model, config.num_heads, config.value_size)
    for name, choice in (("heads", heads), ("reach", config.reach)):
        if choice.longest is not None and choice.longest < config.max_length:
            raise ConfigError(f"model.{name}: {choice} is built for fewer than {config.max_length} tokens (max_length)")
    if not heads.shares_keys and config.num_kv_heads not in (None, config.num_heads):
        raise ConfigError(f"model.num_kv_heads: in {heads} all heads share one key, not {config.num_kv_heads}")
    whole = heads.placed_size(sizes) == heads.key_size(sizes)
    if not whole and not config.carry.own_keys_values:
        raise ConfigError(f"model.carry: {config.heads} makes keys and values in its own way; use plain heads")
    if config.value_gate and not heads.widths(sizes)["value"]:
        raise ConfigError(f"model.value_gate: {heads} has no projection of values; use attention_gate")
    if not whole and config.qk_norm != NoNorm():
        raise ConfigError(f"model.qk_norm: queries and keys of {heads} are not projections alone; use none")
    if not whole and config.projection != SeparateProjections():
        raise ConfigError(f"model.projection: {heads} needs layers of other widths than {config.projection}")
    if heads.compares:
        config.position.check(heads.placed_size(sizes))
    elif config.position.enters_queries or not config.weighting.biased:
        choice = config.position if config.position.enters_queries else config.weighting
        raise ConfigError(f"model.heads: {choice} enters products of queries and keys, and {heads} has none")


def _check_sublayers(config: "ModelConfig") -> None:
    if config.block.own_norms and any(
        "input" not in config.residual_of(c[0].kind).norms for c in config.block.connections
    ):
        raise ConfigError(
            f"model.block: the sublayers of {config.block} each normalize their input, and {config.residual} "
            "has no norm there; use parallel"
        )
    if any(config.residual_of(s.kind) != config.residual_of(c[0].kind) for c in config.block.connections for s in c):
        raise ConfigError(
            f"model.feed_forward_residual: the sublayers of {config.block} share one connection, which is "
            f"{config.residual}; leave it unset"
        )
    if config.feed_forward.num_experts and (config.feed_forward_bias or config.inner_norm("feed_forward") != NoNorm()):
        raise ConfigError(f"model.feed_forward: {config.feed_forward} has no biases and no inner norm; use dense")
    if config.causal and config.feed_forward.mixes_tokens:
        raise ConfigError(
            f"model.feed_forward: in {config.feed_forward} the experts of a token depend on later ones, and the model "
            "is causal; use top_k, or an encoder"
        )
    if config.causal and config.block.mixes_tokens:
        raise ConfigError(
            f"model.block: {config.block} mixes each token with all others, and the model is causal; use sequential, "
            "or an encoder"
        )


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of `number` nearest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
