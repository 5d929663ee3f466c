"""Ask the model in a folder what benchmarks of EleutherAI's lm-evaluation-harness ask.

    pip install -e '.[evaluation]'
    transformer evaluate results/language_model --tasks mine.yaml
    transformer evaluate models/pythia-70m --tasks lambada_openai arc_easy --start 0 --limit 100

The folder is that of a run, finished or not, or of a cell of a study, or of a published model with its tokenizer.json.
A task is a YAML file, or a name of the harness, which downloads its data. The table is printed, and the numbers are in
evaluation.json in the folder.
"""

import dataclasses
import importlib
import importlib.metadata
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import cli
from experiments.sample import leading
from transformer import pretrained
from transformer.core import runtime
from transformer.core.errors import ConfigError
from transformer.core.files import write_durably
from transformer.data.tokenizers import read_tokenizer
from transformer.inference.evaluation import lm_eval_model
from transformer.models.build import pure_model
from transformer.training.stored import load_run

RESULT = "evaluation.json"


@dataclass(frozen=True, kw_only=True)
class Command:
    tasks: tuple[str, ...] = ()
    """YAML files of tasks, or their names in the harness."""
    num_fewshot: int | None = None
    """Number of solved examples before each question; None: as the task says."""
    limit: int | None = None
    """Number of questions of each task; None: all."""
    start: int | None = None
    """The token before a text that has none before it; None: its first token is not scored."""
    stop: int | None = None
    """The token that ends a text that the model writes."""
    batch_size: int = 8
    """Texts that are read at once."""
    replica: int | None = None
    """The replica of a run that is asked; None: the one with the lowest loss."""


def main() -> None:
    given, flags = leading(sys.argv[1:], "the folder of a run or a model")
    command = cli.parse(Command, {"": Command()}, flags, description=__doc__)
    if len(given) != 1:
        raise ConfigError(f"evaluate: {len(given)} words before the options; give the folder of a run or a model")
    if not command.tasks:
        raise ConfigError("tasks: which? give --tasks FILE.yaml, or names of the harness")
    runtime.start()
    folder = Path(given[0])
    model = asked(folder, command)
    # Loaded by name: an extra, which type checkers may or may not find; `asked` says in a line that it is missing.
    harness, of_tasks, shown = (importlib.import_module(f"lm_eval{room}") for room in ("", ".tasks", ".utils"))
    named = [name for name in command.tasks if not Path(name).is_file()]
    tasks = of_tasks.TaskManager(include_defaults=bool(named))  # reading what all of its names mean can take minutes
    if unknown := sorted(set(named) - set(tasks.all_tasks)):
        raise ConfigError(f"tasks: {unknown[0]} is no file, and no task of the harness; `lm-eval ls tasks` lists these")
    found = harness.simple_evaluate(
        model=model,
        tasks=list(command.tasks),
        task_manager=tasks,
        num_fewshot=command.num_fewshot,
        limit=command.limit,
        log_samples=False,
    )
    print(shown.make_table(found))
    kept = {name: found[name] for name in ("results", "versions", "n-shot", "n-samples") if name in found}
    kept |= {"asked": dataclasses.asdict(command), "lm_eval": importlib.metadata.version("lm_eval")}
    write_durably(folder / RESULT, json.dumps(kept, indent=1))
    print(f"the numbers are in {folder / RESULT}")


def asked(folder: Path, command: Command) -> Any:
    """The model of a run's folder, or a published one, for the harness."""
    how = {"start": command.start, "stop": command.stop, "batch_size": command.batch_size}
    if not any(folder.glob("*.safetensors")):
        return load_run(folder).lm_eval_model(replica=command.replica, **how)
    if command.replica is not None:
        raise ConfigError(f"replica: {folder} holds a published model, which has none")
    tokenizer = read_tokenizer(folder / "tokenizer.json", around=True)
    config, params = pretrained.load(folder)
    return lm_eval_model(pure_model(config)[1], params, config, tokenizer, **how)


if __name__ == "__main__":
    cli.main(main)
