"""What the exam asks on a GPU: the tasks of papers, as long and as wide as there.

What is asked is the model's mixer and positions, so those of a paper are models of the exam, not of its setting here;
so are its special starts and its precision. A paper that draws every batch afresh has a fixed number of examples here,
and one that stops early does all its steps. Numbers are from the papers or their code; (m) marks those from memory, and
(o) those of our own choice, where we know of none.
"""

import dataclasses
from typing import Any

from experiments.skills import Skill
from transformer.activations.activation import GELU, GLU, Activation, SiLU
from transformer.core.parameters import Normal
from transformer.data.tasks.arithmetic import Addition, Mano
from transformer.data.tasks.chomsky import (
    BinaryAddition,
    BinaryMultiplication,
    ComputeSqrt,
    CycleNavigation,
    EvenPairs,
    MissingDuplicate,
    ModularArithmeticBrackets,
    ModularArithmeticSimple,
    SolveEquation,
    StackManipulation,
)
from transformer.data.tasks.flip_flop import FlipFlop
from transformer.data.tasks.graphs import Brevo, Depo
from transformer.data.tasks.groups import WordProblem
from transformer.data.tasks.list_operations import ListOps
from transformer.data.tasks.mad import Compression, FuzzyRecall, InContextRecall, Memorization, SelectiveCopying
from transformer.data.tasks.phonebook import PhoneBook
from transformer.data.tasks.recall import AssociativeRecall, Induction
from transformer.data.tasks.reg_bench import RegBench
from transformer.data.tasks.rewriting import Copy, DuplicateString, OddsFirst, Reverse, Sort
from transformer.data.tasks.task import AlgorithmicTask
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.norms.norm import RMSNorm
from transformer.residuals.residual import PostNorm, SandwichNorm
from transformer.runs.rules import AdamW
from transformer.runs.schedules import ConstantRate, Cosine, InverseSquareRoot, LinearDecay

Setting = dict[str, Any]


def _setting(layers: int, width: int, heads: int, batch: int, steps: int, examples: int = 100_000) -> Setting:
    """What a paper changes in the run, with a plain Adam; its other choices follow."""
    return {
        "model.num_layers": layers,
        "model.d_model": width,
        "model.mixer": Attention(num_heads=heads),  # mixers that replace it have heads of their own
        "model.feed_forward": FeedForward(d_ff=4 * width),
        "model.embedding.initializer": Normal(0.02),
        "optimizer.rule": AdamW(beta2=0.999),
        "optimizer.weight_decay": 0.0,
        "optimizer.warmup_steps": 0,
        "optimizer.clip_norm": None,
        "optimizer.schedule": ConstantRate(),
        "batch_size": batch,
        "steps": steps,
        "data.examples": examples,
    }


def _gated(d_ff: int, gate: Activation) -> Setting:
    return {"model.norm": RMSNorm(), "model.feed_forward": FeedForward(activation=GLU(gate=gate), d_ff=d_ff)}


# Poli et al. 2024; mad-lab. It also tries a decay of 0.1, and keeps the better one.
MAD: Setting = {
    **_setting(layers=2, width=128, heads=16, batch=128, steps=20_000, examples=12_800),
    **_gated(352, SiLU()),
    "data.validation_examples": 1_280,
    "optimizer.schedule": Cosine(final=0.002),  # to 1e-6, but an end is a share here: that of the rate in the middle
}
_MAD: dict[str, tuple[AlgorithmicTask, AlgorithmicTask | None]] = {
    "compression": (Compression(), None),  # an autoencoder there; here it is copied from a causal state
    "fuzzy recall": (FuzzyRecall(), FuzzyRecall(shortest_key=3)),
    "noisy recall": (InContextRecall(noise_symbols=16, noise=0.2), None),
    "recall": (InContextRecall(), None),
    "memorization": (Memorization(), None),
    "selective copying": (SelectiveCopying(), None),
}
_FEW: Setting = {"data.examples": 256, "steps": 400}  # 200 epochs too

# Arora et al. 2023, figure 2; zoology. Its models without attention have four layers, and it also asks widths of 128,
# 256 and 512.
_MQAR = ((64, 4, 512), (128, 8, 512), (256, 16, 256), (512, 64, 128))


def _zoology(batch: int) -> Setting:
    return {
        **_setting(layers=2, width=64, heads=1, batch=batch, steps=64 * (100_000 // batch), examples=100_000),
        "data.validation_examples": 3_000,
        "model.mixer": Attention(num_heads=1, dropout=0.1),  # attention alone has dropout there too
        "model.feed_forward": None,  # so nothing is left that could make models of equal size; `modern` has its own
        "optimizer.weight_decay": 0.1,
        "optimizer.schedule": Cosine(final=0.0),
    }


# Akyürek et al. 2024; seq_icl. Its dropout is after the embedding alone; here there is none. GLA has four layers.
REG_BENCH: Setting = {
    **_setting(layers=2, width=128, heads=4, batch=32, steps=31_400, examples=5_000),  # heads (o)
    "data.validation_examples": 500,
    "optimizer.weight_decay": 0.1,
    "optimizer.warmup_steps": 3_140,
    "optimizer.schedule": Cosine(final=0.1),
}

# Merrill et al. 2024; word-problem. There each element of a word has a label, the product so far; here the last has.
# It asks words of 6 to 20 in turn, for up to 500 epochs, each of words of that length alone, which here are a twentieth
# of those of up to 20; steps (o).
WORDS: Setting = {
    **_setting(layers=2, width=512, heads=8, batch=512, steps=100_000, examples=1_000_000),
    "optimizer.weight_decay": 0.01,
}

# Delétang et al. 2022; the example of its code. It trains for 1,000,000 steps (m), and a model sees the whole input.
CHOMSKY: Setting = {
    **_setting(layers=5, width=64, heads=8, batch=128, steps=10_000),
    "data.distinct": False,
    "model.residual": PostNorm(),
    "model.dropout": 0.1,
    "optimizer.clip_norm": 1.0,
}
_CHOMSKY: dict[str, AlgorithmicTask] = {
    "even pairs": EvenPairs(40),
    "modular arithmetic, simple": ModularArithmeticSimple(40),
    "parity check": WordProblem("parity", 40),
    "cycle navigation": CycleNavigation(40),
    "stack manipulation": StackManipulation(40),
    "reverse string": Reverse(40, alphabet=2),
    "modular arithmetic": ModularArithmeticBrackets(40),
    "solve equation": SolveEquation(40),
    "duplicate string": DuplicateString(40, alphabet=2),
    "missing duplicate": MissingDuplicate(40),
    "odds first": OddsFirst(40, alphabet=2),
    "binary addition": BinaryAddition(40),
    "binary multiplication": BinaryMultiplication(40),
    "compute sqrt": ComputeSqrt(40),
    "bucket sort": Sort(40, alphabet=5),
}

# Allen-Zhu 2025, part 4.1: a small Llama (m). Batch, steps, decay and rates (o).
PHYSICS: Setting = {
    **_setting(layers=12, width=768, heads=12, batch=128, steps=100_000),
    **_gated(2_048, SiLU()),
    "optimizer.weight_decay": 0.1,
    "optimizer.warmup_steps": 1_000,
    "optimizer.clip_norm": 1.0,
    "optimizer.schedule": Cosine(final=0.1),
}
_PHYSICS: dict[str, AlgorithmicTask] = {
    **{f"Depo1, {n}": Depo(n, hops=8, longest=2) for n in (225, 300, 375)},
    **{f"Depo2, {n}": Depo(n, hops=16, letters=3, shortest=5, longest=7) for n in (75, 100, 125)},
    # A topological order is right there whichever it is; here it has to be the one with the smallest names first.
    **{f"Brevo1, {n}": Brevo(n, letters=n) for n in (70, 90, 110)},
    **{f"Brevo2, {n}": Brevo(n, letters=4, shortest=2, longest=4) for n in (30, 40, 50)},
    **{f"Mano, {n}": Mano(n) for n in (10, 13, 16)},
}

# Jelassi et al. 2024; transformers_ssm_copy. Model (m), steps (o). Its shortest strings have 5 or 8 symbols, here 1;
# several fill a row of 220, and here each has its own, so that later positions are not seen in training.
COPYING: Setting = {
    **_setting(layers=12, width=1_024, heads=16, batch=64, steps=100_000),
    "data.distinct": False,
    "optimizer.weight_decay": 0.1,
    "optimizer.warmup_steps": 100,
    "optimizer.schedule": LinearDecay(),
}

# Gu and Dao 2023, table 11. With rotary positions it trains for 409,600 steps. Models differ in size there and here:
# learned positions of the longest test are as large as all feed-forward layers.
INDUCTION: Setting = _setting(layers=2, width=128, heads=8, batch=8, steps=204_800)  # heads (o)

# Liu et al. 2023, (m).
FLIP_FLOP: Setting = {
    **_setting(layers=6, width=512, heads=8, batch=16, steps=10_000, examples=160_000),  # each of them once
    "optimizer.weight_decay": 0.1,
    "optimizer.warmup_steps": 50,
    "optimizer.schedule": LinearDecay(),
}

# Tay et al. 2020; long-range-arena. A model sees the whole input there, and names one of ten classes.
LONG_RANGE: Setting = {
    **_setting(layers=6, width=512, heads=8, batch=32, steps=5_000, examples=96_000),
    "data.validation_examples": 2_000,
    "optimizer.rule": AdamW(beta2=0.98, eps=1e-9),
    "optimizer.weight_decay": 0.1,
    "optimizer.warmup_steps": 1_000,
    "optimizer.schedule": InverseSquareRoot(),
}

# Lee et al. 2023; teaching_arithmetic. Its sums follow each other in a text, 256 rows of 256 characters at a time, of
# which all are learned; carries and digits are balanced, here drawn evenly.
LEE: Setting = {
    **_setting(layers=6, width=384, heads=6, batch=5_000, steps=5_000, examples=10_000),
    "data.validation_examples": 10_000,
    "model.dropout": 0.2,
    "optimizer.rule": AdamW(beta2=0.99),
    "optimizer.weight_decay": 0.1,
    "optimizer.warmup_steps": 100,
    "optimizer.clip_norm": 1.0,
    "optimizer.schedule": Cosine(final=0.1),
}

# Cho et al. 2024; position-coupling, for its arms with and without hints. Coupled positions depend on the tokens, which
# no model of the exam has. Hints are those of Zhou et al. 2023, whose own setting we do not know.
CHO: Setting = {
    **_setting(layers=6, width=512, heads=8, batch=400, steps=50_000, examples=1_000_000),
    **_gated(2_048, GELU()),
    "model.residual": SandwichNorm(),
    "optimizer.rule": AdamW(beta2=0.95),
    "optimizer.warmup_steps": 500,
    "optimizer.clip_norm": 1.0,
    "optimizer.schedule": Cosine(final=0.1),
}


def _longer(task: Any, **changes: Any) -> tuple[Any, Any]:
    """A task, and the one it is tested on."""
    return task, dataclasses.replace(task, **changes)


PUBLISHED: dict[str, Skill] = {
    **{
        f"MAD {name}": Skill(*tasks, MAD | (_FEW if name == "memorization" else {}), (1e-4, 5e-4, 1e-3))
        for name, tasks in _MAD.items()
    },
    **{
        f"MQAR, {length}": Skill(
            AssociativeRecall(8_191, length, pairs, filler="zeros"),
            changes=_zoology(batch),
            learning_rates=(1e-4, 4.64e-4, 2.15e-3, 1e-2),
            match=None,
        )
        for length, pairs, batch in _MQAR
    },
    "RegBench": Skill(*_longer(RegBench(), scored="certain"), REG_BENCH, (5e-4,)),
    **{
        f"{group} words, depth {layers}": Skill(
            WordProblem(group, 20), changes=WORDS | {"model.num_layers": layers}, learning_rates=(1e-4,)
        )
        for group in ("a5", "a4xz5", "z60")
        for layers in (1, 2, 3)
    },
    # Lengths of the test are 41 to 500 there; here 1 to 40 are among them, as less than a tenth.
    **{
        f"Chomsky {name}": Skill(*_longer(task, items=500), CHOMSKY, (1e-4, 5e-4, 1e-3), seeds=10)
        for name, task in _CHOMSKY.items()
    },
    **{name: Skill(*_longer(task, exact=True), PHYSICS, (3e-4, 1e-3)) for name, task in _PHYSICS.items()},
    "copying 20": Skill(Copy(20, alphabet=26), changes=COPYING, learning_rates=(1e-5, 1e-4)),
    # A quarter of the longer texts have a length of training.
    "copying 50, to 200": Skill(*_longer(Copy(50, alphabet=26), items=200), COPYING, (1e-5, 1e-4)),
    # The paper asks pretrained models, after two questions with answers; here a model is trained for it as for copying.
    "phone book, 20": Skill(PhoneBook(20, queries=3), changes=COPYING, learning_rates=(1e-5, 1e-4)),
    **{
        f"induction 256, to {length}": Skill(Induction(256), Induction(length), INDUCTION, (2e-4,), match=None)
        for length in (512, 1_024, 2_048)
    },
    **{
        f"flip-flops, {name}": Skill(FlipFlop(), FlipFlop(ignore=ignore), FLIP_FLOP, (3e-4,))
        for name, ignore in (("sparse", 0.98), ("dense", 0.1))
    },
    "LRA list operations": Skill(ListOps(9, 10, 1_999, 501), changes=LONG_RANGE, learning_rates=(0.05 / 1_000**0.5,)),
    "addition, plain": Skill(Addition(3, reverse=False), changes=LEE, learning_rates=(1e-3,)),
    "addition, reversed": Skill(Addition(3), changes=LEE, learning_rates=(1e-3,)),
    **{
        f"addition to 100{name}": Skill(
            *_longer(Addition(30, fixed=False, hints=hints), digits=100, fixed=True), CHO, (1e-4,)
        )
        for name, hints in (("", None), (" with hints", 202))
    },
}
"""Each a study of hours to days for one GPU; `--skills` and `--models` choose some."""
