"""Which mixer? Attention, recurrences and a hybrid on text, recall, copying and the tracking of states.

Expected: a state of fixed size recalls fewer pairs than attention, and with the delta rule more than without (Zoology,
Arora et al. 2023; Yang et al. 2025); transformers copy, recurrences do not as well (Jelassi et al. 2024); parity is
tracked by recurrences whose transitions have negative eigenvalues, and by no others (Grazzi et al. 2025); a hybrid
with one layer of attention in four has the best of both.

    python -m experiments.mixers                    two cores: an hour
    python -m experiments.mixers full               a GPU

Every arm has as many parameters as the baseline, by the width of its feed-forward networks. The studies are in the
folders `recall`, `parity`, `copy` and `text`; `--tasks` chooses some.

Found of recall: `--tasks recall --model.num-layers 2 --seeds 4 --learning-rates 3e-3 1e-2 --no-noise-floor`, with the
arms below (two layers of width 64, 105,000 parameters, 900 steps; share of held-out examples with all four answers
right; jax 0.10.2, two cores with other work, 21 minutes, 2026-11-24):

    softmax         1.0000
    window of 8     0.0005  -0.9995 [-1.0029, -0.9961]  worse
    linear          0.0046  -0.9954 [-1.0055, -0.9853]  worse       Zoology: fails
    gla             0.0220  -0.9780 [-0.9957, -0.9602]  worse
    mamba2          0.1983  -0.8017 [-1.0768, -0.5267]  worse
    deltanet        0.9990  -0.0010 [-0.0049, +0.0029]  equivalent  Yang et al. 2025: solves it
    gated deltanet  0.9990  -0.0010 [-0.0049, +0.0029]  equivalent
    rwkv7           1.0000  +0.0000 [+0.0000, +0.0000]  equivalent

As expected: the delta rule recalls, sums do not. With four seeds the intervals stand on normal theory, and softmax,
linear, Mamba-2 and the delta rules were best at the lower of two rates. Parity, copying and text were not run; that
parity needs negative eigenvalues is a test (`tests/mixers/recurrent/test_delta.py`).
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from experiments import cli
from experiments.sections import STUDY
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import Normal
from transformer.data.puzzles import AlgorithmicConfig
from transformer.data.tasks.groups import WordProblem
from transformer.data.tasks.recall import AssociativeRecall
from transformer.data.tasks.rewriting import Copy
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.mixers.recurrent.delta import DeltaNet, GatedDeltaNet
from transformer.mixers.recurrent.gla import GatedLinearAttention
from transformer.mixers.recurrent.linear_attention import LinearAttention
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.mixers.recurrent.rwkv7 import RWKV7
from transformer.models.pattern import Alternate

DELTA = GatedDeltaNet()


def mixer(value: Any) -> dict[str, Any]:
    """A model of that mixer, in which the order of tokens is the mixer's own."""
    return {"model.mixer": value, "model.position": None}


ARMS = {
    "softmax": {},
    "window of 8": {"model.mixer.sparsity": SlidingWindow(8)},
    "linear": mixer(LinearAttention()),
    "gla": mixer(GatedLinearAttention()),
    "mamba2": mixer(Mamba2()),
    "deltanet": mixer(DeltaNet()),
    "gated deltanet": mixer(DELTA),
    "negative eigenvalues": mixer(GatedDeltaNet(negative_eigenvalues=True)),
    "rwkv7": mixer(RWKV7(rank=16)),
    "hybrid 3:1": {"model.pattern": (Alternate("mixer", (DELTA, DELTA, DELTA, Attention())),)},
}


TASKS = {
    "recall": AssociativeRecall(alphabet=32, sequence_length=32),
    "parity": WordProblem("parity", items=16),
    "copy": Copy(items=15),
    "text": None,
}


@dataclass(frozen=True, kw_only=True)
class Command(StudyCommand):
    sections = STUDY | {"study": ("tasks", *STUDY["study"])}
    tasks: tuple[Literal["recall", "parity", "copy", "text"], ...] = ("recall", "parity", "copy", "text")
    """What is studied, one after the other."""


def main() -> None:
    presets = {
        name: cli.extend(command, Command).replace({"model.num_layers": 4})
        for name, command in budgets("mixers", 900, match="parameters", batch_size=32).items()
    }
    command = cli.parse(Command, presets, description=__doc__ or "")
    for name in command.tasks:
        run_parsed(name, ARMS, of_task(command, name, TASKS[name]))


def of_task(command: StudyCommand, name: str, task: Any) -> StudyCommand:
    """The study of a task; text is the data of the command."""
    workdir = command.workdir / name
    if task is None:
        return dataclasses.replace(command, workdir=workdir)
    changes = {
        "data": AlgorithmicConfig(task=task),
        "model.max_length": task.length,
        "model.head.tied": False,
        "model.embedding.initializer": Normal(0.3),
    }
    return dataclasses.replace(command.replace(changes), workdir=workdir, metric="exact_match")


if __name__ == "__main__":
    cli.main(main)
