"""Decoding speed against Hugging Face `generate`: same shapes, random weights, a cache (extra `parity`).

    python -m experiments.benchmarks.decoding [--rounds 5]

GPT-2-like greedy decoding of 256 tokens after a prompt of one, and BART-like beam search of 64 tokens
from sources of 32; both stop at the last token only. Hugging Face uses all cores for every product; ours decodes
a batch on one device (a core, and what XLA gives to the others), and in equal parts on all of them (`mesh`).
"""

import argparse
import functools
import math
import sys
import time
from collections.abc import Callable
from typing import Any

from experiments.benchmarks.interleave import ratios, show, spread
from transformer.core import runtime

TOKENS, VOCAB = 256, 256
SOURCE, BEAM_TOKENS, BEAMS = 32, 64, 4
LANGUAGE_MODELS = {"d 128, 4 layers": (128, 4, 4), "d 384, 6 layers": (384, 6, 6)}
ENCODER_DECODER = (256, 3, 4)


Work = Callable[[], object]


def ours(d_model: int, num_layers: int, num_heads: int, batch: int) -> dict[str, Work]:
    import jax
    import jax.numpy as jnp

    import transformer as T  # noqa: N812

    config = T.ModelConfig(
        vocab_size=VOCAB,
        max_length=TOKENS + 1,
        num_layers=num_layers,
        d_model=d_model,
        mixer=T.Attention(num_heads=num_heads),
    )
    params, apply = T.split(T.LanguageModel(config, key=jax.random.key(0)))
    prompt = jnp.ones((batch, 1), jnp.int32)
    return on_devices(batch, functools.partial(T.generate, apply, params, prompt, num_tokens=TOKENS))


def hugging_face(d_model: int, num_layers: int, num_heads: int, batch: int) -> Work:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel  # pyright: ignore

    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=TOKENS + 1,
        n_embd=d_model,
        n_layer=num_layers,
        n_head=num_heads,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()
    prompt = torch.ones((batch, 1), dtype=torch.long)
    return lambda: model.generate(prompt, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, use_cache=True)


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
    how: dict[str, Any] = {"num_tokens": BEAM_TOKENS, "strategy": T.Beam(BEAMS), "inputs": {"source_BS": source}}
    return on_devices(batch, functools.partial(T.generate, apply, params, start, **how))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    runtime.start()
    rows = []
    cases = [
        (f"{name}, batch {batch}, greedy", batch * TOKENS, "tokens", ours(*size, batch), hugging_face(*size, batch))
        for name, size in LANGUAGE_MODELS.items()
        for batch in (1, 8)
    ]
    cases += [
        (
            f"encoder-decoder, batch {batch}, beam {BEAMS}",
            batch,
            "sentences",
            our_beams(*ENCODER_DECODER, batch),
            hugging_face_beams(*ENCODER_DECODER, batch),
        )
        for batch in (1, 8)
    ]
    for name, units, unit, our_works, their_work in cases:
        works = our_works | {"theirs": their_work}
        for work in works.values():
            work()  # compilation and caches
        times: dict[str, list[float]] = {label: [] for label in works}
        for _ in range(arguments.rounds):
            for label, work in works.items():
                times[label].append(seconds(work))
        per_second = {label: f"{spread([units / t for t in own], 1)} {unit}/s" for label, own in times.items()}
        for label in our_works:
            faster = spread(ratios(times, "theirs", label), 1)
            rows.append([name + label, per_second[label], per_second["theirs"], faster])
            print(rows[-1], file=sys.stderr)
    show("median (lowest–highest) over rounds", ["", "ours", "Hugging Face", "times faster"], rows)


if __name__ == "__main__":
    main()
