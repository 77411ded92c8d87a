"""Files that say they hold a converted model of `transformers`, and name code of their own."""

import json
import sys

import pytest
import torch

import continua as ct
from transform.hosts import made, outputs

CODE = "import pathlib; pathlib.Path({!r}).touch()\nclass Evil: pass\n"
REMOTE = {"AutoModel": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Evil"}


@pytest.fixture
def saved(tmp_path):
    """A folder with a converted model, code beside it, and a mark that is there if the code ran."""
    folder, marker = tmp_path / "model", tmp_path / "ran"
    model, given = made("BERT")
    ct.save(ct.convert(model), folder)
    for name in ("modeling_evil.py", "model_code.py", "configuration_evil.py", "__init__.py"):
        (folder / name).write_text(CODE.format(str(marker)))
    yield folder, type(model), given, outputs(model, given)
    assert not marker.exists()
    assert not any("evil" in name for name in sys.modules)


def changed(folder, **entries) -> None:
    """Change the config of transformers in a file, at the top and below."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["factory"]["arguments"]["config"].update(entries)
    path.write_text(json.dumps(config))


HOSTILE = {
    "code on the hub": {"auto_map": REMOTE, "trust_remote_code": True},
    "code in a part": {"text_config": {"auto_map": REMOTE}, "trust_remote_code": True},
    "attention from a repository": {"_attn_implementation": "evil/kernel"},
    "attention of a part": {"attn_implementation": {"": "evil/kernel"}},
    "experts from a repository": {"_experts_implementation": "evil/kernel"},
    "kernels": {"kernel_config": {"kernel_mapping": {"RMSNorm": "evil/kernel:RMSNorm"}}},
    "another class": {"architectures": ["modeling_evil.Evil"], "model_type": "evil"},
    "a folder": {"_name_or_path": "evil/evil", "name_or_path": "evil/evil"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_entries_that_choose_code_are_ignored(name, saved, monkeypatch):
    folder, kind, given, expected = saved
    changed(folder, **HOSTILE[name])
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    model = ct.load(folder, factory=kind)
    assert type(model) is kind
    for one, other in zip(outputs(model, given), expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "name",
    [
        "modeling_evil:Evil",
        "transformers_modules.evil:Evil",
        "transformers:BertModel",
        "transformers.models.bert.modeling_bert:BertModel",
    ],
)
def test_a_class_is_not_found_by_its_name_alone(name, saved, monkeypatch):
    folder, kind, _, _ = saved
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["factory"]["name"] = name
    path.write_text(json.dumps(config))
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ct.FileError, match="not on the list"):
        ct.load(folder)
    assert type(ct.load(folder, factory=kind)) is kind  # the user decides


def test_transformers_may_be_trusted(saved):
    folder, kind, given, expected = saved
    model = ct.load(folder, trust=["transformers"])
    assert type(model) is kind
    for one, other in zip(outputs(model, given), expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "name",
    [
        "transformers.dynamic_module_utils:get_class_from_dynamic_module",
        "transformers.models.auto.modeling_auto:AutoModel",
        "transformers.models.auto.auto_factory:getattribute_from_module",
        "transformers.pipelines:pipeline",
        "transformers.utils.import_utils:os.system",
        "transformers_modules.evil:Evil",
        "transformers:PreTrainedConfig",
    ],
)
def test_a_trusted_library_makes_models_and_nothing_else(name, saved, monkeypatch):
    folder, *_ = saved
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["factory"]["name"] = name
    path.write_text(json.dumps(config))
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ct.FileError):
        ct.load(folder, trust=["transformers"])


RUNS = [
    {"encoder.layer": [[0, 10**18, 1]]},
    {"encoder.layer": [[-2, 2, 1]]},
    {"encoder.layer": [[2, 0, 1]]},
    {"encoder.layer": [[0, 2, 0]]},
    {"encoder.layer": [[0, 3, 2]]},
    {"encoder.layer": [[0, 2, -1]]},
    {"encoder.layer": [[0, 2, True]]},
    {"encoder.layer": [[0.0, 2.0, 1.0]]},
    {"encoder.layer": [[0, 2]]},
    {"encoder.layer": [[0, 2, 1], [1, 3, 1]]},
    {"encoder.layer": [["0", "2", "1"]]},
    {"encoder.layer": 3},
    {"encoder": [[0, 1, 1]]},
    {"": [[0, 3, 1]]},
    {"no_such_list": [[0, 2, 1]]},
    [[0, 2, 1]],
    {},
]


@pytest.mark.parametrize("runs", RUNS, ids=repr)
def test_runs_that_cannot_be(runs, saved):
    folder, kind, _, _ = saved
    path = folder / "config.json"
    config = json.loads(path.read_text())
    assert list(config["factory"]["arguments"]["runs"]) == ["encoder.layer"]
    config["factory"]["arguments"]["runs"] = runs
    path.write_text(json.dumps(config))
    with pytest.raises(ct.FileError, match=r"no run of like layers|fails|describes the blocks"):
        ct.load(folder, factory=kind)


@pytest.mark.parametrize("name", ["vocab_size", "num_hidden_layers", "intermediate_size"])
def test_sizes_beyond_the_weights_are_refused_before_memory_is_allocated(name, saved):
    folder, kind, _, _ = saved
    changed(folder, **{name: 10**9})
    with pytest.raises(ct.FileError, match="far more than"):
        ct.load(folder, factory=kind)
