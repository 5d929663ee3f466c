"""Heads whose scores do not compare tokens (Synthesizer, Tay et al. 2020).

The score of a query for the key at position p is entry p of a vector that is made without the keys. So
keys are unit vectors of their positions, and everything else is as in any attention.
"""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import look_up
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ZEROS, FanIn, Normal, OwnParams, Parameter
from transformer.mixers.attention.base import Heads, HeadShape, HeadSizes


class Synthesizer(Heads):
    """Scores of a query for positions; `dot_product` adds the products of queries and keys."""

    length: int
    dot_product: bool
    weighted: bool

    def __post_init__(self):
        check_positive(self, "length")
        if self.weighted and not self.dot_product:
            raise ConfigError(f"{self.name}.weighted: there are no products to weigh; set dot_product too")

    def parameters(self, sizes, d_model):
        return {"share": Parameter((), ZEROS)} if self.weighted else {}

    @property
    def longest(self):
        return self.length

    @property
    def compares(self):
        return self.dot_product

    def shape(self, sizes):
        H, G, K, V = sizes
        own = K if self.dot_product else 0
        # The product of queries and keys is scaled before the scores are added: the compared size is 1.
        return HeadShape(self.widths(sizes), H, G, own + self.vector_size(), V, 1, own)

    @abc.abstractmethod
    def widths(self, sizes: HeadSizes) -> dict[str, int]:
        """Widths of the projections."""

    def vector_size(self) -> int:
        """Size of the vectors."""
        return self.length

    def vectors(self, positions_BS: jax.Array, sizes: HeadSizes, params: OwnParams) -> jax.Array:
        """The vector of each key, (B or 1, S, 1 or G, vector size)."""
        return jax.nn.one_hot(positions_BS, self.length, dtype=jnp.float32)[:, :, None]

    def joined(self, q_BLX: jax.Array, vectors_BLHX: jax.Array, sizes: HeadSizes, params: OwnParams) -> jax.Array:
        """The vectors, appended to the queries of the dot product where there is one."""
        vectors = jnp.broadcast_to(vectors_BLHX, (*q_BLX.shape[:2], *vectors_BLHX.shape[2:])).astype(q_BLX.dtype)
        if not self.dot_product:
            return vectors
        q = rearrange(q_BLX, "b l (h k) -> b l h k", k=sizes.head_dim) * jnp.asarray(sizes.head_dim**-0.5, q_BLX.dtype)
        if self.weighted:
            share = jax.nn.sigmoid(params["share"]).astype(q.dtype)
            q, vectors = (1 - share) * q, share * vectors
        return jnp.concatenate([q, vectors], -1)

    def keys_values(self, k_BSX, v_BSX, positions_BS, sizes, params):
        v = rearrange(v_BSX, "b s (g v) -> b s g v", v=sizes.value_dim)
        vectors = self.vectors(positions_BS, sizes, params).astype(v.dtype)
        keys = jnp.broadcast_to(vectors, (*v.shape[:3], vectors.shape[-1]))
        if not self.dot_product:
            return keys, v
        return jnp.concatenate([rearrange(k_BSX, "b s (g k) -> b s g k", k=sizes.head_dim), keys], -1), v


@dataclass(frozen=True)
class DenseSynthesizer(Synthesizer):
    """Scores from a small network of the query's token alone: W₂ relu(W₁ x) (Tay et al. 2020, section 3.1).

    With `columns` the network gives two vectors instead, and the score of position p is the product of entry
    ⌊p / columns⌋ of one and entry p mod columns of the other (Factorized Dense Synthesizer).
    """

    name = "dense_synthesizer"
    length: int = 64
    """Length of the longest sequence, in tokens."""
    columns: int | None = None
    """Size of the second of two vectors, which divides the length; None: one vector of all scores."""
    dot_product: bool = False
    """Whether the products of queries and keys are added to the scores."""
    weighted: bool = False
    """Whether the two are weighted by a trained α, initially ½, and 1 - α (section 3.3)."""

    def __post_init__(self):
        super().__post_init__()
        if self.columns is not None and (self.columns < 1 or self.length % self.columns):
            raise ConfigError(f"dense_synthesizer.columns: {self.columns} do not divide the length {self.length}")

    def widths(self, sizes):
        H, G, K, V = sizes
        more = self.dot_product
        return {"query": H * K * (1 + more), "key": G * K * more, "value": G * V}

    def parameters(self, sizes, d_model):
        sizes_of = {"scores": self.length}
        if self.columns is not None:
            sizes_of = {"rows": self.length // self.columns, "columns": self.columns}
        heads = (sizes.num_heads, sizes.head_dim)
        own = {name: Parameter((*heads, size), FanIn(), stacked=True) for name, size in sizes_of.items()}
        return own | super().parameters(sizes, d_model)

    def queries(self, q_BLX, positions_BL, sizes, params):
        hidden, q = jnp.split(q_BLX, [sizes.num_heads * sizes.head_dim], -1)
        hidden = jax.nn.relu(rearrange(hidden, "b l (h k) -> b l h k", k=sizes.head_dim))
        names = ("scores",) if self.columns is None else ("rows", "columns")
        scores, *others = (jnp.einsum("blhk,hkn->blhn", hidden, params[n].astype(hidden.dtype)) for n in names)
        for columns in others:
            scores = rearrange(scores[..., None] * columns[..., None, :], "b l h r c -> b l h (r c)")
        scores = jnp.where((positions_BL < self.length)[..., None, None], scores, jnp.nan)
        return self.joined(q if self.dot_product else q_BLX, scores, sizes, params)


@dataclass(frozen=True)
class RandomSynthesizer(Synthesizer):
    """A trained matrix of scores for all tokens alike (Tay et al. 2020, section 3.2)."""

    name = "random_synthesizer"
    length: int = 64
    """Length of the longest sequence, in tokens."""
    rank: int | None = None
    """Rank of the matrix, which is then a product of two (Tay et al. 2020, section 3.3.2); None: full rank."""
    dot_product: bool = False
    """Whether the products of queries and keys are added to the scores."""
    weighted: bool = False
    """Whether the two are weighted by a trained α, initially ½, and 1 - α (section 3.3)."""

    def __post_init__(self):
        super().__post_init__()
        if self.rank is not None:
            check_positive(self, "rank")

    def widths(self, sizes):
        H, G, K, V = sizes
        return {"query": H * K * self.dot_product, "key": G * K * self.dot_product, "value": G * V}

    def vector_size(self):
        return self.length if self.rank is None else self.rank

    def parameters(self, sizes, d_model):
        size = self.vector_size()
        queries, keys = (Parameter((n, self.length, size), Normal(1.0), decay=False) for n in sizes[:2])
        own = {"queries": queries} if self.rank is None else {"queries": queries, "keys": keys}
        return own | super().parameters(sizes, d_model)

    def vectors(self, positions_BS, sizes, params):
        if self.rank is None:
            return super().vectors(positions_BS, sizes, params)
        return rearrange(params["keys"][:, positions_BS], "g b s r -> b s g r")

    def queries(self, q_BLX, positions_BL, sizes, params):
        rows = rearrange(jax.vmap(look_up, (0, None))(params["queries"], positions_BL), "h b l n -> b l h n")
        return self.joined(q_BLX, rows, sizes, params)
