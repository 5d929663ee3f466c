"""What the exam asks: skills, each a task with how long it is trained, and the models that are asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.bases import PLAIN, Changes, on_task, recurrent
from experiments.shortcuts import (
    Shortcut,
    by_last_two,
    next_unasked,
    turned_round,
    usual,
    usual_before,
    usual_digit,
    usual_missing,
    usual_value,
)
from transformer.data.tasks.arithmetic import Addition, ModularArithmetic
from transformer.data.tasks.groups import WordProblem
from transformer.data.tasks.mad import InContextRecall, SelectiveCopying
from transformer.data.tasks.phonebook import PhoneBook
from transformer.data.tasks.recall import AssociativeRecall, Induction
from transformer.data.tasks.rewriting import Copy
from transformer.data.tasks.task import AlgorithmicTask
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.exclusive import XSA
from transformer.mixers.attention.gates import OutputGate
from transformer.mixers.attention.head_norms import QKNorm
from transformer.mixers.attention.heads import DifferentialHeads
from transformer.mixers.attention.sharing import ValueResidual
from transformer.mixers.attention.short_convolution import CanonA, ShortConvolution
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.mixers.recurrent.delta import DeltaNet, GatedDeltaNet
from transformer.mixers.recurrent.elementwise import MinGRU
from transformer.mixers.recurrent.gla import GatedLinearAttention
from transformer.mixers.recurrent.linear_attention import LinearAttention
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.mixers.recurrent.rwkv7 import RWKV7
from transformer.models.pattern import Alternate
from transformer.positions.absolute import Learned
from transformer.positions.contextual import Forgetting
from transformer.positions.relative import ALiBi, T5Bias
from transformer.positions.rotary import RoPE
from transformer.study.budget import Budget
from transformer.study.study import Study


@dataclass(frozen=True)
class Skill:
    """One thing that a model may learn."""

    task: AlgorithmicTask
    test: AlgorithmicTask | None = None
    """The task of the test, where it is another one, such as a longer one."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the run, such as its steps."""
    learning_rates: tuple[float, ...] = (1e-3, 4e-3)
    """Peak learning rates that every model tries."""
    seeds: int = 4
    """Seeds of the first look."""
    match: Budget | None = "parameters"
    """What the models are made to have in equal amount, by the width of their feed-forward layers; None: nothing."""
    shortcut: Shortcut | None = None
    """What answers some of its questions without it."""


SKILLS: dict[str, Skill] = {
    "recall": Skill(AssociativeRecall(alphabet=32, sequence_length=24, filler="zeros"), shortcut=next_unasked),
    "selective copying": Skill(SelectiveCopying(alphabet=8, sequence_length=32, items=6), shortcut=usual_missing),
    "noisy recall": Skill(InContextRecall(alphabet=8, pairs=14, noise_symbols=8, noise=0.2), shortcut=usual_value),
    "copying, longer": Skill(Copy(items=8), Copy(items=12), shortcut=usual_missing),
    "modular sums": Skill(
        ModularArithmetic(23),
        changes={"data.examples": 400, "data.validation_examples": 100},
        shortcut=turned_round,
    ),
    "induction, longer": Skill(Induction(24), Induction(48), shortcut=usual_before),
    "products in s3, longer": Skill(
        WordProblem("s3", items=8, dense=True), WordProblem("s3", items=16, dense=True), shortcut=by_last_two
    ),
    "addition": Skill(Addition(digits=2), changes={"steps": 1000, "data.examples": 5000}, shortcut=turned_round),
    "phone book": Skill(PhoneBook(entries=4, queries=2, name_length=2, digits=2), shortcut=usual_digit),
    "parity": Skill(
        WordProblem("parity", items=12),
        changes={"steps": 1000, "data.examples": 6000, "data.distinct": False},
        shortcut=usual,
    ),
}
"""Small enough for minutes on two cores; in each, some of the models below learn more than others."""


def _attention(part: Any) -> dict[str, Any]:
    return {"model.mixer.parts": (part,)}


def _hybrid(mixer: Any) -> dict[str, Any]:
    return {"model.pattern": (Alternate("mixer", (mixer, Attention())),)}


MODELS: dict[str, Changes] = {
    "softmax": {},
    "window of 8": {"model.mixer.sparsity": SlidingWindow(8)},
    "linear": recurrent(LinearAttention()),
    "gla": recurrent(GatedLinearAttention()),
    "mamba2": recurrent(Mamba2()),
    "min_gru": recurrent(MinGRU()),
    "deltanet": recurrent(DeltaNet()),
    "gated deltanet": recurrent(GatedDeltaNet()),
    "gated deltanet, negative": recurrent(GatedDeltaNet(negative_eigenvalues=True)),
    "rwkv7": recurrent(RWKV7(rank=16)),
    "gated deltanet + softmax": _hybrid(GatedDeltaNet()),
    "mamba2 + softmax": _hybrid(Mamba2()),
    "no positions": {"model.position": None},
    "learned positions": {"model.position": Learned()},
    "alibi": {"model.position": ALiBi()},
    "t5 bias": {"model.position": T5Bias()},
    "forgetting": {"model.position": Forgetting()},
    "canon": _attention(CanonA()),
    "short convolution": _attention(ShortConvolution()),
    "qk norm": _attention(QKNorm()),
    "output gate": _attention(OutputGate()),
    "xsa": _attention(XSA()),
    "differential": {"model.mixer.heads": DifferentialHeads()},
    "value residual": {"model.mixer.sharing": ValueResidual()},
}
"""Mixers and hybrids without positions of their own, and notable options of attention; `softmax` has rotary ones."""


def examination(name: str, skill: Skill, models: Mapping[str, Changes] = MODELS) -> Study:
    """The study of a skill: all models against the first, by the share of right answers.

    Args:
      name: of the skill; of the study with `_` between its words.
      skill: what is asked.
      models: changes to the skill's run by name of the model; those that fit into its layers are asked.
    """
    return on_task(
        study_name(name),
        skill.task,
        fitted(models, skill.changes),
        {"model.position": RoPE(), "batch_size": 16, "steps": 600, **skill.changes},
        skill.test,
        metric="accuracy",
        match=skill.match,
        seeds=skill.seeds,
        max_seeds=max(16, skill.seeds),
        learning_rates=skill.learning_rates,
        question=f"Which mixers and options learn {name}?",
    )


def study_name(skill: str) -> str:
    """The name of the study of a skill."""
    return skill.replace(", ", " ").replace(" ", "_")


def fitted(models: Mapping[str, Changes], changes: Changes) -> dict[str, Changes]:
    """The models whose patterns end with the layers of a run; the attention of hybrids is that of the run."""
    layers = changes.get("model.num_layers", PLAIN.model.num_layers)
    attention = changes.get("model.mixer", Attention())
    found: dict[str, Changes] = {}
    for name, model in models.items():
        pattern = model.get("model.pattern", ())
        if all(layers % len(one.values) == 0 for one in pattern):
            values = [tuple(attention if own == Attention() else own for own in one.values) for one in pattern]
            own = tuple(replace(one, values=its) for one, its in zip(pattern, values, strict=True))
            found[name] = {**model, "model.pattern": own} if pattern else model
    return found
