"""Treebanks: words and tags as ids, and files that are not what they should be."""

import os
import sys

import pytest
import torch

import continua as ct
from continua.data import load, treebank
from data import layouts
from data.layouts import line, sentence

EWT = "ud-english-ewt"


def read(folder, **options):
    return load(EWT, folder=folder, any_size=True, **options)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize(
    "inside", [".", "ud", "UD_English-EWT", "ud-treebanks-v2.16/UD_English-EWT"]
)
def test_words_and_tags_become_ids(tmp_path, compress, inside):
    layouts.treebank(tmp_path / inside, compress=compress)
    data = read(tmp_path, max_length=10)
    assert data.forms[:3] == ("<pad>", "<unknown>", "<root>")
    assert data.tags[:2] == ("<pad>", "<unknown>")
    # "the", "cat" and "saw" come twice, the rest once, in the order in which it is met.
    assert data.forms[3:] == ("the", "cat", "saw", "a", "dog", "and", "ran")
    assert set(data.tags[2:]) == {"DT", "NN", "VBD", "CC"}
    assert data.classes == len(data.tags) == 6
    DT, NN, VBD = (data.tags.index(tag) for tag in ("DT", "NN", "VBD"))
    assert data.train.inputs.dtype == data.train.targets.dtype == torch.int64
    assert data.train.inputs[1].tolist() == [2, 3, 4, 5, 0, 0, 0, 0, 0, 0]
    assert data.train.targets[1].tolist() == [0, DT, NN, VBD, 0, 0, 0, 0, 0, 0]
    # A word that only the validation part has is unknown, its tag is not.
    assert data.validation.inputs[0, :3].tolist() == [2, 3, 1]
    assert data.validation.targets[0, :3].tolist() == [0, DT, NN]
    # A tag that only the test part has is a class that nothing trains.
    assert data.test.targets[0, :4].tolist() == [0, DT, NN, 1]
    assert 1 not in data.train.targets


def test_long_sentences_are_cut(tmp_path):
    data = read(layouts.treebank(tmp_path), max_length=3)
    assert data.train.inputs.tolist() == [[2, 3, 4], [2, 3, 4]]
    assert data.train.targets.shape == (2, 3)
    assert read(tmp_path).train.inputs.shape == (2, 102)


def test_the_vocabulary_can_be_limited(tmp_path):
    data = read(layouts.treebank(tmp_path), max_forms=5)
    assert data.forms == ("<pad>", "<unknown>", "<root>", "the", "cat")
    assert data.train.inputs[1, :4].tolist() == [2, 3, 4, 1]


def test_ranges_empty_nodes_and_missing_tags(tmp_path):
    text = (
        "# text = don't go\n"
        + line("1-2", "don't", "_")
        + line(1, "do", "VB")
        + line(2, "n't", "_")
        + line("2.1", "ghost", "NN")
        + line(3, "_", "NFP")
        + "\n"
    )
    data = read(layouts.treebank(tmp_path, train=text), max_length=5)
    assert data.forms[3:] == ("do", "n't", "_")
    assert data.train.inputs.tolist() == [[2, 3, 4, 5, 0]]
    assert data.train.targets.tolist() == [[0, 2, 0, 3, 0]]


def test_words_written_like_special_ones_are_words(tmp_path):
    train = sentence(["<root>", "<pad>"], ["NN", "NN"])
    data = read(layouts.treebank(tmp_path, train=train), max_length=4)
    assert data.train.inputs.tolist() == [[2, 3, 4, 0]]


def test_any_treebank_can_be_read(tmp_path):
    data = treebank(layouts.treebank(tmp_path, "de_hdt"), name="hdt", max_length=91)
    assert data.name == "hdt"
    assert data.train.inputs.shape == (2, 91)
    (tmp_path / "de_hdt-ud-dev.conllu").unlink()
    with pytest.raises(ct.FileError, match=r"one file \*-ud-dev.conllu or .conllu.gz, not none"):
        treebank(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is empty"),
        ("\n\n", "holds no sentences"),
        (sentence(["a"])[:-1], "truncated: the blank line after its last sentence is missing"),
        (sentence(["a"]) + "# text = x\n\n", "sentence 2 is empty: it has no words"),
        (line("1-2", "x", "_") + "\n", "sentence 1 is empty"),
        ("1\ta\t_\n\n", "sentence 1 is damaged: a line has 3 of 10 columns"),
        (line(1, "a", "DT") + line(3, "b", "NN") + "\n", "sentence 1 .* word 2 is numbered 3"),
        (line("x", "a", "DT") + "\n", "sentence 1 is damaged: Failed parsing field 'id'"),
        ("hello\n\n", "sentence 1 is damaged: Invalid line format"),
        (line(1, "a" * 1001, "NN") + "\n", "word 1 has 1,001 characters, more than 1,000"),
        (line(1, "a", "") + "\n", "word 1 has an empty column"),
        (sentence(["a"], ["_"]), "has no tag in the column XPOS"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, text, match):
    layouts.treebank(tmp_path, train=text)
    with pytest.raises(ct.FileError, match=f"en_ewt-ud-train.conllu.*{match}") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_named(tmp_path):
    layouts.treebank(tmp_path)
    (tmp_path / "en_ewt-ud-dev.conllu").write_bytes(b"# \xff\n\n")
    with pytest.raises(ct.FileError, match=r"en_ewt-ud-dev.conllu is damaged: byte 2 is not UTF-8"):
        read(tmp_path)


def test_other_counts_than_the_official_ones_are_named(tmp_path):
    layouts.treebank(tmp_path)
    match = "holds 2 sentences and 10 words, but train of ud-english-ewt 12,544 and 204,577"
    with pytest.raises(ct.FileError, match=match):
        load(EWT, folder=tmp_path)


def test_the_official_validation_part_is_used(tmp_path):
    with pytest.raises(ct.ArgumentError, match="validation part of its own"):
        read(layouts.treebank(tmp_path), validation=0.1)


@pytest.mark.parametrize("option", [{"max_length": 1}, {"max_length": 2.5}, {"max_forms": 3}])
def test_options_that_cannot_work_are_refused(tmp_path, option):
    with pytest.raises(ct.ArgumentError, match=f"{next(iter(option))} is a whole number"):
        read(layouts.treebank(tmp_path), **option)


def test_a_missing_conllu_is_explained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "conllu", None)
    with pytest.raises(ImportError, match=r'pip install "continua-torch\[recipes\]"'):
        read(layouts.treebank(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ud-english-ewt", "ud-english-gum"])
def test_the_real_treebank(name):
    folder = os.environ.get("CONTINUA_DATA")
    here = {e.name: e.where for e in ct.data.catalogue(folder)} if folder else {}
    if here.get(name, "not here") == "not here":
        pytest.skip(f"{name} is not in the folder that CONTINUA_DATA names")
    data = load(name, folder=folder)
    assert (len(data.train), len(data.validation), len(data.test)) == ct.data.DATASETS[name].sizes
    assert (data.train.inputs[:, 0] == 2).all()
    assert (data.train.targets[:, 0] == 0).all()
    assert data.train.inputs.max() == len(data.forms) - 1
    assert data.train.targets.max() == len(data.tags) - 1
    # Every word has a tag: what is to be predicted is every word but the root.
    assert torch.equal(data.test.targets != 0, (data.test.inputs != 0) & (data.test.inputs != 2))
    known = (data.test.inputs > 2).sum() / (data.test.targets != 0).sum()
    assert 0.85 < known < 0.98
