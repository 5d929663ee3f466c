"""What attention refuses: choices of it that do not fit each other, or the model."""

from typing import TYPE_CHECKING

from transformer.core.errors import ConfigError, nearest_divisor
from transformer.mixers.attention.base import Normalizer
from transformer.mixers.attention.part import acts, check_acts
from transformer.mixers.mixer import OF_TOKENS

if TYPE_CHECKING:
    from transformer.mixers.attention.attention import Attention
    from transformer.models.config import ModelConfig


def check_attention(attention: "Attention", model: "ModelConfig") -> None:
    """Raise `ConfigError` where sizes or choices do not fit each other; `model` is the config as one layer sees it."""
    _check_sizes(attention, model)
    _check_position(attention, model)
    _check_scores(attention, model)
    _check_heads(attention, model)
    _check_sparsity(attention, model)
    if attention.sharing is not None:
        attention.sharing.check(model)
    names = [part.name for part in attention.parts]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"mixer.parts: {twice[0]} is given twice")
    for part in attention.parts:
        check_acts(part)
        if acts(part, "enter") and acts(part, "convolve"):
            raise ConfigError(
                f"mixer.parts: {part} acts on inputs and on projections, and a layer remembers one of them"
            )
        part.check(attention, model)


def _check_sizes(attention: "Attention", model: "ModelConfig") -> None:
    for name in ("num_heads", "num_kv_heads", "head_dim"):
        value = getattr(attention, name)
        if value is not None and value < 1:
            raise ConfigError(f"mixer.{name}: {value} is not a positive number")
    H, G, _, _ = attention.sizes(model)
    if attention.head_dim is None and model.d_model % H:
        raise ConfigError(
            f"mixer.num_heads: {H} heads do not divide d_model {model.d_model}; "
            f"the nearest that does is {nearest_divisor(model.d_model, H)}, or set head_dim"
        )
    if H % G:
        raise ConfigError(
            f"mixer.num_kv_heads: {G} key-value heads do not divide {H} query heads; "
            f"the nearest that does is {nearest_divisor(H, G)}"
        )
    if not 0 <= attention.dropout < 1:
        raise ConfigError(f"mixer.dropout: {attention.dropout} is not in [0, 1)")


def _check_position(attention: "Attention", model: "ModelConfig") -> None:
    position = model.position
    if position is None:
        return
    if "score" in position.acts and not (attention.forms_weights and model.causal):
        raise ConfigError(
            f"model.position: {position} measures distance by the scores of tokens up to the query; use "
            "backend=none in a causal model, or rope"
        )
    if "to_output" in position.acts and not attention.forms_weights:
        raise ConfigError(
            f"model.position: {attention.backend} never forms the weights {position} needs; use backend=none"
        )
    if model.causal and attention.first_kept and not position.acts.isdisjoint(("key_features", "score")):
        raise ConfigError(
            f"mixer.sparsity: {position} sums over the tokens between two, and a cache of {attention.sparsity} has "
            "none between the first and the latest; use global_tokens"
        )
    if attention.normalizer is not None and not attention.normalizer.biased and position.biased:
        raise ConfigError(f"mixer.normalizer: {attention.normalizer} takes no bias, and {position} is one; use rope")


def _check_scores(attention: "Attention", model: "ModelConfig") -> None:
    backend, normalizer, score_mod = attention.backend, attention.normalizer, attention.score_mod
    if attention.dropout and not attention.forms_weights:
        raise ConfigError(f"mixer.dropout: {backend} never forms the weights; use backend=none")
    if attention.shares == "scores" and not attention.forms_weights:
        raise ConfigError(f"mixer.sharing: {backend} never forms the scores; use backend=none")
    if backend is not None and not backend.computes(normalizer):
        raise ConfigError(f"mixer.normalizer: {backend} does not compute {normalizer or 'softmax'}; use backend=none")
    if backend is not None and score_mod is not None and not backend.changes_scores(score_mod):
        raise ConfigError(f"mixer.score_mod: {backend} has no kernel for {score_mod}; use backend=none")
    shape = attention.shape(model)
    if backend is not None and backend.one_size and shape.key_size != shape.value_size:
        raise ConfigError(
            f"mixer.backend: {backend} has no kernel for keys of {shape.key_size} and values of {shape.value_size} "
            "features; use backend=none"
        )
    if backend is not None and backend.recurrent and not model.causal:
        raise ConfigError(f"mixer.backend: {backend} sums from left to right; use backend=none, or a causal model")
    if normalizer is None:
        return
    if not normalizer.biased and score_mod is not None:
        raise ConfigError(f"mixer.score_mod: {normalizer} forms no scores for {score_mod} to change; use none")
    if not normalizer.scaled and attention.scale is not None:
        raise ConfigError(f"mixer.scale: in {normalizer} the factor {attention.scale} cancels; use none")


def _check_heads(attention: "Attention", model: "ModelConfig") -> None:
    heads, sizes, shape = attention.heads, attention.sizes(model), attention.shape(model)
    if heads is not None:
        heads.check(sizes)
        _check_longest("heads", heads, model)
        if not heads.shares_keys and attention.num_kv_heads not in (None, attention.num_heads):
            raise ConfigError(f"mixer.num_kv_heads: in {heads} all heads share one key, not {attention.num_kv_heads}")
    if attention.projection is not None:
        attention.projection.check(model.d_model, sizes)
    if attention.merge is not None:
        attention.merge.check(model.d_model, sizes)
    inner = model.inner_norm(attention.inner_norm, model.residual)
    if inner is not None:
        width = sizes.num_heads * sizes.value_dim
        inner.check(width if attention.merge is None else attention.merge.width(sizes.num_heads, sizes.value_dim))
        if inner.mixes_tokens:
            raise ConfigError(f"mixer.inner_norm: {inner} is a norm of whole sequences; use layernorm")
    whole = shape.rotary_dim == shape.key_size
    if not whole and "key" not in attention.roles:
        raise ConfigError(f"mixer.sharing: {heads} makes keys and values in its own way; use heads=none")
    H, G, K, V = sizes
    if shape.widths != {"query": H * K, "key": G * K, "value": G * V} and attention.projection is not None:
        raise ConfigError(f"mixer.projection: {heads} needs layers of other widths than {attention.projection}")
    if not shape.widths["value"]:
        _check_latent(attention)
    position, normalizer = model.position, attention.normalizer
    if heads is None or heads.compares:
        if position is not None:
            position.check(shape.rotary_dim)
    elif (position is not None and position.enters_queries) or (normalizer is not None and not normalizer.biased):
        choice = position if position is not None and position.enters_queries else normalizer
        raise ConfigError(f"mixer.heads: {choice} enters products of queries and keys, and {heads} has none")


def _check_latent(attention: "Attention") -> None:
    """Refuse what needs the keys or values of heads where heads share a vector, from which they are never made."""
    heads, sharing, normalizer = attention.heads, attention.sharing, attention.normalizer
    if sharing is not None and sharing.takes in ("values", *OF_TOKENS):
        raise ConfigError(f"mixer.sharing: {heads} makes no values, which {sharing} adds to; use heads=none")
    if normalizer is not None and type(normalizer).features is not Normalizer.features:
        raise ConfigError(f"mixer.normalizer: {normalizer} is of features of keys, and {heads} makes none; use softmax")


def _check_longest(name: str, choice, model: "ModelConfig") -> None:
    if choice.longest is not None and choice.longest < model.max_length:
        raise ConfigError(f"mixer.{name}: {choice} is built for fewer than {model.max_length} tokens (max_length)")


def _check_sparsity(attention: "Attention", model: "ModelConfig") -> None:
    sparsity, backend, normalizer = attention.sparsity, attention.backend, attention.normalizer
    if sparsity is None:
        return
    _check_longest("sparsity", sparsity, model)
    if backend is not None and backend.recurrent and sparsity.mask() is not None:
        raise ConfigError(f"mixer.sparsity: {backend} cannot leave out what {sparsity} does; use backend=none")
    if not sparsity.mixes_tokens:
        return
    if model.causal:
        raise ConfigError(
            f"mixer.sparsity: {sparsity} attends to mixtures of all tokens, and the model is causal; use none, or an "
            "encoder"
        )
    placed = model.position is not None and (model.position.biased or "to_output" in model.position.acts)
    if placed or (normalizer is not None and normalizer.ordered):
        raise ConfigError(f"mixer.sparsity: the mixtures of {sparsity} have no position; use rope and softmax")
