"""Tokenizers: round trips, special tokens, training once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.core.errors import ConfigError
from transformer.data.tokenizer_training import make_tokenizer
from transformer.data.tokenizers import (
    END,
    MASK,
    PAD,
    START,
    UNKNOWN,
    ByteTokenizer,
    CharTokenizer,
    SymbolTokenizer,
    TrainedTokenizer,
    read_tokenizer,
)
from transformer.runs.tokenizers import (
    BPE,
    SPECIAL,
    Byte,
    ByteBPE,
    Char,
    FromFile,
    Symbols,
    Tokenization,
    Word,
    WordPiece,
)

TEXTS = ["the cat sat on the mat", "a cat and a dog", "The end of the tale"]
TRAINED = [Word(), BPE(60), ByteBPE(280), WordPiece(60)]


def trained(config, texts=TEXTS, stored=None):
    pytest.importorskip("tokenizers")
    return make_tokenizer(config, texts, stored)


def definition_of(config, texts):
    tokenizer = trained(config, texts)
    assert isinstance(tokenizer, TrainedTokenizer)
    return tokenizer.definition


@pytest.mark.parametrize("plain", [ByteTokenizer(), CharTokenizer("abc"), CharTokenizer.of("añ𝔸")])
def test_special_ids_come_first_and_shift_all_others(plain):
    kind, *fields = type(plain), *vars(plain).values()
    special = kind(*fields[:-1], special=True)
    text = plain.decode(plain.encode("a"))
    np.testing.assert_array_equal(special.encode(text), plain.encode(text) + 5)
    assert special.encode(text).dtype == plain.encode(text).dtype == np.int32
    assert special.vocab_size == plain.vocab_size + 5
    assert special.decode(np.array([START, *special.encode(text), MASK, END, PAD])) == text
    assert special.decode(np.array([*special.encode(text), UNKNOWN, END])) == f"{text}\ufffd"
    assert special.decode(np.array([])) == plain.decode(np.array([])) == ""
    assert special.to_json() == plain.to_json() | {"special": True}


def test_json_without_special_tokens_is_that_of_old_checkpoints():
    assert ByteTokenizer().to_json() == {"tokenizer": "byte"}
    assert CharTokenizer("ab").to_json() == {"tokenizer": "char", "characters": "ab"}


def test_characters_in_any_order():
    """They are numbered as they stand there."""
    tokenizer = CharTokenizer("0123456789+=ba")
    assert tokenizer.encode("1+1=ab").tolist() == [1, 10, 1, 11, 13, 12]
    assert tokenizer.decode(tokenizer.encode("b=0a")) == "b=0a"
    for wrong in ("", "aba"):
        with pytest.raises(ConfigError, match=f"^tokenizer: '{wrong}' is not a text of different characters$"):
            CharTokenizer(wrong)


def test_the_first_character_that_is_not_known_is_named():
    with pytest.raises(ConfigError, match=r"no token for 'ü' at character 2$"):
        CharTokenizer("ab").encode("abüaö")


def test_symbols():
    tokenizer = SymbolTokenizer(("run", "walk", "left"))
    tokens = tokenizer.encode("walk left walk")
    assert tokens.tolist() == [6, 7, 6]
    assert tokens.dtype == np.int32
    assert tokenizer.vocab_size == 8
    assert tokenizer.decode(np.array([START, *tokens, END, PAD])) == "walk left walk"
    assert tokenizer.decode(np.array([UNKNOWN, *tokens])) == "\ufffd walk left walk"
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.to_json() == {"tokenizer": "symbol", "symbols": ["run", "walk", "left"]}
    with pytest.raises(ConfigError, match=r"no token for 'wlak' at symbol 1; did you mean 'walk'\?"):
        tokenizer.encode("run wlak")


@pytest.mark.parametrize("symbols", [("a", "a"), ("a", "</s>"), ("a b",), ("",)])
def test_symbols_that_cannot_be(symbols):
    with pytest.raises(ConfigError, match="given twice, special, or not one word"):
        SymbolTokenizer(symbols)


def test_char_and_byte_are_built_directly():
    assert make_tokenizer(Char(), ["cb", "a"]) == CharTokenizer("abc")
    assert make_tokenizer(Char(special=True), ["cb", "a"]) == CharTokenizer("abc", special=True)
    assert make_tokenizer(Byte(special=True), []) == ByteTokenizer(special=True)


@pytest.mark.parametrize("config", TRAINED, ids=str)
def test_trained(config):
    """Round trip, dtype, and the special tokens as ids 0 to 4, of which decoding writes the unknown one alone."""
    tokenizer = trained(config)
    for text in [*TEXTS, ""]:
        tokens = tokenizer.encode(text)
        assert tokens.dtype == np.int32
        assert tokens.min(initial=5) >= 5
        assert tokens.max(initial=0) < tokenizer.vocab_size
        assert tokenizer.decode(tokens) == text
        assert tokenizer.decode(np.array([START, *tokens, END, PAD, MASK])) == text
        assert tokenizer.decode(np.array([*tokens, UNKNOWN, END])).replace(" ", "") == f"{text}<unk>".replace(" ", "")
    assert isinstance(tokenizer, TrainedTokenizer)
    assert [tokenizer._tokenizer.token_to_id(token) for token in SPECIAL] == [PAD, START, END, UNKNOWN, MASK]


@pytest.mark.parametrize("config", TRAINED, ids=str)
def test_training_is_a_function_of_the_texts(config):
    assert len({definition_of(config, TEXTS) for _ in range(3)}) == 1
    first, other = trained(config), trained(config, ["another text"])
    assert first == trained(config)
    assert first.to_json() == trained(config).to_json() != other.to_json()


IN_ANOTHER_PROCESS = """
from transformer.data.tokenizer_training import make_tokenizer
from transformer.runs.tokenizers import BPE, ByteBPE, Char, Symbols, Word, WordPiece
texts = ["sphinx of black quartz judge my vow", "the five boxing wizards jump quickly"]
for config in (Char(), Symbols(), Word(), BPE(60), ByteBPE(280), WordPiece(70)):
    print(make_tokenizer(config, texts).definition)
"""


def test_a_vocabulary_is_the_same_in_every_process():
    """The order of a set of words is another one for every seed of their hashes."""
    pytest.importorskip("tokenizers")
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS]
    started = [
        subprocess.Popen(command, env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE) for seed in "12"
    ]
    one, other = (process.communicate(timeout=60)[0].splitlines() for process in started)
    assert len(one) == 6
    assert one == other


@pytest.mark.parametrize("config", TRAINED, ids=str)
def test_a_stored_tokenizer_is_never_trained_again(config, tmp_path):
    stored = tmp_path / "tokenizer.json"
    stored.write_text(definition_of(config, ["some other text"]), encoding="utf-8")
    tokenizer = trained(config, stored=stored)
    assert tokenizer == trained(config, ["some other text"])
    assert tokenizer.decode(tokenizer.encode("other text")) == "other text"


def test_ids_of_a_stored_tokenizer_keep_their_meaning(tmp_path):
    """When other texts are read: of characters and symbols too, where they are of the same kind."""
    kinds = {Char(): "bac", Char(special=True): "bac", Symbols(): "b a c"}
    for number, (config, text) in enumerate(kinds.items()):
        first = make_tokenizer(config, [text])
        (tmp_path / f"{number}.json").write_text(first.definition)
        assert make_tokenizer(config, ["d e"], tmp_path / f"{number}.json") == first
        assert make_tokenizer(config, ["d e"]) != first


@pytest.mark.parametrize("config", [Byte(), Byte(special=True), Char(), Char(special=True), Symbols(), Word()], ids=str)
def test_a_tokenizer_is_read_from_its_definition(config, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(trained(config).definition, encoding="utf-8")
    assert read_tokenizer(path) == trained(config)


KINDS = [Char(), Char(special=True), Byte(), Byte(special=True), Symbols(), Word(), Word(lowercase=True), BPE(60),
         ByteBPE(280), WordPiece(60)]  # fmt: skip


@pytest.mark.parametrize("config", KINDS, ids=str)
def test_a_stored_tokenizer_of_another_kind_is_refused(config, tmp_path):
    """It is neither taken for that of the config nor left unread; nor is one that is not there."""
    for number, other in enumerate(KINDS):
        path = tmp_path / f"{number}.json"
        path.write_text(trained(other).definition, encoding="utf-8")
        if other == config:
            assert trained(config, ["a b"], path) == trained(other)
            continue
        with pytest.raises(ConfigError) as caught:
            trained(config, stored=path)
        assert str(caught.value) == f"tokenizer: {path} holds one of another kind than {config}"
    with pytest.raises(ConfigError, match=r"^tokenizer: no file .*gone\.json$"):
        trained(config, stored=tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("{nonsense", r"tokenizer\.json: is no JSON"),
        ('{"tokenizer": "chat"}', r"tokenizer\.json: unknown tokenizer 'chat'; did you mean 'char'\?"),
        ('{"tokenizer": "char", "characters": 5}', r"tokenizer\.json.*characters"),
    ],
)
def test_a_broken_definition_is_one_line(tmp_path, definition, message):
    (tmp_path / "tokenizer.json").write_text(definition)
    with pytest.raises(ConfigError, match=message):
        read_tokenizer(tmp_path / "tokenizer.json")


def test_a_broken_definition_of_the_library_is_one_line():
    pytest.importorskip("tokenizers")
    with pytest.raises(ConfigError, match="not a definition of the library tokenizers: "):
        TrainedTokenizer("{nonsense").encode("x")


@pytest.mark.parametrize("config", [Word(), BPE(60), WordPiece(60)], ids=str)
def test_what_no_text_had_is_unknown(config):
    tokenizer = trained(config)
    assert tokenizer.encode("the ξ cat").tolist().count(UNKNOWN) == 1
    assert tokenizer.decode(tokenizer.encode("the ξ cat")) == "the <unk> cat"


def test_words_are_what_whitespace_separates():
    tokenizer = trained(Word(), ["it's  well-known,\tisn't it?\nit's"])
    assert tokenizer.vocab_size == 5 + 4
    assert tokenizer.encode("it's")[0] == 5
    assert tokenizer.encode("it 's").tolist() == [UNKNOWN, UNKNOWN]


def test_rare_words_are_unknown():
    texts = ["a a a b b c"]
    assert [trained(Word(vocab_size=7), texts).encode(w)[0] for w in "abc"] == [5, 6, UNKNOWN]
    assert [trained(Word(min_frequency=3), texts).encode(w)[0] for w in "abc"] == [5, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    "config", [Word(lowercase=True), BPE(60, lowercase=True), WordPiece(60, lowercase=True)], ids=str
)
def test_lower_case(config):
    tokenizer = trained(config)
    assert tokenizer.decode(tokenizer.encode("THE Cat")) == "the cat"


def test_bpe_merges_the_most_frequent_pair_first():
    """Of "ab ab ac" the pairs ▁a (3 times) and then ▁ab (2 times) are merged."""
    tokenizer = trained(BPE(5 + 4 + 2), ["ab ab ac"])
    assert [len(tokenizer.encode(text)) for text in ("ab", "ac", "a", "b")] == [1, 2, 1, 2]


@given(st.text())
def test_byte_level_bpe_round_trips_any_text(text):
    tokenizer = trained(ByteBPE(270))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert UNKNOWN not in tokenizer.encode(text)


@pytest.mark.parametrize("text", ["<s> a </s>", "\u2581 \x00\r\n\t  \x85\u2028", "👩‍👩‍👧 é ﬁ", "<pad><unk><mask>"])
def test_byte_level_bpe_round_trips_awkward_text(text):
    tokenizer = trained(ByteBPE(270), [text] * 9)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text("abcde", min_size=1), st.lists(st.text("abcde", min_size=1), min_size=1))
def test_bpe_and_wordpiece_round_trip_words_of_known_characters(word, words):
    text = " ".join([word, *words])
    for config in (BPE(40), WordPiece(40)):
        tokenizer = trained(config, ["abcde eabcd", "edcba"])
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("lowercase", [False, True])
def test_bpe_has_no_special_token_in_words(lowercase):
    """However often a text spells one: its last merge would be the token."""
    words = [word.upper() if lowercase else word for word in SPECIAL]
    lines = [f"{a}{word}{b}" for word in words for a in "abcdefghij" for b in "klmnopqrst"]
    tokenizer = trained(BPE(60, lowercase=lowercase), lines)
    for line in lines:
        assert tokenizer.decode(tokenizer.encode(line)) == (line.lower() if lowercase else line)
        assert tokenizer.encode(line).min() >= len(SPECIAL)


def wordpiece_of(*pieces):
    """A WordPiece tokenizer with the given pieces as ids 5, 6, …"""
    library = pytest.importorskip("tokenizers")
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, *pieces])}
    blank = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token=SPECIAL[UNKNOWN]))
    blank.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    blank.decoder = library.decoders.WordPiece(prefix="##", cleanup=False)
    return TrainedTokenizer(blank.to_str())


@pytest.mark.parametrize("length", [150, 1_000])
def test_a_long_word_is_taken_apart(length):
    """A text without spaces is one, and is not thrown away."""
    pytest.importorskip("tokenizers")
    word = "acgt" * (length // 4) + "ac"[: length % 4]
    tokens = make_tokenizer(WordPiece(16), [word]).encode(word)
    assert len(tokens) > 1
    assert SPECIAL.index("<unk>") not in tokens


def test_wordpiece_takes_the_longest_piece_from_the_left():
    tokenizer = wordpiece_of("un", "##happ", "##happiness", "##happy", "##s")
    tokens = tokenizer.encode("unhappiness unhappys")
    assert tokens.tolist() == [5, 7, 5, 8, 9]
    assert tokenizer.decode(tokens) == "unhappiness unhappys"


def test_wordpiece_does_not_take_a_longest_piece_back():
    """unh + ##appiness is tried and un + ##happiness is not: the word is unknown as a whole."""
    assert wordpiece_of("un", "unh", "##happiness").encode("unhappiness un").tolist() == [UNKNOWN, 5]


def test_a_vocabulary_too_small_for_the_characters_is_refused():
    with pytest.raises(ConfigError, match=r"vocab_size 6 is less than the \d+ of special tokens and characters"):
        trained(BPE(6), ["abcdef"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word(vocab_size=5)", "word.vocab_size: 5 is less than 6"),
        ("word(min_frequency=0)", "word.min_frequency: 0 is less than 1"),
        ("bpe(vocab_size=5)", "bpe.vocab_size: 5 is less than 6"),
        ("byte_bpe(vocab_size=260)", "byte_bpe.vocab_size: 260 is less than 261"),
        ("wordpiece(vocab_size=0)", "wordpiece.vocab_size: 0 is less than 6"),
        ("bpee", "unknown name 'bpee'; did you mean 'bpe'?"),
    ],
)
def test_configs_that_cannot_be(text, message):
    with pytest.raises(ConfigError) as caught:
        Tokenization.parse(text)
    assert message in str(caught.value)


def test_names():
    names = {"char", "byte", "symbols", "word", "bpe", "byte_bpe", "wordpiece", "file"}
    assert {n for n, c in Tokenization.variants().items() if c.__module__.startswith("transformer.")} == names
    assert Tokenization.parse("word(vocab_size=None, lowercase=True)") == Word(lowercase=True)


def test_a_missing_library_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"pip install 'transformer\[text\]'"):
        make_tokenizer(BPE(), TEXTS)
    with pytest.raises(ConfigError, match=r"pip install 'transformer\[text\]'"):
        TrainedTokenizer("{}").encode("x")


def test_a_config_of_ones_own_needs_a_rule():
    class Own(Tokenization):
        name = "own_of_test"

    with pytest.raises(ConfigError, match="own_of_test has no rule"):
        make_tokenizer(Own(), TEXTS)


@pytest.mark.parametrize("config", [BPE(4000), ByteBPE(4000), WordPiece(4000)], ids=str)
def test_multi30k(config):
    """Trained on the German validation captions, the test captions come back; few characters there are new."""
    data = os.environ.get("TRANSFORMER_DATA")
    if data is None:
        pytest.skip("TRANSFORMER_DATA is not set: there is no multi30k here")
    folder = Path(data) / "multi30k-bpe"
    train, test = (
        (folder / f"{part}.de").read_text(encoding="utf-8").replace("@@ ", "").splitlines()
        for part in ("valid", "test.2016")
    )
    tokenizer = trained(config, train)
    assert tokenizer.vocab_size == 4000
    ids = {text: tokenizer.encode(text) for text in test}
    known = [text for text in test if UNKNOWN not in ids[text]]
    assert len(known) > 0.98 * len(test)
    assert [tokenizer.decode(ids[text]) for text in known] == known


def test_the_file_of_a_published_model(tmp_path):
    """Its own ids, with or without the tokens that it puts around a text; a run's own copy comes before it."""
    library = pytest.importorskip("tokenizers")
    published = library.Tokenizer(library.models.WordLevel({"[CLS]": 0, "[SEP]": 1, "a": 2, "b": 3}, "a"))
    published.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    around = [("[CLS]", 0), ("[SEP]", 1)]
    published.post_processor = library.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=around)
    published.save(str(tmp_path / "tokenizer.json"))
    plain, special = (make_tokenizer(FromFile(str(tmp_path / "tokenizer.json"), special=s), []) for s in (False, True))
    assert plain.encode("b a").tolist() == [3, 2]
    assert special.encode("b a").tolist() == [0, 3, 2, 1]
    assert (plain.opening.tolist(), special.opening.tolist()) == ([], [0])
    assert not plain.special  # its ids 0 to 4 mean something else
    assert plain.to_json() != special.to_json()
    kept = make_tokenizer(FromFile("gone.json", special=True), [], tmp_path / "tokenizer.json")
    assert kept.encode("b a").tolist() == [0, 3, 2, 1]
    with pytest.raises(ConfigError, match=r"no file gone\.json"):
        make_tokenizer(FromFile("gone.json"), [])


@pytest.mark.parametrize("kind", ["BPE", "Unigram", "WordPiece", "WordLevel"])
def test_what_is_put_before_a_text_is_known_of_any_tokenizer(kind):
    """Also where no text of digits is known, and a normalizer takes some characters away."""
    library = pytest.importorskip("tokenizers")
    vocabulary = {"<s>": 0, "<g>": 1, "1": 2, "a": 3, "b": 4}
    given = {"BPE": (vocabulary, []), "Unigram": ([(token, -1.0) for token in vocabulary],)}.get(kind, (vocabulary,))
    published = library.Tokenizer(getattr(library.models, kind)(*given))
    published.add_special_tokens(["<s>", "<g>"])
    published.normalizer = library.normalizers.Replace(library.Regex("[0-9]"), "")
    before = [("<s>", 0), ("<g>", 1)]
    published.post_processor = library.processors.TemplateProcessing("<g> <s> $A", special_tokens=before)
    assert TrainedTokenizer(published.to_str(), around=True).opening.tolist() == [1, 0]
    assert TrainedTokenizer(published.to_str()).opening.tolist() == []


@pytest.mark.parametrize("name", ["vocab.json", "tokenizer_config.json"])
def test_files_beside_a_tokenizer_are_none(tmp_path, name):
    fields = {"vocab.json": {"tokenizer": 5, "model": 7, "a": 0}, "tokenizer_config.json": {"eos_token": "</s>"}}
    (tmp_path / name).write_text(json.dumps(fields[name]))
    with pytest.raises(ConfigError, match=rf"{name}: its vocabulary or its settings alone; give the file tokenizer"):
        read_tokenizer(tmp_path / name)


@pytest.mark.parametrize(
    ("tokenizer", "first"),
    [
        (CharTokenizer("abc"), 3),
        (CharTokenizer("abc", special=True), 8),
        (ByteTokenizer(), 256),
        (SymbolTokenizer(("a",)), 6),
    ],
    ids=str,
)
def test_a_token_of_a_larger_vocabulary_is_a_sign_of_its_own(tokenizer, first):
    """A model may have more tokens than its tokenizer, and may choose them."""
    assert tokenizer.decode(np.array([first, first + 300])).split() in (["\ufffd" * 2], ["\ufffd"] * 2)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", [Word, WordPiece])
def test_special_words_of_a_text_are_unknown(kind, lowercase):
    """As in files that hold `<unk>` for rare words: no text ends itself, or hides a part of it."""
    tokenizer = make_tokenizer(kind(lowercase=lowercase), ["a b <s> c <unk> d a"])
    for word in (each.upper() if lowercase else each for each in SPECIAL):
        before, unknown, after = tokenizer.encode(f"a {word} d").tolist()
        assert (before, unknown, after) == (*tokenizer.encode("a"), UNKNOWN, *tokenizer.encode("d"))
    assert set(tokenizer.encode("a b c d")) & set(range(5)) == set()


def test_special_words_are_kept_or_refused_by_other_tokenizers(tmp_path):
    """Of pieces they are text; a file without an unknown token has none in which to read them."""
    text = "a </s> d"
    bpe = make_tokenizer(BPE(60), [text])
    assert bpe.decode(bpe.encode(text)) == text
    library = pytest.importorskip("tokenizers")
    published = library.Tokenizer(library.models.BPE({"</s>": 0, "a": 1}, [], ignore_merges=True))
    published.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    published.add_special_tokens(["</s>"])
    published.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match=r"^tokenizer: '</s>' at character 2 is a special token, and no text$"):
        make_tokenizer(FromFile(str(tmp_path / "tokenizer.json")), []).encode(text)


def test_published_tokenizers_write_their_unknown_token_and_no_other_special_one(tmp_path):
    library = pytest.importorskip("tokenizers")
    published = library.Tokenizer(library.models.WordLevel({"[CLS]": 0, "[UNK]": 1, "a": 2}, "[UNK]"))
    published.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    published.add_special_tokens(["[CLS]", "[UNK]"])
    published.save(str(tmp_path / "tokenizer.json"))
    tokenizer = make_tokenizer(FromFile(str(tmp_path / "tokenizer.json")), [])
    assert tokenizer.decode(np.array([0, 2, 1, 2])) == "a [UNK] a"
    assert tokenizer.encode("a [CLS] z").tolist() == [2, 1, 1]


def test_half_a_character_is_named_by_trained_tokenizers_too():
    tokenizer = make_tokenizer(BPE(60), ["the cat sat on the mat"])
    assert isinstance(tokenizer, TrainedTokenizer)
    for encode in (tokenizer.encode, tokenizer.encode_open):
        with pytest.raises(ConfigError, match=r"'\\udcff' at character 4 is no character"):
            encode(b"the \xff".decode(errors="surrogateescape"))
