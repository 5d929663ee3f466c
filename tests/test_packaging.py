"""What is installed has all its files and types, and the files around the code agree with each other."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from transformer.core.folders import LOCK

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())

USER = """
from dataclasses import dataclass
import jax
import transformer as T
@dataclass(frozen=True)
class Mine(T.RMSNorm):
    power: float = 2.0
norm: T.RMSNorm = T.norms.RMSNorm()
config = T.preset("tiny").replace({"model.norm": Mine()}, steps=10)
model = T.LanguageModel(config.model.replace(vocab_size=65), key=jax.random.key(0))
outcome = T.train(config, T.grid(seeds=range(4)), T.load_data(config.data), "results/mine")
study = T.Study("norm", config, {"a": {}, "b": {"model.norm": norm}}, seeds=8, learning_rates=(1e-3,))
shown: str = study.run("results/norm").name
wrong: int = T.RMSNorm()
"""


@pytest.mark.parametrize("package", ["transformer", "experiments"])
def test_every_file_of_a_package_is_installed(package):
    folder = ROOT / package
    patterns = PROJECT["tool"]["setuptools"]["package-data"][package]
    data = {path for pattern in patterns for path in folder.glob(pattern)}
    files = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    files = {path for path in files if path.name != LOCK}  # of a process that wrote to the evidence
    assert files <= data
    assert folder / "py.typed" in files
    assert all((path.parent / "__init__.py").exists() for path in folder.rglob("*.py")), "a folder is no package"


@pytest.mark.release
def test_a_strict_type_checker_accepts_what_users_write(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    (found,) = json.loads(run.stdout)["generalDiagnostics"]
    assert '"RMSNorm" is not assignable to "int"' in found["message"]


def test_the_version_is_the_same_everywhere():
    version = PROJECT["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    released = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == version


def test_the_lock_has_what_the_project_asks_for():
    locked = {}
    for line in re.findall(r"^\S+==.*", (ROOT / "requirements.lock").read_text(), re.MULTILINE):
        pin = Requirement(line.rstrip(" \\"))
        locked.setdefault(pin.name, []).append(Version(str(pin.specifier).removeprefix("==")))
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *extras["test"], *extras["dev"], *extras["notebooks"]]
    for requirement in map(Requirement, asked):
        if requirement.name != PROJECT["project"]["name"]:
            versions = locked.get(requirement.name, [])
            assert any(version in requirement.specifier for version in versions), f"make lock: {requirement}"


def test_the_workflow_runs_what_guards_a_landing_under_every_python():
    commands = " ".join(step.get("run", "") for job in WORKFLOW["jobs"].values() for step in job["steps"])
    assert set(re.findall(r"make \w+", (ROOT / ".ci/run").read_text())) <= set(re.findall(r"make \w+", commands))
    classified = [one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if ":: Python ::" in one]
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == classified
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    written = (ROOT / "CONTRIBUTING.md").read_text() + commands
    assert set(re.findall(r"\bmake (\w+)", written)) <= targets
