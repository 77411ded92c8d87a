"""Universal Dependencies: words and their part-of-speech tags from CoNLL-U files."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from continua._errors import FileError, MissingPackageError
from continua._values import whole_number

from ._dataset import Dataset, Part
from ._files import content

PARTS = ("train", "dev", "test")
FORMS = ("<pad>", "<unknown>", "<root>")
TAGS = ("<pad>", "<unknown>")
LONGEST_FORM = 1000  # characters; the longest word of UD English EWT and GUM, an address, has 473

Sentence = list[tuple[str, str]]


def treebank(
    folder: str | Path,
    *,
    name: str = "treebank",
    max_length: int = 102,
    max_forms: int = 100_000,
) -> Dataset:
    """Any Universal Dependencies treebank, from a folder with its three files.

    The files are `*-ud-train.conllu`, `*-ud-dev.conllu` and `*-ud-test.conllu`, also with `.gz`.
    How words become numbers is said at `continua.data.load`.

    Args:
        folder: that holds the files of one treebank.
        name: to call it by.
        max_length: tokens per sentence, the root included; longer sentences are cut.
        max_forms: the size of the vocabulary, at most.
    """
    files = {}
    for part in PARTS:
        found = sorted(Path(folder).expanduser().glob(f"*-ud-{part}.conllu*"))
        if len(found) != 1:
            listed = ", ".join(path.name for path in found) or "none"
            raise FileError(
                f"{folder} must hold one file *-ud-{part}.conllu or .conllu.gz, not {listed}"
            )
        files[part] = found[0]
    return read_treebank(name, files, {}, max_length=max_length, max_forms=max_forms)


def read_treebank(
    name: str,
    files: Mapping[str, Path],
    counts: Mapping[str, tuple[int, int]],
    *,
    max_length: int,
    max_forms: int,
) -> Dataset:
    """A treebank from its three files.

    Args:
        name: to call it by.
        files: of `train`, `dev` and `test`.
        counts: the sentences and words that each must have, where they are known.
        max_length: tokens per sentence, the root included.
        max_forms: the size of the vocabulary, at most.
    """
    for option, value, least in (("max_length", max_length, 2), ("max_forms", max_forms, 4)):
        whole_number(option, value, least)
    sentences = {part: read_sentences(files[part]) for part in PARTS}
    for part, (expected_sentences, expected_words) in counts.items():
        found, words = len(sentences[part]), sum(map(len, sentences[part]))
        if (found, words) != (expected_sentences, expected_words):
            raise FileError(
                f"{files[part]} holds {found:,} sentences and {words:,} words, but {part} of "
                f"{name} {expected_sentences:,} and {expected_words:,}: it was cut, swapped or is "
                "of another release; any_size=True reads it all the same"
            )
    # The vocabulary sees the training part alone, the most frequent words first.
    forms = _ranked((form for s in sentences["train"] for form, _ in s), FORMS, max_forms)
    tags = _ranked((tag for s in sentences["train"] for _, tag in s if tag != "_"), TAGS)
    if len(tags) == len(TAGS):
        raise FileError(f"{files['train']} has no tag in the column XPOS, so there is no target")
    ids = _ids(forms, FORMS), _ids(tags, TAGS)
    parts = {part: _encoded(sentences[part], *ids, max_length) for part in PARTS}
    return Dataset(
        name=name,
        train=parts["train"],
        validation=parts["dev"],
        test=parts["test"],
        classes=len(tags),
        forms=forms,
        tags=tags,
    )


def read_sentences(path: Path) -> list[Sentence]:
    """The word and the language's own tag (FORM and XPOS) of every word of a CoNLL-U file.

    Multiword ranges (`3-4`) and empty nodes (`5.1`) are skipped: their words, if any, have lines
    of their own.
    """
    try:
        import conllu
        from conllu.exceptions import ParseException
        from conllu.parser import DEFAULT_FIELDS, parse_id_value
    except ImportError as error:
        raise MissingPackageError(
            "treebanks are read with conllu, which is not installed"
        ) from error
    try:
        text = content(path).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is damaged: byte {error.start:,} is not UTF-8") from None
    if not text.endswith("\n\n"):
        raise FileError(f"{path} is truncated: the blank line after its last sentence is missing")
    # Columns that are not needed stay as they are written, which saves half of the time.
    parsers = {field: lambda line, i: line[i] for field in DEFAULT_FIELDS}
    parsers["id"] = lambda line, i: parse_id_value(line[i])
    sentences: list[Sentence] = []
    parsed = iter(conllu.parse_incr(io.StringIO(text), DEFAULT_FIELDS, parsers))
    while True:
        where = f"{path}: sentence {len(sentences) + 1:,}"
        try:
            tokens = next(parsed)
        except StopIteration:
            break
        except ParseException as error:
            raise FileError(f"{where} is damaged: {str(error).rstrip('.')}") from None
        sentence: Sentence = []
        for token in tokens:
            if len(token) != len(DEFAULT_FIELDS):
                raise FileError(
                    f"{where} is damaged: a line has {len(token)} of {len(DEFAULT_FIELDS)} columns"
                )
            if isinstance(token["id"], tuple):
                continue
            if token["id"] != len(sentence) + 1:
                raise FileError(
                    f"{where} is damaged: word {len(sentence) + 1} is numbered {token['id']}"
                )
            if len(token["form"]) > LONGEST_FORM:
                raise FileError(
                    f"{where} is damaged: word {token['id']} has {len(token['form']):,} "
                    f"characters, more than {LONGEST_FORM:,}"
                )
            if not token["form"] or not token["xpos"]:
                raise FileError(f"{where} is damaged: word {token['id']} has an empty column")
            sentence.append((token["form"], token["xpos"]))
        if not sentence:
            raise FileError(f"{where} is empty: it has no words")
        sentences.append(sentence)
    if not sentences:
        raise FileError(f"{path} holds no sentences")
    return sentences


def _ranked(
    items: Iterable[str], specials: tuple[str, ...], most: int | None = None
) -> tuple[str, ...]:
    """The special ones, then all by falling frequency; equal frequencies keep their order."""
    room = None if most is None else most - len(specials)
    return (*specials, *(item for item, _ in Counter(items).most_common(room)))


def _ids(ranked: tuple[str, ...], specials: tuple[str, ...]) -> dict[str, int]:
    """The id of each; a word that is written like a special one has an id of its own."""
    return {item: i for i, item in enumerate(ranked) if i >= len(specials)}


def _encoded(
    sentences: list[Sentence], forms: Mapping[str, int], tags: Mapping[str, int], max_length: int
) -> Part:
    shape = (len(sentences), max_length)
    inputs = torch.zeros(shape, dtype=torch.int64)
    targets = torch.zeros(shape, dtype=torch.int64)
    unknown, root = FORMS.index("<unknown>"), FORMS.index("<root>")
    for i, sentence in enumerate(sentences):
        ids = [root, *(forms.get(form, unknown) for form, _ in sentence)][:max_length]
        # Nothing is to be predicted for the root, and where the treebank has no tag.
        wanted = [0, *(0 if tag == "_" else tags.get(tag, 1) for _, tag in sentence)][:max_length]
        inputs[i, : len(ids)] = torch.tensor(ids)
        targets[i, : len(wanted)] = torch.tensor(wanted)
    return Part(inputs, targets)
