"""Which attention? On text, and on a task whose difficulty the loss on text hides: recall of pairs seen before.

Expected: on text at this size most mechanisms are close; on associative recall (Arora et al. 2023,
Zoology, figure 2) softmax attention answers every query and linear attention with small states does not.
Fewer key-value heads cost little (Ainslie et al. 2023).

    python -m experiments.attention                    one core: 55 minutes
    python -m experiments.attention full               a GPU

The second study, in the folder `recall`, is that task: `exact match` is the share of examples with every answer right.

Found (2 layers, d 64, 8 seeds; text: 300 steps, four rates from 1e-3 to 3e-2; recall: 900 steps, two rates;
2026-11-30, one core of an Intel Xeon, 53 core-minutes): nats per token of text, then of recall and the share of
examples with all four answers right:

    softmax             2.1757 ± 0.0147                                          0.0002 ± 0.0001  1.000
    one key-value head  2.1850 ± 0.0151  +0.0093 [-0.0119, +0.0305]  unresolved  0.0001           1.000
    window of 8         2.1476 ± 0.0120  -0.0281 [-0.0528, -0.0035]  better      1.9637 ± 0.0100  0.002
    softmax one         2.1633 ± 0.0185  -0.0124 [-0.0353, +0.0105]  unresolved  0.0002 ± 0.0002  1.000
    sigmoid             2.2395 ± 0.0245  +0.0637 [+0.0183, +0.0931]  worse       0.1036 ± 0.0352  0.904
    linear              2.3343 ± 0.0087  +0.1585 [+0.1430, +0.1740]  worse       1.3706 ± 0.0217  0.003
    differential        2.2225 ± 0.0229  +0.0468 [-0.0023, +0.0917]  unresolved  0.0001           1.000
    qk norm             2.1637 ± 0.0315  -0.0120 [-0.0622, +0.0382]  unresolved  0.0001           1.000

As expected: on text a window of 8 tokens costs nothing, and after so few steps is even ahead; on recall it fails
completely, as does linear attention.
"""

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import Normal
from transformer.data.puzzles import AlgorithmicConfig
from transformer.data.tasks.recall import AssociativeRecall
from transformer.mixers.attention.head_norms import QKNorm
from transformer.mixers.attention.heads import DifferentialHeads
from transformer.mixers.attention.normalizers import LinearNormalizer, SigmoidNormalizer, SoftmaxOne
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.norms.norm import RMSNorm
from transformer.positions.absolute import Learned
from transformer.positions.rotary import RoPE

ARMS = {
    "softmax": {},
    "one key-value head": {"model.mixer.num_kv_heads": 1},
    "window of 8": {"model.mixer.sparsity": SlidingWindow(8)},
    "softmax one": {"model.mixer.normalizer": SoftmaxOne()},
    "sigmoid": {"model.mixer.normalizer": SigmoidNormalizer()},
    "linear": {"model.mixer.normalizer": LinearNormalizer()},
    "differential": {"model.mixer.heads": DifferentialHeads()},
    "qk norm": {"model.mixer.parts": (QKNorm(RMSNorm()),)},
}


def main() -> None:
    base = {"model.position": RoPE()}
    presets = {name: command.replace(base) for name, command in budgets("attention").items()}
    command = cli.parse(StudyCommand, presets, description=__doc__)
    run_parsed("attention", ARMS, command)
    run_parsed("associative recall", ARMS, recall(command))


def recall(command: StudyCommand) -> StudyCommand:
    """The study of the task, which is learned suddenly after some hundred steps, with rotary positions much later.

    What the command says otherwise than its preset stays so.
    """
    preset, model = command.preset, command.model
    changes = {
        "data": AlgorithmicConfig(task=AssociativeRecall(alphabet=32, sequence_length=32)),
        "model.max_length": 32,
        "model.position": Learned() if model.position == preset.model.position else model.position,
        "model.head.tied": False,
        "model.embedding.initializer": Normal(0.3),
    }
    small = {"learning_rates": preset.learning_rates[:2], "seeds": 4, "batch_size": 32}
    few = {name: value for name, value in small.items() if getattr(command, name) == getattr(preset, name)}
    return command.replace(changes, steps=3 * command.steps, workdir=command.workdir / "recall", **few)


if __name__ == "__main__":
    cli.main(main)
