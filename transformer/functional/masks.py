"""Who may attend to whom: masks as values that combine with `&`, `|` and `~`.

A mask is called with what it may know about the queries and the keys (`Tokens`) and returns a
boolean array that broadcasts to (B, H, L, S), True where the query attends to the key. Nothing is
stored: an attention function asks for the whole array or for one block of it, by slicing `Tokens`.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from transformer.core.checks import is_count
from transformer.core.errors import ConfigError


class Tokens(NamedTuple):
    """One side of an attention: everything that masks and biases may ask of its tokens."""

    positions: jax.Array
    """(B or 1, L) int32: the position that relative distances are taken from."""
    indices: jax.Array
    """(L,) int32: the row or column in an `Arbitrary` mask."""
    segments: jax.Array | None = None
    """(B or 1, L) int32: which packed document a token belongs to."""
    valid: jax.Array | None = None
    """(B or 1, L) bool: False for padding."""
    beams: jax.Array | None = None
    """(B, W, L) bool: which of the W beams of a search a token is part of; beams share the tokens before they part."""
    counted: tuple[()] | None = None
    """`()` where positions are 0, 1, …, else None. An empty tuple has no leaves and so is static under `jit`, where a
    kernel may rely on it."""

    @classmethod
    def at(cls, positions, segments=None, valid=None) -> "Tokens":
        """Tokens at the given positions, of the given segments; each array is (L,) or (B, L).

        Raises:
          ConfigError: they are not of one length, or have more axes; positions or segments are not integers, or `valid`
            not booleans.
        """
        given = {"positions": positions, "segments": segments, "valid": valid}
        rows = {name: jnp.atleast_2d(jnp.asarray(array)) for name, array in given.items() if array is not None}
        positions = rows["positions"]
        for name, array in rows.items():
            if array.ndim > 2:
                raise ConfigError(f"{name}: an array {array.shape}, not one (L,) or (B, L)")
            if array.shape[-1] != positions.shape[-1]:
                raise ConfigError(f"{name}: {array.shape} is not of {positions.shape[-1]} tokens")
            if name == "valid" and array.dtype != jnp.bool:
                raise ConfigError(f"valid: {array.dtype} is not boolean, False for padding; valid != 0 may be meant")
            if name != "valid" and not jnp.issubdtype(array.dtype, jnp.integer):
                raise ConfigError(f"{name}: {array.dtype} is not an integer for each token")
        indices = jnp.arange(positions.shape[-1], dtype=jnp.int32)
        return cls(positions.astype(jnp.int32), indices, rows.get("segments"), rows.get("valid"))

    @classmethod
    def first(cls, length: int, segments=None, valid=None) -> "Tokens":
        """Tokens at 0, 1, …, `length` - 1."""
        return cls.at(jnp.arange(length), segments, valid)._replace(counted=())

    @property
    def length(self) -> int:
        """Number of tokens, L."""
        return self.indices.shape[0]

    def distance_from(self, keys: "Tokens") -> jax.Array:
        """The position of each as a query minus that of each key, (B or 1, L, S) int32."""
        return self.positions[:, :, None] - keys.positions[:, None, :]

    def as_before(self) -> "Tokens":
        """Padding with the position and the segment of the last real token before it, or else of the first one."""
        if self.valid is None:
            return self
        own = jnp.where(self.valid, jnp.arange(self.length), self.valid.argmax(1, keepdims=True))
        places_BL = jax.lax.cummax(own, 1)

        def taken(array: jax.Array | None) -> jax.Array | None:
            if array is None:
                return None
            shape = jnp.broadcast_shapes(array.shape, places_BL.shape)
            return jnp.take_along_axis(jnp.broadcast_to(array, shape), jnp.broadcast_to(places_BL, shape), 1)

        positions = taken(self.positions)
        assert positions is not None
        return self._replace(positions=positions, segments=taken(self.segments), counted=None)

    def block(self, start, size: int) -> "Tokens":
        """The tokens from `start` (may be traced) to `start + size`."""
        return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size, a.ndim - 1), self)


NOWHERE = jnp.iinfo(jnp.int32).min
"""The position of keys that are no tokens."""


class MaskFunction(Protocol):
    """What attention needs of a mask: a function of queries and keys."""

    def __call__(self, queries: Tokens, keys: Tokens) -> jax.Array: ...


class Mask:
    """Base of the mask algebra. A new mask is one frozen dataclass with `__call__`.

    Its fields are arrays, or numbers and texts, declared as such or with `field(metadata={"static": True})`.
    """

    directed: ClassVar[bool] = False
    """Whether a query attends to no later position."""
    transitive: ClassVar[bool] = False
    """Whether it is transitive over real tokens: if i sees j and j sees k, then i sees k."""

    def __new__(cls, *_: Any, **__: Any):
        if cls not in _REGISTERED:
            _register(cls)
        return super().__new__(cls)

    def __call__(self, queries: Tokens, keys: Tokens) -> jax.Array:
        raise NotImplementedError(f"{type(self).__name__} does not define __call__(queries, keys)")

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, _mask(other))

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, _mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)


def _mask(other: Any) -> Any:
    if not callable(other):
        raise ConfigError(f"mask: a {type(other).__name__} is no mask; Arbitrary(array) is that of an array")
    return other


STATIC = (int, float, bool, str, "int", "float", "bool", "str")
"""Types of fields of masks that are no arrays, also as they are before annotations are evaluated."""
_REGISTERED: set[type] = set()
"""The classes of masks that are pytrees."""


def _register(cls: type) -> None:
    """Make a class of masks one of pytrees, which go through `jit`; numbers and texts are static in it."""
    if not is_dataclass(cls):
        return
    own, made = ([f for f in fields(cls) if f.init is given] for given in (True, False))
    static = [f.name for f in own if f.metadata.get("static", f.type in STATIC)]
    arrays = [f.name for f in own if f.name not in static]
    with contextlib.suppress(ValueError):  # its own decorator has done it
        jax.tree_util.register_dataclass(cls, arrays, static, drop_fields=[f.name for f in made])
    _REGISTERED.add(cls)


def allows(mask: MaskFunction, queries: Tokens, keys: Tokens) -> jax.Array:
    """What a mask allows, boolean, of a shape that broadcasts to (B, H, L, S).

    Raises:
      ConfigError: it is no function, or returns something else.
    """
    found, name = _mask(mask)(queries, keys), type(mask).__name__
    if found.dtype != bool:
        raise ConfigError(f"mask: {name} returns {found.dtype}, not bool, True where a query attends")
    if found.ndim not in (2, 4):
        needed = "(L, S) or (B or 1, H or 1, L, S); [:, None] adds the axis of heads"
        raise ConfigError(f"mask: {name} returns {found.shape}, not {needed}")
    return found


@dataclass(frozen=True)
class Full(Mask):
    """Every query attends to every key."""

    transitive = True

    def __call__(self, queries, keys):
        return jnp.ones((1, 1, queries.length, keys.length), bool)


@dataclass(frozen=True)
class Causal(Mask):
    """A query attends to keys at its own position and before."""

    directed = True
    transitive = True

    def __call__(self, queries, keys):
        return queries.distance_from(keys)[:, None] >= 0


@dataclass(frozen=True)
class Window(Mask):
    """A query attends to keys less than `size` positions away, on both sides (Beltagy et al. 2020).

    `Causal() & Window(w)` is the sliding window of decoders: a token sees itself and w - 1 before it.
    """

    size: int
    """Tokens on each side, the query's own included; at least 1."""

    def __post_init__(self):
        if isinstance(self.size, bool | int | float) and (not is_count(self.size) or self.size < 1):
            raise ConfigError(f"Window.size: {self.size!r} is not a positive whole number")

    def __call__(self, queries, keys):
        return jnp.abs(queries.distance_from(keys)[:, None]) < self.size


@dataclass(frozen=True)
class Prefix(Mask):
    """Every query attends to the keys at positions below `length`, a number or (B,) numbers.

    `Causal() | Prefix(n)` is the prefix language model (Raffel et al. 2019, figure 4).
    """

    length: Any

    def __call__(self, queries, keys):
        length_B = jnp.atleast_1d(jnp.asarray(self.length, jnp.int32))
        return keys.positions[:, None, None, :] < length_B[:, None, None, None]


@dataclass(frozen=True)
class BlockDiffusion(Mask):
    """`length` noisy tokens, then the same clean ones, for denoising in blocks of `size` (Arriola et al. 2025).

    A noisy token attends to its own noisy block and to the clean blocks before it, a clean one to the clean blocks up
    to its own. Rows and columns count, not positions, which are the same for both halves.
    """

    length: int
    size: int

    def __call__(self, queries, keys):
        query_L1, key_1S = queries.indices[:, None], keys.indices[None]
        from_clean, to_clean = query_L1 >= self.length, key_1S >= self.length
        later = query_L1 % self.length // self.size - key_1S % self.length // self.size
        noisy = jnp.where(to_clean, later > 0, later == 0)
        return jnp.where(from_clean, to_clean & (later >= 0), noisy)[None, None]


@dataclass(frozen=True)
class Nowhere(Mask):
    """Every query attends to the keys that are no tokens, at position `NOWHERE`."""

    def __call__(self, queries, keys):
        return (keys.positions == NOWHERE)[:, None, None, :]


@dataclass(frozen=True)
class Padding(Mask):
    """Keys that are padding (`Tokens.valid` False) are not attended to."""

    transitive = True

    def __call__(self, queries, keys):
        if keys.valid is None:
            return jnp.ones((1, 1, 1, 1), bool)
        return keys.valid[:, None, None, :]


@dataclass(frozen=True)
class Segment(Mask):
    """Queries attend within their own packed document."""

    transitive = True

    def __call__(self, queries, keys):
        if queries.segments is None or keys.segments is None:
            return jnp.ones((1, 1, 1, 1), bool)
        return queries.segments[:, None, :, None] == keys.segments[:, None, None, :]


@dataclass(frozen=True)
class OwnBeams(Mask):
    """Queries attend to the tokens of their own beams (tree attention, Miao et al. 2023, section 4.1)."""

    def __call__(self, queries, keys):
        if queries.beams is None or keys.beams is None:
            return jnp.ones((1, 1, 1, 1), bool)
        return (queries.beams[:, :, :, None] & keys.beams[:, :, None, :]).any(1, keepdims=True)


@dataclass(frozen=True)
class Arbitrary(Mask):
    """Any boolean array (L, S) or (B or 1, H or 1, L, S), looked up by token index.

    Where it is applied it raises `ConfigError` if it is not boolean, or has fewer queries or keys than there are.
    """

    allowed: jax.Array
    """(L, S) or (B or 1, H or 1, L, S) bool, with L and S the numbers of all queries and keys, or more."""

    def __call__(self, queries, keys):
        shape, needed = self.allowed.shape, (len(queries.indices), len(keys.indices))
        fits = len(shape) >= 2 and all(n == 1 or n >= least for n, least in zip(shape[-2:], needed, strict=True))
        if self.allowed.dtype != bool:
            raise ConfigError(f"mask: the array of Arbitrary is {self.allowed.dtype}, not bool, True where one attends")
        if not fits:
            raise ConfigError(f"mask: the array of Arbitrary is {shape}, not (…, {needed[0]}, {needed[1]}) or larger")
        return self.allowed[..., queries.indices[:, None], keys.indices[None, :]]


@dataclass(frozen=True)
class And(Mask):
    """Keys that both masks allow."""

    left: Mask
    right: Mask

    @property
    def directed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.left.directed or self.right.directed

    @property
    def transitive(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.left.transitive and self.right.transitive

    def __call__(self, queries, keys):
        return allows(self.left, queries, keys) & allows(self.right, queries, keys)


def conjuncts(mask: MaskFunction | None) -> Iterator[MaskFunction]:
    """The masks that all have to allow a key, of which None has none."""
    if isinstance(mask, And):
        yield from conjuncts(mask.left)
        yield from conjuncts(mask.right)
    elif mask is not None:
        yield mask


@dataclass(frozen=True)
class Or(Mask):
    """Keys that either mask allows."""

    left: Mask
    right: Mask

    def __call__(self, queries, keys):
        return allows(self.left, queries, keys) | allows(self.right, queries, keys)


@dataclass(frozen=True)
class Not(Mask):
    """Keys that the mask does not allow."""

    mask: Mask

    def __call__(self, queries, keys):
        return ~allows(self.mask, queries, keys)
