"""Train a language model on an algorithmic task and test it on questions it has not seen.

Reference: reversed 3-digit addition, 0.2M parameters, 10k examples, 2,500 steps: 99.7 % of held-out sums, one seed.

    python -m experiments.algorithmic addition-reversed
    python -m experiments.algorithmic recall --model.position rope
    python -m experiments.algorithmic addition-reversed --data.task 'sort(items=8)' --model.max-length 20

An answer counts as right if each of its tokens is the model's most likely one given the question
and the right tokens before it: exactly then greedy decoding produces it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments import cli
from experiments.run_command import RunOptions, conclude, load, train_command
from experiments.sections import RUN
from transformer.data.puzzles import AlgorithmicConfig, AlgorithmicRun, Puzzles
from transformer.data.tasks.arithmetic import Addition, ModularArithmetic
from transformer.data.tasks.list_operations import ListOps
from transformer.data.tasks.recall import AssociativeRecall, Induction
from transformer.data.tasks.rewriting import Copy, Reverse, Sort
from transformer.inference.generate import generate
from transformer.models.config import ModelConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.training.outcome import Outcome

QUESTIONS = 5


@dataclass(frozen=True, kw_only=True)
class Command(AlgorithmicRun, RunOptions):
    sections = RUN | {"data": ("data.task", "data.test", "data.examples", "data.distinct", "data.validation_examples")}
    workdir: Path = Path("results/algorithmic")
    """Folder of the run."""


_SMALL = ModelConfig(num_layers=2, d_model=96, max_length=32)
_FAST = OptimizerConfig(learning_rate=2e-3, warmup_steps=100)


def _preset(task, max_length: int, **more) -> Command:
    fields: dict[str, Any] = {"steps": 2500, "batch_size": 64, "optimizer": _FAST} | more
    return Command(model=_SMALL.replace(max_length=max_length), data=AlgorithmicConfig(task=task), **fields)


PRESETS = {
    "addition-reversed": _preset(Addition(), 12),
    "addition": _preset(Addition(reverse=False), 12),
    "copy": _preset(Copy(), 22),
    "reverse": _preset(Reverse(), 22),
    "sort": _preset(Sort(), 22),
    "modular": Command(
        model=_SMALL.replace(max_length=5),
        data=AlgorithmicConfig(task=ModularArithmetic(), examples=4_700, validation_examples=4_700),
        optimizer=OptimizerConfig(learning_rate=1e-3, weight_decay=1.0),
        batch_size=512,
        steps=4000,
    ),
    "recall": _preset(AssociativeRecall(), 64),
    "induction": _preset(Induction(sequence_length=64), 64),
    "listops": _preset(ListOps(max_depth=3, max_arguments=3, max_length=30), 32),
}


def main() -> None:
    command = cli.parse(Command, PRESETS, description=__doc__)
    puzzles = load(command)
    assert isinstance(puzzles, Puzzles)
    trained = train_command(command, AlgorithmicRun, puzzles)
    metrics = {"exact_match": trained.exact_match, "token_accuracy": trained.accuracy}
    conclude(trained, metrics, answers(trained, puzzles))


def answers(trained: Outcome, puzzles: Puzzles) -> str:
    """A few held-out questions with the best replica's answers, and the right ones where they differ.

    Answers are decoded greedily; where they stand between other tokens, those before each are given.
    """
    lines, apply, params, held_out = [], trained.apply, trained.params(), puzzles.validation
    prefix = trained.config.objective.reads_prefixes
    for tokens, weights in zip(held_out["tokens"][:QUESTIONS], held_out["weights"], strict=False):
        scored = np.flatnonzero(weights) + 1
        if scored[-1] - scored[0] + 1 == len(scored):
            question = tokens[: scored[0]]
            made = generate(apply, params, jnp.asarray(question[None]), num_tokens=len(scored), prefix=prefix)
            answer = np.asarray(made.tokens_BT[0])
        else:
            question, answer = tokens, np.asarray(apply(params, tokens[None, :-1]).argmax(-1)[0])[scored - 1]
        asked, given, wanted = map(puzzles.tokenizer.decode, (question, answer, tokens[scored]))
        lines.append(f"{asked} {given}" + (f"   (not {wanted})" * (given != wanted)))
    return "\n".join(lines)


if __name__ == "__main__":
    cli.main(main)
