"""Sets by name: where files are looked for, and downloads from a server on this machine."""

import dataclasses
import gc
import hashlib
import http.server
import io
import socket
import sys
import tarfile
import threading

import pytest
import torch

import continua as ct
from continua.data import DATASETS, catalogue, digits, load
from data import layouts


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CONTINUA_DATA", str(folder))
    return folder


@pytest.fixture
def site(tmp_path):
    """A folder that is served, and its address."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def md5(path):
    return f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"


def serve(monkeypatch, name, remotes, archive=None):
    source = dataclasses.replace(DATASETS[name], files=remotes, archive=archive)
    monkeypatch.setitem(DATASETS, name, source)


def serve_mnist(monkeypatch, site, **wrong):
    folder, address = site
    layouts.mnist(folder)
    remotes = []
    for remote in DATASETS["mnist"].files:
        path = folder / f"{remote.name}.gz"
        right = {"url": address + path.name, "bytes": path.stat().st_size, "hash": md5(path)}
        remotes.append(dataclasses.replace(remote, **(right | wrong)))
    serve(monkeypatch, "mnist", tuple(remotes))


# -- names -------------------------------------------------------------------------------------


def test_the_names():
    assert list(DATASETS) == [
        "digits",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "ud-english-ewt",
        "ud-english-gum",
        "moons",
        "circles",
        "annuli",
        "spirals",
        "checkerboard",
        "moving-mnist",
        "moving-digits",
        "bair",
        "frames",
    ]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("minst", "no set 'minst'; did you mean 'mnist'"),
        ("CIFAR-10", "did you mean 'cifar10'"),
        ("fashion_mnist", "did you mean 'fashion-mnist'"),
        ("zzzzzz", "there are digits, mnist, "),
        (3, "no set 3"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, match):
    with pytest.raises(ct.ArgumentError, match=match):
        load(name)


@pytest.mark.parametrize("name", DATASETS)
def test_every_source_says_what_it_is(name):
    source = DATASETS[name]
    assert source.name == name
    assert source.what
    assert source.licence
    assert (source.kind == "files") == (source.download_bytes > 0)
    published = [source.archive] if source.archive else source.files
    for remote in published:
        assert remote.url.startswith("http")
        assert remote.bytes > 0
        assert remote.hash is None or remote.hash.startswith(("md5:", "sha256:"))


# -- digits ------------------------------------------------------------------------------------


def test_digits_have_a_validation_part_beside_the_known_test_part():
    data, split = load("digits", seed=3), digits(3)
    assert (len(data.train), len(data.validation), len(data.test)) == DATASETS["digits"].sizes
    assert data.train.inputs.dtype == torch.uint8
    assert torch.equal(data.test.inputs.float() / 16, split.test_images)
    assert torch.equal(data.test.targets, split.test_labels)
    keys = [
        {bytes(image.flatten().tolist()) for image in part.inputs}
        for part in (data.train, data.validation, data.test)
    ]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 1797
    x = data.prepared(data.train.inputs)
    assert abs(x.mean()) < 1e-5
    assert abs(x.std() - 1) < 1e-4


# -- folders -----------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        ct.FileError, match="nowhere does not exist; name a folder that holds mnist"
    ):
        load("mnist", folder=tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ct.FileError, match="file is not a folder"):
        load("mnist", folder=tmp_path / "file")


def test_files_that_are_missing_are_named(tmp_path):
    with pytest.raises(ct.FileError, match=r"does not hold train-images.* of mnist; .*\(12 MB\)"):
        load("mnist", folder=tmp_path)
    layouts.mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ct.FileError, match="mnist does not hold t10k-labels-idx1-ubyte of mnist"):
        load("mnist", folder=tmp_path)


def test_an_archive_that_is_not_unpacked_is_seen(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    with pytest.raises(ct.FileError, match=r"unpack .*cifar-10-binary.tar.gz there"):
        load("cifar10", folder=tmp_path)


def test_a_folder_that_is_named_is_only_read(tmp_path, monkeypatch, site):
    serve_mnist(monkeypatch, site)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ct.FileError, match="does not hold"):
        load("mnist", folder=empty)
    assert not list(empty.iterdir())


def test_the_variable_names_the_default_folder(cache):
    layouts.mnist(cache / "mnist")
    assert len(load("mnist", any_size=True, download=False).test) == 20


def test_without_the_variable_it_is_the_cache_of_the_user(monkeypatch, tmp_path):
    import pooch

    monkeypatch.delenv("CONTINUA_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    with pytest.raises(
        ct.FileError, match=r"continua does not hold train-images.*; allow the download"
    ):
        load("mnist", download=False)


def test_a_missing_pooch_is_explained(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.delenv("CONTINUA_DATA", raising=False)
    with pytest.raises(ImportError, match=r'pip install "continua-torch\[recipes\]"'):
        load("mnist")
    monkeypatch.setenv("CONTINUA_DATA", str(tmp_path))
    with pytest.raises(ImportError, match=r'pip install "continua-torch\[recipes\]"'):
        load("mnist")
    layouts.mnist(tmp_path)
    load("mnist", any_size=True)


def test_the_catalogue(tmp_path, cache):
    entries = {entry.name: entry for entry in catalogue()}
    assert list(entries) == list(DATASETS)
    assert entries["digits"].where == "embedded"
    assert entries["spirals"].where == "generated"
    assert {entries[n].where for n in ("mnist", "cifar10", "ud-english-gum")} == {"not here"}
    assert entries["cifar10"].download_bytes == 170_052_171
    assert entries["mnist"].sizes == (54_000, 6_000, 10_000)
    layouts.mnist(tmp_path / "mnist")
    layouts.treebank(tmp_path / "ud")
    entries = {entry.name: entry.where for entry in catalogue(tmp_path)}
    assert entries["mnist"] == str(tmp_path / "mnist")
    assert entries["ud-english-ewt"] == str(tmp_path / "ud")
    assert entries["ud-english-gum"] == entries["fashion-mnist"] == "not here"
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    assert {e.name: e.where for e in catalogue(str(tmp_path))}["mnist"] == "not here"


# -- downloads ---------------------------------------------------------------------------------


def test_a_download_is_checked_told_and_kept(monkeypatch, site, cache, capfd):
    serve_mnist(monkeypatch, site)
    told = []
    data = load("mnist", any_size=True, progress=lambda *step: told.append(step))
    assert len(data.test) == 20
    names = [f"{remote.name}.gz" for remote in DATASETS["mnist"].files]
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == sorted(names)
    for name, remote in zip(names, DATASETS["mnist"].files, strict=True):
        steps = [step for step in told if step[0] == name]
        assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
        assert steps[-1] == (name, remote.bytes, remote.bytes)
    assert capfd.readouterr() == ("", "")
    told.clear()
    load("mnist", any_size=True, progress=lambda *step: told.append(step))
    assert not told, "what is there is not downloaded again"


def test_only_what_is_missing_is_downloaded(monkeypatch, site, cache):
    serve_mnist(monkeypatch, site)
    load("mnist", any_size=True)
    (cache / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    told = set()
    load("mnist", any_size=True, progress=lambda name, done, total: told.add(name))
    assert told == {"train-labels-idx1-ubyte.gz"}


def test_a_wrong_hash_leaves_nothing(monkeypatch, site, cache):
    serve_mnist(monkeypatch, site, hash="md5:" + "0" * 32)
    with pytest.raises(ct.FileError, match="is not the official file, by its hash") as caught:
        load("mnist", any_size=True)
    assert site[1] in str(caught.value)
    assert "CONTINUA_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_file_that_the_server_has_not_is_named(monkeypatch, site, cache):
    serve_mnist(monkeypatch, site, url=site[1] + "gone.gz")
    with pytest.raises(ct.FileError, match=r"gone.gz could not be downloaded .*404") as caught:
        load("mnist")
    assert "put the files in a folder and name it" in str(caught.value)
    del caught
    gc.collect()  # a connection left open would warn, and a warning is an error
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_server_that_does_not_answer_is_named(monkeypatch, site, cache):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, never listening: a connection is refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x.gz"
        serve_mnist(monkeypatch, site, url=url)
        with pytest.raises(
            ct.FileError, match=rf"{url} .*cache/mnist \([Cc]onnection refused\)"
        ) as caught:
            load("mnist")
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, site, cache):
    serve_mnist(monkeypatch, site)
    cache.write_text("a file where the folder should be")
    with pytest.raises(ct.FileError, match=r"could not be downloaded to .*cache"):
        load("mnist")


def test_a_downloaded_file_that_was_damaged_later_can_be_deleted(monkeypatch, site, cache):
    serve_mnist(monkeypatch, site)
    load("mnist", any_size=True)
    path = cache / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ct.FileError, match=r"is truncated.*delete the file"):
        load("mnist", any_size=True)


def archive_of(folder, names, target):
    with tarfile.open(target, "w:gz") as tar:
        for name in names:
            tar.add(folder / name, f"cifar-10-batches-bin/{name}")
        readme = tarfile.TarInfo("../readme.html")
        tar.addfile(readme, io.BytesIO(b""))


@pytest.mark.parametrize("complete", [True, False])
def test_an_archive_is_unpacked_whole_or_not_at_all(monkeypatch, site, cache, tmp_path, complete):
    folder, address = site
    names = list(layouts.cifar10(tmp_path / "made"))
    target = folder / "cifar-10-binary.tar.gz"
    archive_of(tmp_path / "made", names if complete else names[:-1], target)
    source = DATASETS["cifar10"]
    archive = dataclasses.replace(
        source.archive, url=address + target.name, bytes=target.stat().st_size, hash=md5(target)
    )
    serve(monkeypatch, "cifar10", source.files, archive)
    if complete:
        assert len(load("cifar10", any_size=True).test) == 20
        assert {path.name for path in cache.iterdir()} == {"cifar-10-batches-bin"}
        assert {path.name for path in (cache / "cifar-10-batches-bin").iterdir()} == set(names)
    else:
        with pytest.raises(ct.FileError, match=r"does not hold test_batch.bin"):
            load("cifar10", any_size=True)
        assert not (cache / "cifar-10-batches-bin").exists()


def test_a_download_without_a_hash_is_counted(monkeypatch, site, cache):
    folder, address = site
    layouts.treebank(folder, "en_gum")
    source = DATASETS["ud-english-gum"]
    files = tuple(
        dataclasses.replace(file, url=address + file.name, hash=None) for file in source.files
    )
    serve(monkeypatch, "ud-english-gum", files)
    with pytest.raises(ct.FileError, match="train of ud-english-gum 10,224 and 177,410"):
        load("ud-english-gum")
    assert len(load("ud-english-gum", any_size=True).train) == 2
    assert {path.name for path in (cache / "ud").iterdir()} == {file.name for file in files}
