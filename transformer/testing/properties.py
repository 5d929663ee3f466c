"""Properties that hold for a model with any choices. Each raises AssertionError with one line where it does not."""

import json
from collections.abc import Callable

import jax
import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.json import from_json, to_json
from transformer.core.values import Variant
from transformer.mixers.mixer import Mixer
from transformer.positions.rotary import RoPE
from transformer.testing.comparing import DoesNotApply, applies, close, differ
from transformer.testing.evaluation import Evaluated
from transformer.testing.subject import LENGTH, NOW, ROOM, VOCAB, Subject, shaken, tokens_of

TOKENS = tokens_of(2)
BESIDE = tokens_of(2, ROOM - LENGTH, seed=1)
"""Tokens that share a row with a sequence."""
ALIKE = np.concatenate([TOKENS[[0, 0], :NOW], TOKENS[:, NOW:]], 1)
"""Two texts with the same beginning."""
LONG = np.concatenate([TOKENS, BESIDE], 1)
ONES = np.ones(TOKENS.shape, np.float32)


def finite(subject: Subject) -> None:
    """Logits are float32 and finite, with the initial parameters and with random ones."""
    for params in (subject.initial, subject.params):
        (_, logits), _ = subject.gradient(params, TOKENS, ONES)
        assert logits.dtype == np.float32, f"logits are {logits.dtype}"
        assert np.isfinite(logits).all(), "logits are not finite"


def causal(subject: Subject) -> None:
    """A token's logits depend on no later token: by value, bit for bit, and by gradient."""
    now = np.zeros(TOKENS.shape, np.float32)
    now[0, NOW] = 1
    (_, logits), gradient = subject.gradient(subject.params, TOKENS, now)
    (_, changed), _ = subject.gradient(subject.params, _with_others(TOKENS, slice(NOW, None)), now)
    assert (logits[:, :NOW] == changed[:, :NOW]).all(), "logits change with a later token"
    if subject.config.head.tied:
        return  # the output table has a gradient in every row
    seen = np.abs(np.asarray(gradient["embedding"]["table"])[TOKENS[0]]).max(-1)
    assert not seen[NOW + 1 :].any(), "the gradient reaches a later token"
    if _sees_all(subject):
        if not seen[: NOW + 1].all():  # weights may be 0 by chance, such as those of a ReLU
            _, other = subject.gradient(shaken(subject.params, seed=1), TOKENS, now)
            seen = seen + np.abs(np.asarray(other["embedding"]["table"])[TOKENS[0]]).max(-1)
        assert (seen[: NOW + 1] > 0).all(), "an earlier token is not seen"


def sees_everything(subject: Subject) -> None:
    """In an encoder the first token's logits depend on the last token."""
    applies(_sees_all(subject))
    logits, changed = (subject.alone(t)[:, 0] for t in (TOKENS, _with_others(TOKENS, slice(-1, None))))
    differ(logits, changed, "the last token is not seen by the first")


def padding(subject: Subject) -> None:
    """Neither the content nor the amount of padding changes anything."""
    padded = (LONG, np.concatenate([TOKENS, BESIDE[:, ::-1]], 1))
    logits, changed = (subject.logits(t, valid=np.arange(ROOM) < LENGTH)[:, :LENGTH] for t in padded)
    close(logits, changed, "logits change with padding", 1e-6)
    assert np.isfinite(logits).all(), "padding makes logits infinite"
    close(logits, subject.alone(TOKENS), "a padded sequence is not the sequence alone")


def packing(subject: Subject) -> None:
    """Packed documents have the logits they have alone, and do not see each other."""
    applies(subject.config.mixing_choice is None)
    for documents, place in (((TOKENS, BESIDE), slice(0, LENGTH)), ((BESIDE, TOKENS), slice(-LENGTH, None))):
        tokens, ends = np.concatenate(documents, 1), documents[0].shape[1]
        segments = np.broadcast_to((np.arange(ROOM) >= ends).astype(np.int32), tokens.shape)
        positions = np.concatenate([np.arange(document.shape[1]) for document in documents])
        packed = subject.logits(tokens, positions=positions, segments=segments)
        close(packed[:, place], subject.alone(TOKENS), "a packed document is not the document alone")


def one_by_one(subject: Subject) -> None:
    """A sequence does not depend on the others of its batch."""
    other = np.stack([TOKENS[0], _with_others(TOKENS, slice(None))[1]])
    close(subject.alone(TOKENS)[0], subject.alone(other)[0], "a sequence depends on its batch")


def mixers(subject: Subject) -> list[Mixer]:
    """The mixers of all kinds of layers."""
    return [mixer for kind in subject.config.kinds for mixer in kind.mixers]


def _sees_all(subject: Subject) -> bool:
    """Whether a token depends on every token that the mask allows."""
    return bool(mixers(subject)) and all(mixer.sees_all for mixer in mixers(subject))


def routed(subject: Subject) -> bool:
    """Whether some layer has experts."""
    return any(kind.feed_forward is not None and kind.feed_forward.routed for kind in subject.config.kinds)


def _with_others(tokens: np.ndarray, place: slice) -> np.ndarray:
    """Tokens with some places replaced by tokens that occur nowhere else in the sequence."""
    changed = tokens.copy()
    for row in changed:
        unused = np.setdiff1d(np.arange(VOCAB), row)
        row[place] = unused[: len(row[place])]
    return changed


def ordered(subject: Subject) -> None:
    """Order matters under every scheme but `none`, under which an encoder is equivariant."""
    applies(bool(subject.config.mixers))
    order = np.random.default_rng(1).permutation(LENGTH)
    logits, mixed = subject.alone(TOKENS)[:, order], subject.alone(TOKENS[:, order])
    positions = [kind.position for kind in subject.config.kinds]
    orders = any(position is not None and position.orders for position in positions)
    orders |= any(mixer.ordered for mixer in mixers(subject)) or any(kind.looks_back for kind in subject.config.kinds)
    if not orders and _sees_all(subject):
        close(mixed, logits, "an encoder without positions sees the order")
    else:
        differ(mixed, logits, "the order of tokens does not matter")


def alive(subject: Subject) -> None:
    """Every parameter gets a gradient within three steps from its initial value, and moves.

    Where one does not, a tenth and three times its value are tried too: sums without a norm may be so large that a cap
    is flat, or outgrow float32, and scores so small that a ReLU passes none that a bias has lowered.
    """
    dead = {jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(subject.initial)}
    for share in (1.0, 0.1, 3.0):
        params = jax.tree.map(lambda p, share=share: (share * p).astype(p.dtype), subject.initial)
        for turn in range(3):
            (loss, _), gradient = subject.gradient(params, TOKENS, ONES)
            if not np.isfinite(loss) and share >= 1.0:
                break
            assert np.isfinite(loss), "the loss is not finite"
            for path, leaf in jax.tree.leaves_with_path(gradient):
                assert np.isfinite(leaf).all(), f"the gradient of {jax.tree_util.keystr(path)} is not finite"
                if np.abs(leaf).max() > 1e-12:
                    dead.discard(jax.tree_util.keystr(path))
            # Steps become shorter, so that what begins at 0 does not come back to it.
            step = np.float32(0.02 / (1 + turn))
            params = jax.tree.map(lambda p, g, step=step: p - step * np.sign(g).astype(p.dtype), params, gradient)
        if not dead:
            return
    raise AssertionError(f"no gradient reaches {', '.join(sorted(dead))}")


def cached(subject: Subject) -> None:
    """Token by token with a cache, the logits are those of the whole sequence."""
    close(subject.steps(subject.params, TOKENS), subject.alone(TOKENS), "cached logits are others")


def branched(subject: Subject) -> None:
    """Two texts that begin alike, in one cache, have the logits they have alone."""
    close(subject.beams(subject.params, ALIKE), subject.alone(ALIKE), "logits of beams are others")


def followed(subject: Subject) -> None:
    """Segment by segment, with a memory of all earlier tokens, the logits are those of the whole text."""
    whole = subject
    try:
        position = subject.config.position
        if position is not None and not position.extrapolates:
            whole = Subject(subject.config.replace(position=RoPE()))
        twin = whole.changed(memory_length=LENGTH)
    except ConfigError:
        raise DoesNotApply from None
    logits = Evaluated(whole.apply)(whole.params, TOKENS)
    close(twin.segments(whole.params, TOKENS), logits, "logits of a second segment are others (relative=False?)")


def described(value: Variant) -> None:
    """Text form and JSON are read back as the same value."""
    family = value.family()
    assert family.parse(str(value)) == value, f"{value} is parsed as another value"
    assert from_json(family, json.loads(json.dumps(to_json(value)))) == value, f"{value} comes back from JSON changed"


Property = Callable[[Subject], None]
COMBINATION: tuple[Property, ...] = (finite, causal, alive, cached)
"""Properties of a causal model with any combination of choices; they need two programs."""
DECODER: tuple[Property, ...] = (*COMBINATION, branched, padding, packing, one_by_one, followed)
"""Properties of every causal model."""
ENCODER: tuple[Property, ...] = (finite, alive, sees_everything, padding, packing, one_by_one, ordered)
"""Properties of every encoder."""
