"""Why 1/√d? Attention with scores scaled by 1/√d, by nothing, by 1/d and by a trained number, heads of 128.

Expected (Vaswani et al. 2017, section 3.2.1): with queries and keys of variance 1 unscaled scores have a
standard deviation of √d, softmax is saturated, its gradients are small and learning is slower. That is the first
study (initializer `fanin`). In the second, in the folder `small`, matrices are initialized as in GPT-2, with a
standard deviation of 0.02: scores are small with any scale, and the choice should matter less.

    python -m experiments.scaling_by_sqrt_d                    one core: 15 minutes
    python -m experiments.scaling_by_sqrt_d full               a GPU
    python -m experiments.scaling_by_sqrt_d --arms 'one over root d' none --learning-rates 1e-3 1e-2

Found (2 layers, d 64, 2 heads of 128, 300 steps, 8 seeds, learning rate of each arm chosen from 1e-3, 3e-3, 1e-2 and
3e-2; 2026-11-30, one core of an Intel Xeon, 15 core-minutes): nats per token; the share of queries with more than 0.99
of their attention on one key, before and after training; and the norm of the gradient of query and key kernels before
it:

    variance 1
    one over root d  2.2110 ± 0.0107                                            0.000  0.296  0.110
    none             2.4678 ± 0.0267   +0.2568 [+0.2272, +0.2864]  worse       0.357  0.847  0.353
    one over d       2.2602 ± 0.0072   +0.0492 [+0.0358, +0.0627]  worse       0.000  0.189  0.011
    learned          2.2057 ± 0.0067   -0.0054 [-0.0208, +0.0101]  unresolved  0.000  0.221  0.110

    deviation 0.02
    one over root d  2.2723 ± 0.0200                                            0.000  0.142  0.013
    none             2.3420 ± 0.0215   +0.0696 [+0.0200, +0.1194]  worse       0.000  0.339  0.145
    one over d       2.2864 ± 0.0099   +0.0141 [-0.0127, +0.0409]  unresolved  0.000  0.002  0.001
    learned          2.2741 ± 0.0170   +0.0018 [-0.0195, +0.0230]  unresolved  0.000  0.182  0.013

As expected, unscaled scores are saturated initially and learn more slowly, at their own best learning rate. But
the gradient of queries and keys does not vanish: it is 3.2 times as large, since the factor on the scores is also
on their gradient. That is less than the √128 = 11.3 times with small matrices, where nothing is saturated
initially; there saturation comes with training, and the loss is still worse, at the lowest best rate. The arm with
small gradients is 1/d, which is worse as well, though by less and with the fewest saturated queries. No run diverged.
"""

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import FanIn, Normal
from transformer.mixers.attention.projections import ConstantScale, InverseScale, LearnedScale
from transformer.positions.rotary import RoPE
from transformer.study.probes import BeforeTraining, QueryKeyGradient, SaturatedRows

ARMS = {
    "one over root d": {"model.mixer.scale": None},
    "none": {"model.mixer.scale": ConstantScale(1.0)},
    "one over d": {"model.mixer.scale": InverseScale()},
    "learned": {"model.mixer.scale": LearnedScale()},
}
PROBES = (BeforeTraining(SaturatedRows()), BeforeTraining(QueryKeyGradient()), SaturatedRows())


def main() -> None:
    base = {"model.position": RoPE(), "model.mixer.head_dim": 128, "model.initializer": FanIn()}
    presets = {name: command.replace(base) for name, command in budgets("scaling_by_sqrt_d").items()}
    presets["laptop"] = presets["laptop"].replace({"model.mixer.num_heads": 2})
    command = cli.parse(StudyCommand, presets, description=__doc__)
    run_parsed("scaling, variance 1", ARMS, command, PROBES)
    run_parsed("scaling, small matrices", ARMS, small(command), PROBES)


def small(command: StudyCommand) -> StudyCommand:
    """The study in which queries and keys are initially near zero."""
    return command.replace({"model.initializer": Normal(0.02)}, workdir=command.workdir / "small")


if __name__ == "__main__":
    cli.main(main)
