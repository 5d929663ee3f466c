"""Why 1/√d? Attention with scores scaled by 1/√d, by nothing, by 1/d and by a trained number, heads of 128.

Expected (Vaswani et al. 2017, section 3.2.1): with queries and keys of variance 1 unscaled scores have a
standard deviation of √d, softmax is saturated, its gradients are small and learning is slower. That is the first
study (initializer `fanin`). In the second, in the folder `small`, matrices are initialized as in GPT-2, with a
standard deviation of 0.02: scores are small with any scale, and the choice should matter less.

    python -m experiments.scaling_by_sqrt_d                    two cores with other work on them: 10 minutes
    python -m experiments.scaling_by_sqrt_d full               a GPU
    python -m experiments.scaling_by_sqrt_d --arms 'one over root d' none --learning-rates 1e-3 1e-2

Found with single 95 % intervals and Holm's correction (2 layers, d 64, 2 heads of 128, 300 steps, 4 estimation seeds of
6, learning rate chosen from 1e-3, 3e-3, 1e-2 on the other 2; jax 0.10.2, two cores, 9 min 37 s with other work on the
machine, 2026-11-22): nats per token; the share of queries with more than 0.99 of their attention on one key, before and
after training; and the norm of the gradient of query and key kernels before it:

    variance 1
    one over root d  2.1265 ± 0.0339                                0.000  0.333  0.092
    none             2.3901 ± 0.0349   +0.2635 ± 0.0607  worse       0.336  0.864  0.353
    one over d       2.1870 ± 0.0303   +0.0605 ± 0.0083  worse       0.000  0.236  0.008
    learned          2.1199 ± 0.0320   -0.0066 ± 0.0096  unresolved  0.000  0.272  0.092

    deviation 0.02
    one over root d  2.1678 ± 0.0271                                0.000  0.092  0.012
    none             2.2625 ± 0.0413   +0.0947 ± 0.0238  worse       0.000  0.723  0.133
    one over d       2.1913 ± 0.0360   +0.0235 ± 0.0143  worse       0.000  0.002  0.001
    learned          2.1749 ± 0.0284   +0.0071 ± 0.0309  unresolved  0.000  0.185  0.012

As expected, unscaled scores are saturated initially and learn more slowly, at their own best learning rate. But
the gradient of queries and keys does not vanish: it is 3.8 times as large, since the factor on the scores is also
on their gradient. That is less than the √128 = 11.3 times with small matrices, where nothing is saturated
initially; there saturation comes with training, and the loss is still worse. The arm with small gradients
is 1/d, which is worse as well, though by less and with the fewest saturated queries. No run diverged.
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
