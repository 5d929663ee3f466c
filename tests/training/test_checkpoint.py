"""Checkpoints are whole or refused."""

import errno
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import pytest

from transformer.core.files import WriteError, write_sealed
from transformer.training import checkpoint
from transformer.training.checkpoint import CheckpointError, Notes


class State(NamedTuple):
    weights: dict
    key: jax.Array


def notes(step: int) -> Notes:
    return Notes(step, "0", 0, 0.0, {})


def state(value: float) -> State:
    return State({"a": jnp.full((3, 2), value), "b": jnp.arange(4)}, jax.random.key(int(value)))


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, state(float(step)), notes(step))
    return tmp_path


def assert_is(restored, step):
    got, found = restored
    chex.assert_trees_all_equal(got.weights, state(float(step)).weights)
    assert got.key.dtype == state(float(step)).key.dtype
    assert (jax.random.key_data(got.key) == jax.random.key_data(state(float(step)).key)).all()
    assert found == notes(step)


def test_the_newest_is_restored_and_old_ones_are_deleted(folder):
    assert checkpoint.steps(folder) == [20, 30]
    assert_is(checkpoint.restore(folder, state(0.0)), 30)


@pytest.mark.parametrize("step", [25, 30, 35])
def test_what_is_damaged_takes_no_place(folder, step):
    checkpoint.save(folder, step, state(float(step)), notes(step), damaged=[30])
    assert checkpoint.steps(folder) == [20, step]


def test_shapes_say_what_is_restored(folder):
    """Nothing is computed for a template; that of a key has the shape of what is stored for it."""
    template = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), state(0.0))
    assert_is(checkpoint.restore(folder, template), 30)


def test_a_disk_without_room_for_a_folder_is_said(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("pathlib.Path.mkdir", full)
    with pytest.raises(WriteError, match="00000010: No space left on device"):
        checkpoint.save(tmp_path, 10, state(10.0), notes(10))


def test_nothing_there_is_none(tmp_path):
    assert checkpoint.restore(tmp_path / "missing", state(0.0)) is None


def files(folder, step):
    return [p for p in sorted((folder / f"{step:08d}").rglob("*")) if p.is_file()]


def damage(path, how):
    data = path.read_bytes()
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "missing":
        path.unlink()
    else:
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


@pytest.mark.parametrize("how", ["truncated", "missing", "one bit"])
def test_any_damaged_file_is_named_and_the_one_before_is_taken(folder, how):
    number = len([p for p in files(folder, 30) if p.stat().st_size])
    for i in range(number):
        checkpoint.save(folder, 30, state(30.0), notes(30))
        damage([p for p in files(folder, 30) if p.stat().st_size][i], how)
        with pytest.warns(UserWarning, match="00000030 is damaged .*falling back"):
            assert_is(checkpoint.restore(folder, state(0.0)), 20)


@pytest.mark.parametrize("text", ['"position": 30', '"arrays"', '"step": 30'])
def test_the_manifest_is_guarded_too(folder, text):
    """A bit that leaves it readable."""
    path = folder / "00000030" / "manifest.json"
    whole = path.read_text()
    assert text in whole
    path.write_text(whole.replace(text, text[:-1] + chr(ord(text[-1]) ^ 1)))
    with pytest.warns(UserWarning, match="00000030 is damaged .*manifest"):
        assert_is(checkpoint.restore(folder, state(0.0)), 20)


@pytest.mark.parametrize("text", ["", "[]", "null", "5", '"x"', "{}", '{"sha256": []}', "[" * 10_000, "\xff"])
def test_a_manifest_that_is_none_is_damage(folder, text):
    (folder / "00000030" / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.warns(UserWarning, match="00000030 is damaged .*manifest"):
        assert_is(checkpoint.restore(folder, state(0.0)), 20)


@pytest.mark.parametrize("body", [{}, {"step": 30, "notes": 5, "arrays": {}, "files": {}}])
def test_a_manifest_of_other_fields_is_damage(folder, body):
    write_sealed(folder / "00000030" / "manifest.json", body)
    with pytest.warns(UserWarning, match="00000030 is damaged .*(missing|manifest.json.notes)"):
        assert_is(checkpoint.restore(folder, state(0.0)), 20)


@pytest.mark.parametrize("name", ["²", "7", "notes", "00000040.old"])
def test_other_folders_are_no_checkpoints(folder, name):
    (folder / name).mkdir()
    assert checkpoint.steps(folder) == [20, 30]
    assert_is(checkpoint.restore(folder, state(0.0)), 30)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_has_the_name_of_an_unfinished_save_gives_way(folder, kind, tmp_path_factory):
    """A link's target stays."""
    kept = tmp_path_factory.mktemp("elsewhere") / "kept"
    kept.write_text("kept")
    for step in (20, 40):
        path = folder / f".{step:08d}.partial"
        path.write_text("") if kind == "file" else path.symlink_to(kept.parent)
    checkpoint.save(folder, 40, state(40.0), notes(40))
    assert_is(checkpoint.restore(folder, state(0.0)), 40)
    checkpoint.sweep(folder)
    assert not list(folder.glob(".*.partial"))
    assert kept.read_text() == "kept"


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_not_missed(folder, monkeypatch):
    """A run that goes on deletes it only after it has written a newer one."""
    checked = checkpoint._checked

    def late(path):
        manifest = checked(path)
        if path.name == "00000030":
            for step in (40, 50):
                checkpoint.save(folder, step, state(float(step)), notes(step))
        return manifest

    monkeypatch.setattr(checkpoint, "_checked", late)
    assert_is(checkpoint.restore(folder, state(0.0)), 50)


def test_strict_stops_at_damage(folder):
    damage(files(folder, 30)[-1], "truncated")
    with pytest.raises(CheckpointError, match=r"00000030 is damaged .*without --strict"):
        checkpoint.restore(folder, state(0.0), strict=True)
    damage(files(folder, 20)[-1], "truncated")  # the newest decides
    checkpoint.save(folder, 30, state(30.0), notes(30))
    assert_is(checkpoint.restore(folder, state(0.0), strict=True), 30)


def test_a_deletion_cut_short_leaves_no_checkpoint(folder, monkeypatch):
    """The next start takes the rest away."""

    def killed(path, **_):
        if path.name == ".00000020.partial" and path.is_dir():
            raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(folder, 40, state(40.0), notes(40))
    monkeypatch.undo()
    assert checkpoint.steps(folder) == [30, 40]
    assert_is(checkpoint.restore(folder, state(0.0)), 40)
    checkpoint.sweep(folder)
    assert not list(folder.glob(".*"))


def test_an_empty_folder_is_damage(folder):
    for path in sorted((folder / "00000030").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.warns(UserWarning, match="manifest"):
        assert_is(checkpoint.restore(folder, state(0.0)), 20)


def test_a_link_to_what_is_not_there_is_damage(folder):
    """As of checkpoints on a disk that is not mounted."""
    (folder / "00000040").symlink_to("elsewhere")
    with pytest.warns(UserWarning, match="manifest"):
        assert_is(checkpoint.restore(folder, state(0.0)), 30)


def test_all_damaged_is_an_error_and_never_a_fresh_start(folder):
    for step in (20, 30):
        (folder / f"{step:08d}" / "manifest.json").unlink()
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(CheckpointError, match="every checkpoint"):
        checkpoint.restore(folder, state(0.0))


@pytest.mark.parametrize(
    "other",
    [
        State({"a": jnp.zeros((3, 3)), "b": jnp.arange(4)}, jax.random.key(0)),
        State({"a": jnp.zeros((3, 2), jnp.bfloat16), "b": jnp.arange(4)}, jax.random.key(0)),
        State({"a": jnp.zeros((3, 2))}, jax.random.key(0)),
        State({"a": jnp.zeros((3, 2)), "b": jnp.arange(4), "c": jnp.zeros(1)}, jax.random.key(0)),
    ],
)
def test_another_tree_shape_or_dtype_is_refused(folder, other):
    with pytest.raises(CheckpointError, match="this run has"):
        checkpoint.restore(folder, other)


def test_an_unfinished_save_is_not_read_and_is_swept_away(folder):
    (folder / ".00000040.partial").mkdir()
    assert_is(checkpoint.restore(folder, state(0.0)), 30)
    checkpoint.sweep(folder)
    assert not (folder / ".00000040.partial").exists()
