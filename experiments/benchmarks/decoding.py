"""Decoding speed against Hugging Face `generate` (extra `parity`): same shapes, random weights, a cache.

GPT-2-like greedy decoding of 256 tokens after a prompt of one, prompts of 1,000 tokens read for one token, and
BART-like beam search of 64 tokens from sources of 32; all stop at the last token only. Hugging Face uses all cores for
every product; ours decodes a batch on one device (a core, and what XLA gives to the others), and in equal parts on all
of them (`mesh`). Speculative decoding is compared with plain decoding of the same model.
"""

import argparse
import functools
import math
import time
from collections.abc import Callable
from typing import Any

from experiments.benchmarks.interleave import ratios
from experiments.benchmarks.record import Table
from transformer.core import runtime

TOKENS, VOCAB, PROMPT = 256, 256, 1000
SOURCE, BEAM_TOKENS, BEAMS = 32, 64, 4
LANGUAGE_MODELS = {"d 128, 4 layers": (128, 4, 4), "d 384, 6 layers": (384, 6, 6)}
ENCODER_DECODER = (256, 3, 4)
LARGE = (768, 12, 12)
GUESSES = 4
"""Tokens that a draft guesses before the model reads them."""


Work = Callable[[], object]


def language_model(d_model: int, num_layers: int, num_heads: int, length: int):
    """(configuration, parameters, pure model)."""
    import jax

    import transformer as T  # noqa: N812

    config = T.ModelConfig(
        vocab_size=VOCAB,
        max_length=length,
        num_layers=num_layers,
        d_model=d_model,
        mixer=T.Attention(num_heads=num_heads),
    )
    return config, *T.split(T.LanguageModel(config, key=jax.random.key(0)))


def ours(d_model: int, num_layers: int, num_heads: int, batch: int, prompt: int = 1, tokens: int = TOKENS):
    """Decoding of `tokens` tokens after a prompt."""
    import jax
    import jax.numpy as jnp

    import transformer as T  # noqa: N812

    config, params, apply = language_model(d_model, num_layers, num_heads, prompt + tokens)
    prompt_BL = jnp.ones((batch, prompt), jnp.int32)
    if prompt > 1:  # products are most of the work, and scores
        apply = T.pure_model(config.replace({"mixer.backend": T.Chunked(256)}))[1]
        read = functools.partial(T.generate, apply, params, prompt_BL, num_tokens=tokens)
        works = {", scores in blocks": lambda: jax.block_until_ready(read())}
        return works | {", also products of bfloat16": lambda: _with_bfloat16(read)}
    works = on_devices(batch, functools.partial(T.generate, apply, params, prompt_BL, num_tokens=tokens))
    integers = functools.partial(T.generate, apply, T.quantize(params), prompt_BL, num_tokens=tokens)
    return works | {", kernels of 8 bits": lambda: jax.block_until_ready(integers())}


def _with_bfloat16(work: Work) -> object:
    import jax

    with jax.default_matmul_precision("bfloat16"):
        return jax.block_until_ready(work())


def hugging_face(d_model: int, num_layers: int, num_heads: int, batch: int, prompt: int = 1, tokens: int = TOKENS):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel  # pyright: ignore

    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=prompt + tokens,
        n_embd=d_model,
        n_layer=num_layers,
        n_head=num_heads,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()
    prompt_BL = torch.ones((batch, prompt), dtype=torch.long)
    return lambda: model.generate(
        prompt_BL, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, use_cache=True
    )


def speculation() -> tuple[dict[str, Work], float]:
    """Plain and speculative decoding of one model, and the share of guesses that were right.

    The draft is the first quarter of the layers. The branches of the others are small, so that the random model mostly
    agrees with its first layers; what is gained depends on how often.
    """
    import jax
    import jax.numpy as jnp

    import transformer as T  # noqa: N812

    config, params, apply = language_model(*LARGE, TOKENS + 1)
    layers = config.num_layers // 4
    small = jnp.where(jnp.arange(config.num_layers) < layers, 1.0, 0.05)
    for name in ("attention", "feed_forward"):
        out = params["blocks"]["kinds"]["0"][name]["out"]
        out["kernel"] = out["kernel"] * small[:, None, None]
    draft, draft_apply = T.early_exit(config, params, layers)
    start = jnp.ones((1, 1), jnp.int32)
    plain = functools.partial(T.generate, apply, params, start, num_tokens=TOKENS)
    guessed = functools.partial(T.speculate, apply, params, draft_apply, draft, start, num_tokens=TOKENS, ahead=GUESSES)
    rounds = int(guessed()[1][0])
    right = ((TOKENS - 1) / rounds - 1) / GUESSES
    return {"plain": lambda: jax.block_until_ready(plain()), "": lambda: jax.block_until_ready(guessed())}, right


def our_beams(d_model: int, num_layers: int, num_heads: int, batch: int) -> dict[str, Work]:
    import jax
    import jax.numpy as jnp

    import transformer as T  # noqa: N812

    config = T.EncoderDecoderConfig(
        vocab_size=VOCAB,
        source_vocab_size=VOCAB,
        max_length=BEAM_TOKENS + 1,
        max_source_length=SOURCE,
        num_layers=num_layers,
        d_model=d_model,
        mixer=T.Attention(num_heads=num_heads, bias=("query", "key", "value", "out")),
        feed_forward=T.FeedForward(bias=True),
        residual=T.PostNorm(),
    )
    params, apply = T.split(T.EncoderDecoder(config, key=jax.random.key(0)))
    start, source = jnp.ones((batch, 1), jnp.int32), jnp.ones((batch, SOURCE), jnp.int32)
    return on_devices(
        batch,
        functools.partial(
            T.generate,
            apply,
            params,
            start,
            num_tokens=BEAM_TOKENS,
            strategy=T.Beam(BEAMS),
            inputs={"source_BS": source},
        ),
    )


def on_devices(batch: int, generate: Callable[..., object]) -> dict[str, Work]:
    """Decoding on one device and, where there is more than one sequence, on all that divide the batch."""
    import jax

    works: dict[str, Work] = {"": lambda: jax.block_until_ready(generate())}
    if (count := math.gcd(batch, jax.device_count())) > 1:
        mesh = jax.make_mesh((count,), ("data",), devices=jax.devices()[:count])
        works[f" on {count} devices"] = lambda: jax.block_until_ready(generate(mesh=mesh))
    return works


def hugging_face_beams(d_model: int, num_layers: int, num_heads: int, batch: int) -> Work:
    import torch
    from transformers import BartConfig, BartForConditionalGeneration  # pyright: ignore

    config = BartConfig(
        vocab_size=VOCAB,
        max_position_embeddings=BEAM_TOKENS + SOURCE,
        d_model=d_model,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
        encoder_attention_heads=num_heads,
        decoder_attention_heads=num_heads,
        encoder_ffn_dim=4 * d_model,
        decoder_ffn_dim=4 * d_model,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = BartForConditionalGeneration(config).eval()
    source = torch.ones((batch, SOURCE), dtype=torch.long)
    return lambda: model.generate(
        source, max_new_tokens=BEAM_TOKENS, min_new_tokens=BEAM_TOKENS, num_beams=BEAMS, do_sample=False, use_cache=True
    )


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cases() -> dict[str, tuple[float, Callable[[], tuple[dict[str, Work], Work]]]]:
    """By name: units of work, and what makes (our ways to do it, theirs)."""
    found: dict[str, Any] = {}
    for name, size in LANGUAGE_MODELS.items():
        for batch in (1, 8):
            found[f"{name}, batch {batch}, tokens/s"] = (batch * TOKENS, _pair(ours, hugging_face, *size, batch))
        more = (1, PROMPT, 1)
        found[f"{name}, prompt of {PROMPT:,}, tokens/s"] = (PROMPT, _pair(ours, hugging_face, *size, *more))
    for batch in (1, 8):
        name = f"encoder-decoder, batch {batch}, beam {BEAMS}, sentences/s"
        found[name] = (batch, _pair(our_beams, hugging_face_beams, *ENCODER_DECODER, batch))
    return found


def _pair(our: Callable, their: Callable, *sizes: int):
    return lambda: (our(*sizes), their(*sizes))


def timed(works: dict[str, Work], rounds: int) -> dict[str, list[float]]:
    for work in works.values():
        work()  # compilation and caches
    times: dict[str, list[float]] = {label: [] for label in works}
    for _ in range(rounds):
        for label, work in works.items():
            times[label].append(seconds(work))
    return times


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    runtime.start()
    rows = []
    for name, (units, make) in cases().items():
        works, theirs = make()
        times = timed(works | {"theirs": theirs}, arguments.rounds)
        rate = {label: [units / t for t in own] for label, own in times.items()}
        rows += [(name + label, rate[label], rate["theirs"], ratios(times, "theirs", label)) for label in works]
    columns = ("", "ours", "Hugging Face", "times faster")
    tables = {"decoding": Table("Decoding against Hugging Face `generate`", columns, (0, 0, 0, 1), tuple(rows))}
    works, right = speculation()
    times = timed(works, arguments.rounds)
    rate = {label: [TOKENS / t for t in own] for label, own in times.items()}
    name = f"d {LARGE[0]}, {LARGE[1]} layers, {GUESSES} guesses of {LARGE[1] // 4} layers, {right:.0%} right, tokens/s"
    row = (name, rate[""], rate["plain"], ratios(times, "plain", ""))
    columns = ("", "speculative", "plain", "times faster")
    return tables | {"speculative": Table("Speculative against plain decoding", columns, (0, 0, 0, 2), (row,))}
