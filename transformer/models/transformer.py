"""What all models share: a block, and positions, a stack of blocks and a final norm around it."""

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from transformer.core.arrays import constrain, drop_sequences, dropout
from transformer.core.checks import wrong_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import Parameters, at
from transformer.core.values import Variant
from transformer.functional.masks import Causal, Full, Mask, OwnBeams, Padding, Segment, Tokens
from transformer.mixers.mixer import Aux, Context, Shared, Source, Writing
from transformer.models.blocks import ResolvedSublayer
from transformer.models.config import ModelConfig
from transformer.models.stack import Stack
from transformer.norms.norm import norm_layer
from transformer.residuals.residual import Depth, ResidualLayer, Stream

NOTHING = Shared()


class Block(nnx.Module):
    """One layer of the stack: its sublayers, each in a residual connection."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.config, position = config, config.position
        self.enters = position is not None and "to_block" in position.acts
        self.connections, self.branches = config.built, config.branches
        for connection in self.connections:
            for made in connection:
                setattr(self, made.name, made.layer(config, key=at(key, made.name)))
            first = connection[0]
            name = f"{first.name}_residual"
            own = [made.name for made in connection] if config.block.own_norms and len(connection) > 1 else []
            layer = ResidualLayer(first.residual, config.norm, config.d_model, name, own, key=at(key, name))
            setattr(self, name, layer)

    def __call__(self, stream: Stream, *, context: Context, layer, key) -> tuple[Stream, Aux]:
        """The stream after the block, and what its sublayers hand back; a key turns dropout on."""
        aux = Aux({}, context.shared, earlier_BMD=context.earlier_BMD)
        if self.enters:
            stream = self._with_position(stream, context, layer)
        stream = _named(stream, "resid_pre")
        for number, connection in enumerate(self.connections):
            depth = Depth(layer, self.config.num_layers, number, len(self.connections), self.branches)
            stream, handed_back = self._connected(stream, connection, depth, context, key)
            last = number == len(self.connections) - 1
            stream = _named(stream, "resid_post" if last else f"resid_{connection[0].name}")
            for own in handed_back:
                aux = _then(aux, own)
        return stream, aux

    def _with_position(self, x_BLD: jax.Array, context: Context, layer) -> jax.Array:
        """The stream with what the position adds to it before this block."""
        position, positions_BL = self.config.position, context.positions_of(context.tokens)
        assert position is not None
        addition = position.to_block(positions_BL, layer, self.config.d_model, context.position_params)
        return x_BLD + addition.astype(x_BLD.dtype)

    def _connected(
        self, stream: Stream, connection: Sequence[ResolvedSublayer], depth: Depth, context: Context, key
    ) -> tuple[Stream, list[Aux]]:
        """The stream after one connection, and what each of its sublayers hands back."""
        residual, handed_back = getattr(self, f"{connection[0].name}_residual"), []
        normed = "branch" in residual.norms
        common = _common_factor(connection) if normed else 1.0  # which the norm would undo
        added = functools.partial(self._added, common, connection[0].name, depth.layer, key)

        def alike(found):
            wanted = jax.tree.leaves(stream)[0]
            for own in jax.tree.leaves(found):
                if own.dtype != wanted.dtype:
                    raise _other_dtype(own, wanted, residual.name, residual.residual, self.config.norm)
            return found

        def branch(x):
            inputs = alike(x if residual.sublayers else [x] * len(connection))
            answers = [
                self._sublayer(s, s.factor / common, x, context, key) for s, x in zip(connection, inputs, strict=True)
            ]
            handed_back.extend(aux for _, aux in answers)
            y_BLD = functools.reduce(operator.add, [y_BLD for y_BLD, _ in answers])
            return y_BLD if normed else added(y_BLD)

        return alike(residual(stream, branch, depth, context.tokens.valid, added)), handed_back

    def _sublayer(
        self, made: ResolvedSublayer, factor: float, x_BLD: jax.Array, context: Context, key
    ) -> tuple[jax.Array, Aux]:
        name = made.name
        inside = None if key is None else at(key, name, "inside")
        with jax.named_scope(name):
            own = context._replace(writing=_of_sublayer(context.writing, name))
            answer = getattr(self, name)(checkpoint_name(x_BLD, "in"), context=own, key=inside)
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Aux)):
            raise ConfigError(f"blocks.*.{name}: the module of {made.value} does not return (the output, Aux(…))")
        y, aux = answer
        if y.dtype != x_BLD.dtype:
            raise _other_dtype(y, x_BLD, name, made.value)
        if y.shape != x_BLD.shape:
            raise ConfigError(f"blocks.*.{name}: {made.value} returns {y.shape} for an input of {x_BLD.shape}")
        aux = aux._replace(memory={} if aux.memory is None else {name: aux.memory})
        y = y if factor == 1 else y * jnp.asarray(factor, y.dtype)
        y = y if key is None else dropout(y, self.config.dropout, at(key, name))
        return checkpoint_name(constrain(y), f"{name}.out"), aux

    def _added(self, factor: float, name: str, layer, key, y_BLD: jax.Array) -> jax.Array:
        """What a branch adds to the stream: as much as its factor says, and in training not to all sequences."""
        y_BLD = y_BLD if factor == 1 else y_BLD * jnp.asarray(factor, y_BLD.dtype)
        if key is None or not self.config.stochastic_depth:
            return y_BLD
        rate = self.config.stochastic_depth / self.config.num_layers * jnp.asarray(layer + 1, jnp.float32)
        return drop_sequences(y_BLD, rate, at(key, name, "depth"))


def _common_factor(connection: Sequence[ResolvedSublayer]) -> float:
    """The factor of all sublayers of a connection; 1 where they have several."""
    factor, *others = {made.factor for made in connection}
    return factor if factor and not others else 1.0


def _other_dtype(found: jax.Array, wanted: jax.Array, name: str, *values: Any) -> ConfigError:
    """The error of a part of a block that returns another dtype, which all that follows would have too."""
    made = " with norm ".join(map(str, values))
    return ConfigError(
        f"blocks.*.{name}: {made} returns {found.dtype} for an input of {wanted.dtype}; end it with .astype(x.dtype)"
    )


def _of_sublayer(writing: Writing | None, name: str) -> Writing | None:
    """The memory of a sublayer, from that of its block; None where it has none."""
    if writing is None or name not in writing.memory:
        return None
    return writing._replace(memory=writing.memory[name])


def _then(first: Aux, later: Aux) -> Aux:
    """What a sublayer and a later one return together: the later one's where it has any, and both penalties."""
    return Aux(
        first.memory | later.memory,
        first.shared if later.shared is None else later.shared,
        first.penalty + later.penalty,
        first.earlier_BMD if later.earlier_BMD is None else later.earlier_BMD,
    )


def _named(stream: Stream, name: str) -> Stream:
    """The stream, or each of its parts, marked."""
    leaves, treedef = jax.tree.flatten(stream)
    marked = [checkpoint_name(leaf, f"{name}.{part}" if part else name) for part, leaf in enumerate(leaves)]
    return jax.tree.unflatten(treedef, marked)


class Transformer(nnx.Module):
    """Vectors in, vectors out; subclasses define the embedding and the output."""

    def __init__(self, config: ModelConfig, *, max_length: int | None = None, key: jax.Array):
        # `check_kind`, written out: a call would lengthen the walk of a token (tests/testing/test_walk.py).
        if not isinstance(config, ModelConfig):
            raise wrong_kind(config, ModelConfig, type(self).__name__)
        self.config, position, kinds = config, config.position, config.kinds
        self.max_length = config.max_length if max_length is None else max_length
        specs = {} if position is None else position.parameters(config.d_model, config.num_maps, self.max_length)
        self.position = Parameters(specs, key=at(key, "position"))
        self.acts = frozenset() if position is None else position.acts
        self.plain = config.residual.plain
        self.limits = tuple(_limits(config, self.max_length))
        self.blocks = Stack(
            [lambda key, kind=kind: Block(kind, key=key) for kind in kinds],
            config.num_layers,
            config.layers,
            distinct=config.num_distinct_layers,
            shares=config.shares,
            by_depth=config.scale_init_by_depth,
            key=at(key, "blocks"),
        )
        fewer = {} if config.downsampling is None else config.downsampling.parameters(config.d_model)
        self.downsampling_params = Parameters(fewer, key=at(key, "downsampling_params"))
        self.residual_params = Parameters(config.residual.shared_parameters(), key=at(key, "residual_params"))
        self.embedding_norm = norm_layer(config.first_norm, config.d_model, "embedding_norm", key=key)
        self.final_norm = norm_layer(config.last_norm, config.d_model, "final_norm", key=key)

    def check_length(self, length: int) -> None:
        """Raise `ConfigError` where there are more tokens than a choice is defined for."""
        for longest, choice in self.limits:
            if length > longest:
                own = f"max_length {longest}, and position {choice} does not extrapolate"
                what = own if choice == self.config.position else f"the {longest} of {choice}"
                raise ConfigError(f"model: {length} tokens are more than {what}")

    def mask_of(self, tokens: Tokens, mask: Mask | None = None) -> Mask:
        """The mask of the mixers: the model's direction, or `mask` in its place, with padding, segments and beams.

        Each layer adds the mask of its own sparsity.

        Raises:
          ConfigError: it is no mask, or one of tokens, and some layers have fewer, or a mixer cannot follow it.
        """
        if mask is None:
            mask = Causal() if self.config.causal else Full()
        else:
            self._check_mask(mask)
        mask = mask if tokens.valid is None else mask & Padding()
        mask = mask if tokens.segments is None else mask & Segment()
        return mask if tokens.beams is None else mask & OwnBeams()

    def _check_mask(self, mask: Mask) -> None:
        if not callable(mask):
            given = type(mask).__name__
            raise ConfigError(f"mask: {given} is no mask; Arbitrary(array) is one, of truth values (B, H, L, S)")
        if self.config.downsampling is not None:
            raise ConfigError(f"model.downsampling: {mask} is for tokens, and {self.config.downsampling} has fewer")
        for mixer in (mixer for kind in self.config.kinds for mixer in kind.mixers):
            if not mixer.takes_masks:
                raise ConfigError(f"model.mixer: {mixer} does not know of {mask}; use attention")
        if not isinstance(mask, Full) and (choice := self.config.mixing_choice) is not None:
            raise ConfigError(f"mask: {choice} looks at all tokens of a row, whatever {mask} says; use no mask")

    def transform(
        self,
        x_BLD: jax.Array,
        tokens: Tokens,
        *,
        mask: Mask | None = None,
        source: Source | None = None,
        shared: Shared = NOTHING,
        key=None,
    ) -> tuple[jax.Array, jax.Array]:
        """(states (B, L, D) from embedded tokens (B, L, D), what the layers add to the loss).

        `shared` is what the first layer takes over.
        """
        context = Context(tokens, self.mask_of(tokens, mask), source=source, shared=shared)
        stream, penalty, _, _ = self.through_blocks(x_BLD, context, key=key)
        return self.states_of(stream, tokens.valid), penalty

    def through_blocks(
        self, x_BLD: jax.Array, context: Context, *, earlier_NBMD: jax.Array | None = None, key=None
    ) -> tuple[Stream, jax.Array, Context, jax.Array | None]:
        """(stream after the last block, penalty, context of the blocks, states for the next segment)."""
        config, tokens = self.config, context.tokens
        self.check_length(x_BLD.shape[1])
        _check_rows(tokens, x_BLD.shape[0])
        if tokens.segments is not None and config.mixing_choice is not None:
            raise ConfigError(
                f"model: {config.mixing_choice} looks at all tokens of a row, and packed documents would see each "
                "other; use another, or a row for each document"
            )
        context = self.with_position(context, key)
        stream = self.stream_of(constrain(x_BLD), context, key)
        own = None if key is None else at(key, "blocks")

        def run(stream, seen: Tokens, layers: range):
            here = context if seen is tokens else context._replace(tokens=seen, mask=self.mask_of(seen))
            return self.blocks(stream, context=here, layers=layers, earlier_NBMD=earlier_NBMD, key=own)

        layers = range(config.num_layers)
        if config.downsampling is None:
            stream, penalty, after = run(stream, tokens, layers)
        else:
            stream, penalty, after = config.downsampling(
                run, stream, tokens, layers, causal=config.causal, params=self.downsampling_params()
            )
        return stream, penalty, context, after

    def with_position(self, context: Context, key: jax.Array | None = None) -> Context:
        """The context with what all layers share of the positional scheme."""
        remap, tokens = None, context.tokens
        if "remap" in self.acts:
            assert self.config.position is not None
            if key is None:
                remap = self.config.position.remap(self.max_length, None)
            else:
                length = max(self.max_length, tokens.length) if tokens.counted is None else tokens.length
                remap = self.config.position.remap(length, at(key, "positions"))
        return context._replace(position_params=self.position(), remap=remap)

    def stream_of(self, x_BLD: jax.Array, context: Context, key: jax.Array | None = None) -> Stream:
        """The stream before the first block."""
        tokens = context.tokens
        if "to_embedding" in self.acts:
            assert self.config.position is not None
            # `positions_of`, written out for the walk of a token too.
            positions_BL = tokens.positions if context.remap is None else context.remap(tokens.positions)
            addition = self.config.position.to_embedding(positions_BL, self.config.d_model, context.position_params)
            x_BLD = x_BLD + addition.astype(x_BLD.dtype)
        x_BLD = x_BLD if self.embedding_norm is None else self.embedding_norm(x_BLD, tokens.valid)
        x_BLD = x_BLD if key is None else dropout(x_BLD, self.config.dropout, at(key, "embedding"))
        return x_BLD if self.plain else self.config.residual.start(x_BLD, self.config.num_layers)

    def states_of(self, stream: Stream, valid_BL: jax.Array | None) -> jax.Array:
        """The states (B, L, D) from the stream after the last block."""

        def norm(x_BLD):
            return x_BLD if self.final_norm is None else self.final_norm(x_BLD, valid_BL)

        residual = self.config.residual
        states_BLD = norm(stream) if self.plain else residual.end(stream, norm, self.residual_params())
        return checkpoint_name(states_BLD, "final_norm.out")


def _limits(config: ModelConfig, max_length: int) -> Iterator[tuple[int, Variant]]:
    """(largest number of tokens, the choice that is defined for so many)."""
    if config.position is not None and not config.position.extrapolates:
        yield max_length, config.position
    for attention in (kind.attention for kind in config.kinds):
        for choice in () if attention is None else (attention.heads, attention.sparsity):
            if choice is not None and choice.longest is not None:
                yield choice.longest, choice


def _check_rows(tokens: Tokens, count: int) -> None:
    """Raise `ConfigError` where an array of tokens is neither of one row nor of `count`."""
    for name in ("positions", "segments", "valid"):
        array = getattr(tokens, name)
        if array is not None and array.shape[0] not in (1, count):
            raise ConfigError(f"{name}: {array.shape} is not of {count} rows")
