"""Recurrences that are linear in a state of keys and values: one equation, its steps, and its chunked parallel form.

    S' = decay ⊙ S                              the state (K, V) of a head, whose rows fade
    S ← S' + k vᵀ - rate · write (readᵀ S')     a value is written at a key, and another one is erased
    y = Sᵀ q

Without erasing this is linear attention (Katharopoulos et al. 2020), and with a decay RetNet, GLA, HGRN2, Mamba-2 and
mLSTM; with `read` = `write` = k and v = rate · value it is the delta rule (DeltaNet, Gated DeltaNet, KDA); with others,
RWKV-7. The step is the definition. The chunked form computes C steps at once by products of matrices (the WY or UT
transform; Yang et al. 2024, 2025): within a chunk each token sees what the tokens before it wrote, and chunks hand on
the state.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from jax import lax

TOGETHER = 8
"""Chunks computed at once, between which the backward pass keeps no more than the state."""


class Erase(NamedTuple):
    """What a token removes from the state: rate · write (readᵀ S')."""

    rate_BLH: jax.Array
    read_BLHK: jax.Array | None = None
    """None: the key."""
    write_BLHK: jax.Array | None = None
    """None: the key."""


class Update(NamedTuple):
    """What tokens do to the state, and how they read it; every array float32."""

    q_BLHK: jax.Array
    k_BLHK: jax.Array
    v_BLHV: jax.Array
    log_decay_BLHK: jax.Array | None = None
    """(B, L, H, K) or (B, L, H, 1), at most 0; None: nothing fades."""
    erase: Erase | None = None


def linear_step(state_BHKV: jax.Array, update: Update) -> tuple[jax.Array, jax.Array]:
    """(the state after one token, its output (B, H, V)), from arrays without the axis L: the definition."""
    q, k, v, log_decay, erase = update
    faded = state_BHKV if log_decay is None else jnp.exp(log_decay)[..., None] * state_BHKV
    after = faded + k[..., None] * v[..., None, :]
    if erase is not None:
        read, write = (k if one is None else one for one in (erase.read_BLHK, erase.write_BLHK))
        seen_BHV = erase.rate_BLH[..., None] * jnp.einsum("bhk,bhkv->bhv", read, faded)
        after = after - write[..., None] * seen_BHV[..., None, :]
    return after, jnp.einsum("bhk,bhkv->bhv", q, after)


def linear_recurrence(
    update: Update,
    state_BHKV: jax.Array,
    *,
    documents_BL: jax.Array | None = None,
    valid_BL: jax.Array | None = None,
    chunk: int = 64,
) -> tuple[jax.Array, jax.Array]:
    """(outputs (B, L, H, V), the state after the last token): `linear_step` for all tokens, in chunks.

    O(L · (C + K) · V) operations a head; the backward pass keeps the inputs and one state for every `TOGETHER` chunks.

    Args:
      update: of the tokens.
      state_BHKV: before the first token.
      documents_BL: numbers that rise where a document begins, with an empty state; None: `state_BHKV` goes on.
      valid_BL: False for padding, which leaves the state as it was, and whose outputs mean nothing.
      chunk: C, tokens per chunk; any number, and the last chunk may be shorter.
    """
    B, L = update.q_BLHK.shape[:2]
    if valid_BL is not None:
        update = _nothing_written(update, valid_BL)
    chunk = min(chunk, L)
    together = min(TOGETHER, -(-L // chunk))
    if documents_BL is not None:
        documents_BL = jnp.broadcast_to(documents_BL, (B, L))
    # Tokens that fill up the last group write and read nothing, and nothing fades.
    cut = functools.partial(_groups, size=together * chunk)
    groups = jax.tree.map(cut, update), None if documents_BL is None else cut(documents_BL, mode="edge")
    first_B = None if documents_BL is None else documents_BL[:, 0]

    turn = jax.checkpoint(functools.partial(_group, chunk=chunk), prevent_cse=False)
    (last, _), y_NBLHV = lax.scan(turn, (state_BHKV, first_B), groups)
    return rearrange(y_NBLHV, "n b l h v -> b (n l) h v")[:, :L], last


def _nothing_written(update: Update, valid_BL: jax.Array) -> Update:
    def kept(x: jax.Array | None) -> jax.Array | None:
        return None if x is None else jnp.where(valid_BL.reshape(*valid_BL.shape, *(1,) * (x.ndim - 2)), x, 0.0)

    erase = update.erase and update.erase._replace(rate_BLH=kept(update.erase.rate_BLH))
    v_BLHV, log_decay = kept(update.v_BLHV), kept(update.log_decay_BLHK)
    return update._replace(v_BLHV=v_BLHV, log_decay_BLHK=log_decay, erase=erase)


def _groups(x_BLX: jax.Array, size: int, mode: str = "constant") -> jax.Array:
    """(groups, B, size, …)."""
    widths = [(0, 0), (0, -x_BLX.shape[1] % size), *[(0, 0)] * (x_BLX.ndim - 2)]
    x = jnp.pad(x_BLX, widths, mode=mode)
    return jnp.moveaxis(x.reshape(len(x), -1, size, *x.shape[2:]), 1, 0)


class _Documents(NamedTuple):
    """Which tokens of a chunk share a document, and which belong to the document at its start or at its end."""

    together_NCC: jax.Array
    go_on_NC1: jax.Array
    """Whether a token is of the document before the chunk."""
    last_NC1: jax.Array
    """Whether it is of the one at the end of the chunk."""
    same_N11: jax.Array
    """Whether these two are one."""

    @classmethod
    def of(cls, documents_BL: jax.Array, before_B: jax.Array, chunk: int) -> "_Documents":
        own_NC = rearrange(documents_BL, "b (n c) -> b 1 n c", c=chunk)
        last_N1 = own_NC[..., -1:]
        before_N1 = jnp.concatenate([before_B[:, None, None, None], last_N1[:, :, :-1]], 2)
        together = own_NC[..., :, None] == own_NC[..., None, :]
        go_on, last, same = own_NC == before_N1, own_NC == last_N1, last_N1 == before_N1
        return cls(together, go_on[..., None], last[..., None], same[..., None])


class _Faded(NamedTuple):
    """What is left of one token at another one, in chunks."""

    sums_NCX: jax.Array | None
    """(B, H, N, C, K or 1), the logarithms of the decay, summed from the beginning of each chunk; None: none fades."""
    documents: _Documents | None
    """None: all tokens are of one."""

    def products(self, left_NCK: jax.Array, right_NCK: jax.Array, *, itself: bool) -> jax.Array:
        """Σ_k left_tk · decay of k from s to t · right_sk, (…, t, s), 0 for s > t and, without `itself`, s = t."""
        C = left_NCK.shape[-2]
        past_CC = jnp.tril(jnp.ones((C, C), bool))
        seen = past_CC if itself else jnp.tril(past_CC, -1)
        seen = seen if self.documents is None else seen & self.documents.together_NCC
        if self.sums_NCX is None or self.sums_NCX.shape[-1] == 1:
            scores = left_NCK @ jnp.swapaxes(right_NCK, -1, -2)
            if self.sums_NCX is not None:
                sums = self.sums_NCX[..., 0]
                scores = scores * jnp.exp(jnp.where(past_CC, sums[..., :, None] - sums[..., None, :], 0.0))
        else:
            more = ((0, 0), (0, _whole(C) - C), (0, 0))
            factors = (x.reshape(-1, *x.shape[-2:]) for x in (left_NCK, right_NCK, self.sums_NCX))
            scores_XCC = _featurewise(*(jnp.pad(x, more, mode="edge") for x in factors))
            scores = scores_XCC[:, :C, :C].reshape(*left_NCK.shape[:-1], C)
        return jnp.where(seen, scores, 0.0)

    def since_start(self, x_NCK: jax.Array) -> jax.Array:
        """What is compared with the state before the chunk."""
        x_NCK = x_NCK if self.sums_NCX is None else x_NCK * jnp.exp(self.sums_NCX)
        return x_NCK if self.documents is None else jnp.where(self.documents.go_on_NC1, x_NCK, 0.0)

    def to_end(self, x_NCK: jax.Array) -> jax.Array:
        """What is left at the end of the chunk."""
        x_NCK = x_NCK if self.sums_NCX is None else x_NCK * jnp.exp(self.sums_NCX[..., -1:, :] - self.sums_NCX)
        return x_NCK if self.documents is None else jnp.where(self.documents.last_NC1, x_NCK, 0.0)

    def of_state(self) -> jax.Array:
        """The share of the rows (…, K or 1, 1) of the state before the chunk that is left at its end."""
        kept = jnp.asarray(1.0) if self.sums_NCX is None else jnp.exp(jnp.swapaxes(self.sums_NCX[..., -1:, :], -1, -2))
        return kept if self.documents is None else jnp.where(self.documents.same_N11, kept, 0.0)


def _whole(size: int) -> int:
    """The next number that halves down to 1 or 2."""
    return size if size <= 2 else 2 * _whole(-(-size // 2))


def _featurewise(left_XCK: jax.Array, right_XCK: jax.Array, sums_XCK: jax.Array) -> jax.Array:
    """`_Faded.products` for s <= t, where every feature fades by itself, (X, C, C).

    The decay from s to t is a quotient whose parts may be out of the range of floats. By halves, it is split between
    them into two factors of at most 1 (cf. Yang et al. 2024, section 4.2); the decay between two neighbours is formed.
    """
    C = left_XCK.shape[1]
    if C <= 2:
        past_CC1 = jnp.tril(jnp.ones((C, C), bool))[..., None]
        faded = jnp.exp(jnp.where(past_CC1, sums_XCK[:, :, None] - sums_XCK[:, None, :], 0.0))
        return (left_XCK[:, :, None] * right_XCK[:, None, :] * faded).sum(-1)
    halves = (rearrange(x, "x (i c) k -> (x i) c k", i=2) for x in (left_XCK, right_XCK, sums_XCK))
    first, second = jnp.moveaxis(rearrange(_featurewise(*halves), "(x i) c s -> x i c s", i=2), 1, 0)
    half, between = C // 2, sums_XCK[:, C // 2 - 1, None]
    left = left_XCK[:, half:] * jnp.exp(sums_XCK[:, half:] - between)
    right = right_XCK[:, :half] * jnp.exp(between - sums_XCK[:, :half])
    corner = left @ jnp.swapaxes(right, 1, 2)
    return _triangle(first, corner, second)


def _triangle(first: jax.Array, corner: jax.Array, second: jax.Array) -> jax.Array:
    """The matrices with two blocks on the diagonal, and one below."""
    upper = jnp.concatenate([first, jnp.zeros((*first.shape[:-1], second.shape[-1]), first.dtype)], -1)
    return jnp.concatenate([upper, jnp.concatenate([corner, second], -1)], -2)


Carry = tuple[jax.Array, jax.Array | None]
"""The state, and the document that it is of."""


def _group(carry: Carry, group: tuple[Update, jax.Array | None], chunk: int) -> tuple[Carry, jax.Array]:
    """(what is carried on after some chunks, their outputs (B, L, H, V))."""
    (state_BHKV, before_B), (update, documents_BL) = carry, group
    q, k, v, log_decay, erase = update

    def chunks(x_BLHK: jax.Array) -> jax.Array:
        return rearrange(x_BLHK, "b (n c) h k -> b h n c k", c=chunk)

    q, k, v = chunks(q), chunks(k), chunks(v)
    documents = None
    if documents_BL is not None and before_B is not None:
        documents, before_B = _Documents.of(documents_BL, before_B, chunk), documents_BL[:, -1]
    faded = _Faded(None if log_decay is None else jnp.cumsum(chunks(log_decay), -2), documents)
    own, from_start, k_at_end = faded.products(q, k, itself=True), faded.since_start(q), faded.to_end(k)
    written_NKV, change_NKK = jnp.swapaxes(k_at_end, -1, -2) @ v, None
    y_own = own @ v
    if erase is not None:
        rate_NC1 = chunks(erase.rate_BLH[..., None])
        read = k if erase.read_BLHK is None else chunks(erase.read_BLHK)
        among = faded.products(read, k, itself=False)
        written_at, erased_own, erased_at_end = among, own, k_at_end
        if erase.write_BLHK is not None:
            write = chunks(erase.write_BLHK)
            written_at, erased_own = faded.products(read, write, itself=False), faded.products(q, write, itself=True)
            erased_at_end = faded.to_end(write)
        # What each token erases solves a triangular system: rate · (read of the start, and of earlier writes).
        inverse = inverse_unit_triangular(rate_NC1 * written_at)
        of_start_NCK, of_chunk_NCV = inverse @ (rate_NC1 * faded.since_start(read)), inverse @ (rate_NC1 * (among @ v))
        away_NKC = jnp.swapaxes(erased_at_end, -1, -2)
        change_NKK, written_NKV = away_NKC @ of_start_NCK, written_NKV - away_NKC @ of_chunk_NCV
        from_start, y_own = from_start - erased_own @ of_start_NCK, y_own - erased_own @ of_chunk_NCV
    starts_NKV, last = _states(state_BHKV, faded.of_state(), change_NKK, written_NKV)
    y_NCV = y_own + from_start @ starts_NKV
    return (last, before_B), rearrange(y_NCV, "b h n c v -> b (n c) h v")


def _states(
    state_BHKV: jax.Array, kept_NK1: jax.Array, change_NKK: jax.Array | None, written_NKV: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(the states before each chunk (B, H, N, K, V), that after the last), by S ← kept ⊙ S - change S + written."""
    kept = jnp.broadcast_to(kept_NK1, (*written_NKV.shape[:-1], 1))
    states = [state_BHKV]
    for i in range(written_NKV.shape[2]):
        before = states[-1]
        after = kept[:, :, i] * before + written_NKV[:, :, i]
        states.append(after if change_NKK is None else after - change_NKK[:, :, i] @ before)
    return jnp.stack(states[:-1], 2), states[-1]


@jax.custom_vjp
def inverse_unit_triangular(lower: jax.Array) -> jax.Array:
    """(I + lower)⁻¹ for strictly lower triangular matrices (…, C, C), by halves, as forward substitution is stable.

    Powers of `lower`, which would need fewer products, grow beyond all digits where keys are alike.
    """
    return _inverse(lower)


def _inverse(lower):
    C = lower.shape[-1]
    if C <= 2:
        return jnp.eye(C, dtype=lower.dtype) - lower
    half = C // 2
    first, second = _inverse(lower[..., :half, :half]), _inverse(lower[..., half:, half:])
    return _triangle(first, -second @ (lower[..., half:, :half] @ first), second)


def _inverse_forward(lower):
    inverse = _inverse(lower)
    return inverse, inverse


def _inverse_backward(inverse, d_inverse):
    turned = jnp.swapaxes(inverse, -1, -2)
    return (-jnp.tril(turned @ d_inverse @ turned, -1),)


inverse_unit_triangular.defvjp(_inverse_forward, _inverse_backward)
