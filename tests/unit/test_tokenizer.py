"""Text becomes ids and comes back: every byte, no control token by accident, and as the model learned it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import gguf
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from shared_runtime.errors import CheckpointError, RequestError, UnsatisfiableConstraintError
from shared_runtime.model.gguf import convert_gguf
from shared_runtime.tokenizer import Tokenizer
from tests.text_samples import random_documents, random_texts
from tests.tiny_gguf import CONTROL, UNSPELLABLE, TinyGguf, tiny_vocabulary

HARD_TEXTS = ["", " ", "👩‍👩‍👧", "🇩🇪🇫🇷", "中文字", "مرحبا بالعالم", "e\N{COMBINING ACUTE ACCENT}", "a\u2028b\u2029c",
              "\N{NO-BREAK SPACE}\N{ZERO WIDTH SPACE}\N{ZERO WIDTH NO-BREAK SPACE}", "\U0010ffff", " " * 40, "x  3",
              "\r\n\t1", "\0", "½²٣", "'s 'LL", "<0x41>", "▁"]


def write_tokenizer(folder: Path, library: tokenizers.Tokenizer, *, eos: int | list[int] | None = 2,
                    width: int | None = None) -> Path:
    """A checkpoint folder as far as a tokenizer reads one."""
    folder.mkdir(parents=True, exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    config = {"vocab_size": width or library.get_vocab_size(), "eos_token_id": eos}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>"}))
    return folder


def sentencepiece(*, metaspace: bool, all_bytes: bool = True) -> tokenizers.Tokenizer:
    """A BPE as Llama 2 (`Prepend` and `Replace`) or Mistral (`Metaspace`) write it, with byte fallback."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256 if all_bytes else 128):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    for piece in ["▁", *"abcdehlort", "é", "▁h", "▁a", "he", "▁he", "ll", "lo", "▁▁"]:
        vocabulary[piece] = len(vocabulary)
    merges = [("▁", "h"), ("▁", "a"), ("h", "e"), ("▁h", "e"), ("l", "l"), ("l", "o"), ("▁", "▁")]
    library = tokenizers.Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if metaspace:
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                         decoders.Strip(" ", 1, 0)])
    library.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], pair=["<s>", "$A", "$B"], special_tokens=[("<s>", 1)])
    library.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    return library


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    convert_gguf(TinyGguf().write(folder / "tiny.gguf"), folder)
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def real(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


# -------------------------------------------------------------------- the embedded model's


def transformers_reading(folder: Path, scratch: Path) -> tokenizers.Tokenizer:
    """The tokenizer that transformers makes of a GGUF with the tokens and merges of `folder`."""
    from transformers import AutoTokenizer

    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [" ".join(merge) for merge in model["merges"]]
    kinds = [gguf.TokenType.CONTROL if i < 17 else gguf.TokenType.NORMAL for i in range(len(tokens))]
    writer = gguf.GGUFWriter(scratch / "vocabulary.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    for key, value in (("tokenizer.ggml.bos_token_id", 1), ("tokenizer.ggml.eos_token_id", 2),
                       ("tokenizer.ggml.unknown_token_id", 0), ("llama.block_count", 30),
                       ("llama.context_length", 8192), ("llama.embedding_length", 576),
                       ("llama.feed_forward_length", 1536), ("llama.attention.head_count", 9)):
        writer.add_uint32(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    library = AutoTokenizer.from_pretrained(scratch, gguf_file="vocabulary.gguf").backend_tokenizer
    assert isinstance(library, tokenizers.Tokenizer)
    return library


@pytest.mark.model
@pytest.mark.slow
def test_ids_are_those_of_transformers_with_digits_split_first(real: Tokenizer, embedded_folder: Path,
                                                               tmp_path: Path) -> None:
    raw = transformers_reading(embedded_folder, tmp_path)
    mended = tokenizers.Tokenizer.from_str(raw.to_str())
    mended.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)])
    documents = list(random_documents(1000, seed=1))
    texts = [*HARD_TEXTS, *CONTROL, *random_texts(5000, seed=1), *documents]
    for text in texts:
        assert real.encode(text) == mended.encode(text, add_special_tokens=False).ids, text
    differing = sum(real.encode(text) != raw.encode(text, add_special_tokens=False).ids for text in documents)
    assert differing > 50  # of 1,000: the mend matters (118 differed when this was written)


@pytest.mark.model
@pytest.mark.slow
def test_transformers_reads_our_folder_as_we_do(real: Tokenizer, embedded_folder: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(embedded_folder)
    for text in [*HARD_TEXTS, *random_texts(1000, seed=2), *random_documents(200, seed=2), "a<|im_end|>b"]:
        assert real.encode(text) == real.encode_prompt(text) == theirs.encode(text)


@pytest.mark.model
@pytest.mark.parametrize(("text", "pieces"), [
    ("x  3", ["x", "  ", "3"]), ("12", ["1", "2"]), ("\n\n1", ["\n\n", "1"]), ("    1", ["    ", "1"]),
    ("\r\n2", ["\r\n", "2"]), ("id 7", ["id", " ", "7"]),
])
def test_blanks_before_a_digit_stay_together_and_digits_apart(text: str, pieces: list[str], real: Tokenizer) -> None:
    assert [real.decode([token_id]) for token_id in real.encode(text)] == pieces


@pytest.mark.model
def test_the_real_vocabulary_is_as_measured(real: Tokenizer) -> None:
    vocabulary = real.vocabulary
    assert len(vocabulary) == vocabulary.width == 49_152
    assert vocabulary.control_ids == frozenset(range(17))
    assert vocabulary.stop_ids == {2}
    absent = {4, 6, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
    assert set(range(256)) - vocabulary.byte_tokens.keys() == absent
    assert set(range(256)) - vocabulary.spellable_bytes == absent
    assert len(set(vocabulary.token_bytes)) == 49_152 - 16  # all different, but for the 17 that spell nothing


@pytest.mark.model
def test_the_real_tokenizer_knows_each_control_token_and_can_read_it_as_text(real: Tokenizer) -> None:
    for token_id in range(17):
        name = real._library.id_to_token(token_id)
        assert name is not None
        assert real.encode(f"a {name}b") == [*real.encode("a "), token_id, *real.encode("b")]
        literal = real.encode(f"a {name}b", parse_control=False)
        assert not real.vocabulary.control_ids & set(literal)
        assert real.decode(literal) == f"a {name}b"
        assert real.spell(name) == real.encode(name, parse_control=False)


@pytest.mark.model
def test_hard_texts_come_back_from_the_real_tokenizer(real: Tokenizer) -> None:
    for text in [*HARD_TEXTS, *random_texts(2000, seed=4), *random_documents(300, seed=4)]:
        assert real.decode(real.encode(text)) == text
        assert real.decode(real.spell(text)) == text


@pytest.mark.model
@pytest.mark.parametrize("character", ["\x04", "\x06", "\x13", "\x14", "\x16", "\x1d", "\U00040000", "\U000bffff"])
def test_the_real_tokenizer_refuses_what_the_library_would_drop(character: str, real: Tokenizer) -> None:
    byte = character.encode()[0]
    with pytest.raises(RequestError, match=rf"offset 2 of the text: .*byte 0x{byte:02X}"):
        real.encode(f"é {character}b")
    with pytest.raises(RequestError, match=f"0x{byte:02X}"):
        real.apply_chat([{"role": "user", "content": f"<|im_end|>{character}"}])
    with pytest.raises(UnsatisfiableConstraintError, match=rf"offset 2 of .*byte 0x{byte:02X}"):
        real.spell(f"é {character}b")


# -------------------------------------------------------------------- byte-level BPE in general


@given(st.text())
def test_any_text_comes_back_or_is_refused_by_its_byte(text: str) -> None:
    tokenizer = _shared_tiny()
    raw = text.encode(errors="surrogatepass")
    if UNSPELLABLE in raw:
        with pytest.raises(RequestError):
            tokenizer.encode(text, parse_control=False)
        with pytest.raises(UnsatisfiableConstraintError, match="0x04"):
            tokenizer.spell(text)
    else:
        assert tokenizer.decode(tokenizer.encode(text, parse_control=False)) == text
        assert tokenizer.decode(tokenizer.spell(text)) == text


_MADE: dict[str, Tokenizer] = {}


def _shared_tiny() -> Tokenizer:
    """Hypothesis runs a test many times and takes no fixture of ours; the tokenizer is made once."""
    if "tiny" not in _MADE:
        import tempfile

        with tempfile.TemporaryDirectory() as scratch:
            convert_gguf(TinyGguf().write(Path(scratch) / "tiny.gguf"), Path(scratch))
            _MADE["tiny"] = Tokenizer.from_folder(Path(scratch))
    return _MADE["tiny"]


@pytest.mark.parametrize(("text", "place"), [("a\ud800b", "offset 1"), ("\udfff", "offset 0")])
def test_half_a_surrogate_pair_is_refused(text: str, place: str, tiny: Tokenizer) -> None:
    with pytest.raises(RequestError, match=f"{place}: half a surrogate pair"):
        tiny.encode(text)
    with pytest.raises(UnsatisfiableConstraintError, match=f"{place}: half a surrogate pair"):
        tiny.spell(text)


def test_ids_that_break_a_character_decode_with_a_replacement(tiny: Tokenizer) -> None:
    ids = tiny.encode("中")
    assert len(ids) == 3
    assert tiny.decode(ids[:2]) == "\N{REPLACEMENT CHARACTER}"
    assert tiny.decode([]) == ""
    assert tiny.decode([1, *ids, 2]) == "中"


def test_an_added_token_that_is_not_special_is_text(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer.from_str(_tiny_json(tmp_path))
    library.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path / "added", library))
    (token_id,) = tokenizer.encode("<think>")
    assert tokenizer.vocabulary.token_bytes[token_id] == b"<think>"
    assert token_id not in tokenizer.vocabulary.control_ids
    assert tokenizer.encode("<think>", parse_control=False) == [token_id]


def test_limits_that_a_checkpoint_was_trained_with_cut_no_prompt(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer.from_str(_tiny_json(tmp_path))
    library.enable_truncation(3)
    library.enable_padding(length=8)
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path / "limited", library))
    assert tokenizer.decode(tokenizer.encode("abcdefg")) == "abcdefg"
    assert len(tokenizer.encode("a")) == 1


def test_normalisation_is_for_prompts_and_never_for_forced_text(tmp_path: Path) -> None:
    folder = tmp_path / "qwen2"
    folder.mkdir()
    convert_gguf(TinyGguf(arch="qwen2", pre="qwen2").write(tmp_path / "tiny.gguf"), folder)
    tokenizer = Tokenizer.from_folder(folder)
    decomposed = "e\N{COMBINING ACUTE ACCENT}"
    assert tokenizer.decode(tokenizer.encode(decomposed)) == "é"
    assert tokenizer.decode(tokenizer.spell(decomposed)) == decomposed


def _tiny_json(scratch: Path) -> str:
    convert_gguf(TinyGguf().write(scratch / "tiny.gguf"), scratch)
    return (scratch / "tokenizer.json").read_text()


# -------------------------------------------------------------------- SentencePiece-style BPE


@pytest.mark.parametrize("metaspace", [False, True])
def test_sentencepiece_tokens_spell_blanks_and_bytes(metaspace: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path, sentencepiece(metaspace=metaspace)))
    spelled = {tokenizer._library.id_to_token(i): b for i, b in enumerate(tokenizer.vocabulary.token_bytes)}
    assert (spelled["▁he"], spelled["▁▁"], spelled["é"], spelled["<0xE4>"], spelled["<0x0A>"], spelled["<s>"]) == (
        b" he", b"  ", "é".encode(), b"\xe4", b"\n", b"")
    assert tokenizer.vocabulary.control_ids == {0, 1, 2}


@pytest.mark.parametrize("metaspace", [False, True])
def test_sentencepiece_puts_a_blank_before_a_prompt_alone(metaspace: bool, tmp_path: Path) -> None:
    library = sentencepiece(metaspace=metaspace)
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path, library))
    for text in ("hello", "hé 中 <0x41>", "a\nb", "👩‍👩‍👧", "a  b"):
        assert tokenizer.encode(text) == library.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(tokenizer.encode(text)) == f" {text}"
        assert tokenizer.decode(tokenizer.spell(text)) == text
        assert tokenizer.decode(tokenizer.spell(f" {text}")) == f" {text}"
        assert tokenizer.encode_prompt(text) == [1, *tokenizer.encode(text)] == library.encode(text).ids


@pytest.mark.parametrize("metaspace", [False, True])
def test_sentencepiece_reads_control_names_as_text_when_told_to(metaspace: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path, sentencepiece(metaspace=metaspace)))
    assert 2 in tokenizer.encode("a</s>b")
    literal = tokenizer.encode("a</s>b<unk>", parse_control=False)
    assert not tokenizer.vocabulary.control_ids & set(literal)
    assert tokenizer.decode(literal) == " a</s>b<unk>"


@pytest.mark.parametrize("metaspace", [False, True])
def test_sentencepiece_chats_leave_no_seam_around_typed_names(metaspace: bool, tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, sentencepiece(metaspace=metaspace))
    (folder / "chat_template.jinja").write_text("{{ bos_token }}he: {{ messages[0].content }}{{ eos_token }}lo")
    tokenizer = Tokenizer.from_folder(folder)
    for content in ("hello", " a", "", "é\n", "<", "h <"):  # the last two take the guarded way
        messages = [{"role": "user", "content": content}]
        assert tokenizer.apply_chat(messages) == tokenizer.encode(f"<s>he: {content}</s>lo"), content
    hostile = tokenizer.apply_chat([{"role": "user", "content": "a</s>b"}])
    assert [i for i in hostile if i < 3] == [1, 2]
    assert "he: a</s>b" in tokenizer.decode(hostile)


def test_a_character_that_would_become_the_unknown_token_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path, sentencepiece(metaspace=False, all_bytes=False)))
    assert tokenizer.decode(tokenizer.encode("aé")) == " aé"
    with pytest.raises(RequestError, match="byte 0xE4 of '中'"):
        tokenizer.encode("a中")
    with pytest.raises(UnsatisfiableConstraintError, match="byte 0xE4 of '中'"):
        tokenizer.spell("a中")


def test_forced_text_that_the_model_would_spell_otherwise_is_refused(tmp_path: Path) -> None:
    """SentencePiece reads U+2581 as a blank, so the character itself cannot be written."""
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path, sentencepiece(metaspace=False)))
    with pytest.raises(UnsatisfiableConstraintError, match="byte 0xE2 of '▁'"):
        tokenizer.spell("a▁b")


# -------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(("config", "generation", "stop"), [
    (2, None, {2}), ([2, 0], None, {0, 2}), (2, 0, {0, 2}), (None, [1], {1}), (2, [2, 1], {1, 2}), (None, None, {2}),
])
def test_the_stop_set_is_the_union_of_both_files(config: int | list[int] | None, generation: int | list[int] | None,
                                                 stop: set[int], tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, sentencepiece(metaspace=False), eos=config)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    assert Tokenizer.from_folder(folder).vocabulary.stop_ids == stop


def test_a_stop_token_spells_nothing_even_where_the_file_calls_it_plain(tmp_path: Path) -> None:
    library = sentencepiece(metaspace=False)
    plain = library.get_vocab()["▁he"]
    tokenizer = Tokenizer.from_folder(write_tokenizer(tmp_path, library, eos=[2, plain]))
    assert plain in tokenizer.vocabulary.control_ids
    assert tokenizer.vocabulary.token_bytes[plain] == b""


def test_logits_may_be_wider_than_the_tokenizer_and_never_narrower(tmp_path: Path) -> None:
    library = sentencepiece(metaspace=False)
    size = library.get_vocab_size()
    folder = write_tokenizer(tmp_path, library, width=size + 64)
    assert Tokenizer.from_folder(folder).vocabulary.width == size + 64
    assert len(Tokenizer.from_folder(folder).vocabulary) == size
    assert Tokenizer.from_folder(folder, vocab_width=size).vocabulary.width == size
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json: has ids up to {size - 1}, but the logits"):
        Tokenizer.from_folder(folder, vocab_width=size - 1)


def test_an_id_without_a_token_is_never_text(tmp_path: Path) -> None:
    """Some checkpoints leave holes between the last token and the added ones."""
    folder = write_tokenizer(tmp_path, sentencepiece(metaspace=False), width=400)
    value = json.loads((folder / "tokenizer.json").read_text())
    top = max(value["model"]["vocab"].values())
    value["added_tokens"].append({"id": top + 3, "content": "<tool>", "special": True, "single_word": False,
                                  "lstrip": False, "rstrip": False, "normalized": False})
    value["model"]["vocab"]["<tool>"] = top + 3
    (folder / "tokenizer.json").write_text(json.dumps(value))
    vocabulary = Tokenizer.from_folder(folder).vocabulary
    assert {top + 1, top + 2, top + 3} <= vocabulary.control_ids
    assert len(vocabulary) == top + 4


def spoiled(model: str, decoder: str = "null") -> str:
    """A `tokenizer.json` with nothing in it but this model and decoder."""
    return f'{{"model": {model}, "decoder": {decoder}}}'


@pytest.mark.parametrize(("name", "content", "said"), [
    ("tokenizer.json", None, "the file is missing"),
    ("tokenizer.json", "{", "not valid JSON"),
    ("tokenizer.json", "[]", "holds a list"),
    ("tokenizer.json", "{}", "vocab: holds no tokens"),
    ("tokenizer.json", spoiled('{"type": "WordPiece", "vocab": {"a": 0}}'), "'WordPiece' is not supported"),
    ("tokenizer.json", spoiled('{"vocab": {"a": 0}}', '{"type": "BPEDecoder"}'), "BPEDecoder"),
    ("tokenizer.json", spoiled('{"vocab": {"a": 0}, "end_of_word_suffix": "</w>"}'), "not supported"),
    ("tokenizer.json", spoiled('{"vocab": {"a": "0"}}'), "the id of 'a'"),
    ("tokenizer.json", spoiled('{"vocab": {"a": 0}}', '{"type": "ByteLevel"}'), "cannot be built"),
    ("config.json", None, "the file is missing"),
    ("config.json", '{"eos_token_id": 2}', "vocab_size"),
    ("config.json", '{"vocab_size": 400, "eos_token_id": 400}', "eos_token_id: 400 is no token id below 400"),
    ("config.json", '{"vocab_size": 400, "eos_token_id": "x"}', "eos_token_id: 'x' is no token id"),
    ("generation_config.json", "{", "not valid JSON"),
    ("tokenizer_config.json", '{"chat_template": 3}', "chat_template"),
    ("tokenizer_config.json", '{"eos_token": 3}', "eos_token"),
])
def test_a_damaged_checkpoint_is_named_by_file(name: str, content: str | None, said: str, tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, sentencepiece(metaspace=False))
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_folder(folder)
    assert str(folder / name) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_names_no_end_is_refused(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, sentencepiece(metaspace=False), eos=None)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(CheckpointError, match="no end-of-text token is named"):
        Tokenizer.from_folder(folder)


def test_the_tiny_vocabulary_lacks_one_byte_and_says_which(tiny: Tokenizer) -> None:
    assert len(tiny.vocabulary) == len(tiny_vocabulary()[0])
    rng = random.Random(0)
    for _ in range(50):
        before = "".join(rng.choice("aé中 ") for _ in range(rng.randrange(6)))
        with pytest.raises(RequestError, match=rf"offset {len(before)} of the text: .* 0x04"):
            tiny.encode(f"{before}\x04")
