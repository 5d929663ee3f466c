import pytest

from transformer.testing.walk import MODELS, walk, walks


@pytest.mark.parametrize(("name", "files", "changes"), [("default", 15, 40), ("modern", 18, 50)])
def test_the_way_of_a_token_is_short(name, files, changes):
    found = walks(MODELS[name])
    assert len(found["building"].visited) <= 15
    assert len(found["tokens to loss"].visited) <= files
    assert found["tokens to loss"].changes <= changes


def test_a_walk_names_the_files_of_its_calls():
    import jax

    from transformer.core.modules import at, below

    found = walk(lambda: (at(jax.random.key(0), "a"), below(None, "b")))
    assert found.visited == ["core/modules.py"]
    assert found.files == ("core/modules.py",) * 2
    assert found.changes == 0
