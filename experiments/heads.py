"""Are several heads more robust to bad initial values? One, two, four and eight heads at one width, seed by seed.

Expected (Prince 2023, section 12.3.3): multiple heads "appear to make the self-attention network more robust
to bad initializations": the loss should vary less over seeds, and fewer seeds should fail. The task is
associative recall of two pairs, which one head in each of two layers can solve, and which is learned late and
suddenly. Numbers of parameters are equal; the learning rate is chosen for each arm.

    python -m experiments.heads                    two cores with other work on them: 18 minutes
    python -m experiments.heads full               a GPU
    python -m experiments.heads --seeds 40 --arms '1 head' '4 heads'

In the first study the initial standard deviation of matrices is 0.02, as in GPT-2; in the second, in the folder
`bad`, it is 0.2, and that of scores before the first step is 2.6. A seed has failed if its loss ends above 0.2:
a model that knows the two values but not which belongs to which key has 0.35 or more.

Found with single 95 % intervals and Holm's correction (2 layers, d 64, 500 steps, 12 estimation seeds of 16, learning
rate chosen from 3e-4, 1e-3, 3e-3 on the other 4; jax 0.10.2, two cores, 18 min with other work on the machine,
2026-11-22): nats per answer, their standard deviation over seeds and the worst, and the share of seeds that failed with
its 95 % interval:

    deviation 0.02
    1 head   0.0001 ± 0.0000                            0.000  0.000   0/12  0.00 [0.00, 0.26]
    2 heads  0.0002 ± 0.0001  +0.0001 ± 0.0001  worse   0.000  0.001   0/12  0.00 [0.00, 0.26]
    4 heads  0.1380 ± 0.1364  +0.1379 ± 0.1364  worse   0.215  0.521   3/12  0.25 [0.05, 0.57]
    8 heads  0.3822 ± 0.1180  +0.3821 ± 0.1180  worse   0.186  0.489  10/12  0.83 [0.52, 0.98]

    deviation 0.2
    1 head   0.7316 ± 0.0104                            0.016  0.763  12/12  1.00 [0.74, 1.00]
    2 heads  0.5771 ± 0.0820  -0.1546 ± 0.0817  better  0.129  0.712  12/12  1.00 [0.74, 1.00]
    4 heads  0.3390 ± 0.1224  -0.3926 ± 0.1239  better  0.193  0.575   8/12  0.67 [0.35, 0.90]
    8 heads  0.3198 ± 0.0477  -0.4119 ± 0.0500  better  0.075  0.435  11/12  0.92 [0.62, 1.00]

The claim holds for initial values that are bad for all seeds, and is reversed for good ones. From large matrices
several heads have made progress after 500 steps, and one head has learned only which values there were; from
small ones heads of 8 or 16 features find the answer later than wider ones, and most seeds of eight heads not yet.
Spread over seeds does not measure robustness here: it is largest where some have found the answer and some have
not. At 500 steps all this is speed of learning. In an earlier run, with rates up to 1e-2 and without 3e-4, the order
was the same at a deviation of 0.3 (0.848, 0.753, 0.694, 0.643, no seed succeeds) and unresolved at 0.15, where all
but one seed of one head succeed; everything else was as above. The deviation of 0.2 was chosen
after those two, so read the second table as exploratory. No run diverged.
"""

from dataclasses import dataclass

from experiments import cli
from experiments.sections import STUDY
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import Normal
from transformer.data.puzzles import AlgorithmicConfig
from transformer.data.tasks.recall import AssociativeRecall
from transformer.study.probes import BeforeTraining, SaturatedRows

ARMS = {f"{count} head{'s' * (count > 1)}": {"model.mixer.num_heads": count} for count in (1, 2, 4, 8)}
PROBES = (BeforeTraining(SaturatedRows()),)
FAILED = 0.2
"""Loss above which a seed has failed, in nats per answer."""
TASK = {
    "data": AlgorithmicConfig(task=AssociativeRecall(alphabet=16, sequence_length=16, pairs=2)),
    "model.max_length": 16,
    "model.head.tied": False,
    "model.embedding.initializer": Normal(0.3),
}


@dataclass(frozen=True, kw_only=True)
class Command(StudyCommand):
    sections = STUDY | {"data": ("data.task", "data.examples")}


def main() -> None:
    laptop = {"batch_size": 16, "seeds": 16, "learning_rates": (3e-4, 1e-3, 3e-3), "fails_above": FAILED}
    own = {name: cli.extend(command, Command) for name, command in budgets("heads", steps=500, **laptop).items()}
    presets = {name: command.replace(TASK) for name, command in own.items()}
    presets["full"] = presets["full"].replace(seeds=32)
    command = cli.parse(Command, presets, description=__doc__)
    run_parsed("heads, small matrices", ARMS, command, PROBES)
    run_parsed("heads, large matrices", ARMS, bad(command), PROBES)


def bad(command: StudyCommand) -> StudyCommand:
    """The study in which attention begins saturated."""
    return command.replace({"model.initializer": Normal(0.2)}, workdir=command.workdir / "bad")


if __name__ == "__main__":
    cli.main(main)
