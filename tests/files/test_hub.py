"""Models on a hub, which is a folder or a server on this machine."""

import importlib
import json
import sys
from functools import partial

import pytest
import torch

import continua as ct
from continua.models import continuous_classifier
from files.hub import running
from nets import Net

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra `hub`")
constants = importlib.import_module("huggingface_hub.constants")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    with running() as found:
        yield found


@pytest.fixture
def elastic():
    torch.manual_seed(0)
    model = ct.build(continuous_classifier, basis=ct.PiecewiseConstant(4), solver=ct.Euler(steps=4))
    return ct.Elastic(model.eval(), sizes=[4, 2, 1])


def assert_same(model, other, x):
    assert torch.equal(model(x), other(x))


def test_all_sizes_are_one_repository(hub, elastic, tmp_path):
    x = torch.randn(5, 2)
    front = ct.sweep(elastic, lambda model: 100 * float(model(x).mean().sigmoid()), x=x)
    (tmp_path / "a figure.png").write_bytes(b"an image")
    url = ct.push_to_hub(
        elastic,
        "me/my-net",
        front=front,
        measure="accuracy, %",
        figure=tmp_path / "a figure.png",
        task="tabular-classification",
        base_model="me/other",
        license="apache-2.0",
        token="hf_secret",
        endpoint=hub.url,
    )
    assert url == f"{hub.url}/me/my-net"
    assert hub.tokens == {"Bearer hf_secret"}
    files = hub.repos["me/my-net"]
    assert files.keys() == {"README.md", "config.json", "figure.png", "model.safetensors"}
    assert sum("/commit/" in path for path in hub.requests) == 1

    for size in (None, 4, 2, 1):
        found = ct.from_pretrained("me/my-net", size=size, endpoint=hub.url)
        assert not found.training
        assert_same(found, elastic if size is None else elastic.at(size), x)
    with pytest.raises(ct.ArgumentError, match="no size 3"):
        ct.from_pretrained("me/my-net", size=3, endpoint=hub.url)
    # Only what is needed is downloaded, and only once.
    got = [path for path in hub.requests if "/resolve/" in path]
    assert {path.rpartition("/")[2] for path in got} == {"config.json", "model.safetensors"}

    text = files["README.md"].decode()
    card = huggingface_hub.ModelCard(text)
    assert card.data.license == "apache-2.0"
    assert (card.data.base_model, card.data.library_name) == ("me/other", "continua")
    assert card.data.pipeline_tag == "tabular-classification"
    assert "| size | accuracy, % |" in text
    assert "| ms |" in text
    assert "(figure.png)" in text
    assert all(f"| {size} |" in text for size in (4, 2, 1))
    assert "The repository holds no code" in text


def test_the_lines_of_the_card_load_the_model(hub, elastic, monkeypatch):
    ct.push_to_hub(elastic, "me/my-net", endpoint=hub.url, token="hf_secret")
    text = hub.repos["me/my-net"]["README.md"].decode()
    code = text.partition("```python\n")[2].partition("```")[0]
    monkeypatch.setattr(ct, "from_pretrained", partial(ct.from_pretrained, endpoint=hub.url))
    names: dict = {}
    exec(code, names)
    x = torch.randn(3, 2)
    assert_same(names["model"], elastic.at(1), x)
    assert "- Licence: not stated" in text


def test_a_model_of_ones_own_is_handed_over(hub):
    model = ct.build(Net, width=5).eval()
    ct.push_to_hub(model, "me/own", endpoint=hub.url, token="hf_secret")
    assert "from nets import Net" in hub.repos["me/own"]["README.md"].decode()
    with pytest.raises(ct.FileError, match="not on the list"):
        ct.from_pretrained("me/own", endpoint=hub.url)
    x = torch.randn(2, 3)
    assert_same(ct.from_pretrained("me/own", factory=Net, endpoint=hub.url), model, x)
    assert_same(ct.from_pretrained("me/own", trust=["nets"], endpoint=hub.url), model, x)
    with pytest.raises(ct.ArgumentError, match="one size"):
        ct.from_pretrained("me/own", size=2, factory=Net, endpoint=hub.url)


def test_a_converted_model_of_transformers(hub):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=24,
        num_hidden_layers=4,
        vocab_size=32,
    )
    model = ct.convert(transformers.BertModel(config).eval())
    half = ct.compress(model, ct.PiecewiseConstant(2), steps=2)
    ct.push_to_hub(half, "me/half", endpoint=hub.url, token="hf_secret")
    text = hub.repos["me/half"]["README.md"].decode()
    assert "from transformers import BertModel" in text
    assert "continua-torch[hub,transformers]" in text
    again = ct.from_pretrained("me/half", factory=transformers.BertModel, endpoint=hub.url)
    ids = torch.arange(1, 9)[None]
    assert torch.equal(again(ids).last_hidden_state, half(ids).last_hidden_state)
    ct.push_to_hub(ct.Elastic(model, [4, 2]), "me/all", endpoint=hub.url, token="hf_secret")
    again = ct.from_pretrained("me/all", size=2, trust=["transformers"], endpoint=hub.url)
    assert torch.equal(ct.revert(again)(ids).last_hidden_state, half(ids).last_hidden_state)


def test_code_in_a_repository_is_neither_downloaded_nor_run(hub, elastic):
    ct.push_to_hub(elastic, "me/my-net", endpoint=hub.url, token="hf_secret")
    files = hub.repos["me/my-net"]
    files["evil.py"] = b"raise SystemExit"
    config = json.loads(files["config.json"])
    config["factory"] = {"name": "evil:make", "arguments": {}}
    files["config.json"] = json.dumps(config).encode()
    with pytest.raises(ct.FileError, match="not on the list"):
        ct.from_pretrained("me/my-net", endpoint=hub.url)
    assert not any(path.endswith("evil.py") for path in hub.requests)


def test_a_folder_needs_no_hub(elastic, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    ct.save(elastic, tmp_path / "saved")
    x = torch.randn(3, 2)
    assert_same(ct.from_pretrained(tmp_path / "saved", size=2), elastic.at(2), x)
    for call in (
        lambda: ct.from_pretrained("me/my-net"),
        lambda: ct.push_to_hub(elastic, "me/my-net"),
    ):
        with pytest.raises(ImportError, match=r'pip install "continua-torch\[hub\]"'):
            call()


@pytest.mark.parametrize("name", ["no/such/folder", "../up", "a b", "", "/nowhere"])
def test_names_that_are_no_repository(name, elastic, hub):
    with pytest.raises(ct.ArgumentError, match="me/my-net"):
        ct.from_pretrained(name, endpoint=hub.url)
    with pytest.raises(ct.ArgumentError, match="me/my-net"):
        ct.push_to_hub(elastic, name, endpoint=hub.url)
    assert not hub.requests


def test_what_the_hub_refuses_is_one_sentence(hub, elastic, tmp_path):
    with pytest.raises(ct.FileError, match="me/none is no folder, and cannot be downloaded") as one:
        ct.from_pretrained("me/none", endpoint=hub.url)
    with pytest.raises(ct.FileError, match="me/net cannot be uploaded") as other:
        ct.push_to_hub(elastic, "me/net", license="no-such", endpoint=hub.url, token="hf_secret")
    assert all("\n" not in str(caught.value) for caught in (one, other))
    assert not hub.repos["me/net"]
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ct.ArgumentError, match=r"notes\.txt"):
        ct.push_to_hub(elastic, "me/net", figure=tmp_path / "notes.txt", endpoint=hub.url)
    with pytest.raises(ct.ArgumentError, match="how to make"):
        ct.push_to_hub(torch.nn.Linear(2, 2), "me/net", endpoint=hub.url)


def test_a_repository_of_another_kind(hub):
    hub.repos["me/bert"] = {"config.json": b'{"model_type": "bert"}', "pytorch_model.bin": b""}
    with pytest.raises(ct.FileError, match="not the config of a continua model"):
        ct.from_pretrained("me/bert", endpoint=hub.url)
    hub.repos["me/empty"] = {"README.md": b""}
    with pytest.raises(ct.FileError, match="does not exist"):
        ct.from_pretrained("me/empty", endpoint=hub.url)
