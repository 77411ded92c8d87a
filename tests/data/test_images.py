"""MNIST and CIFAR: the official layouts, and files that are not what they should be."""

import os
import shutil
import zlib

import numpy as np
import pytest
import torch

import continua as ct
from continua.data import _cifar, _idx, load
from data import layouts

TRAIN, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def real(name):
    folder = os.environ.get("CONTINUA_DATA")
    if not folder or next(e for e in ct.data.catalogue(folder) if e.name == name).where == (
        "not here"
    ):
        pytest.skip(f"{name} is not in the folder that CONTINUA_DATA names")
    return folder


# -- what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("style", [{}, {"compress": False}, {"compress": False, "dot": True}])
def test_idx_files_are_read_whatever_their_style(tmp_path, name, style):
    arrays = layouts.mnist(tmp_path / name, **style)
    data = load(name, folder=tmp_path, any_size=True, validation=0)
    assert data.name == name
    assert data.classes == 10
    assert torch.equal(data.train.inputs[:, 0], torch.from_numpy(arrays[TRAIN]))
    assert torch.equal(data.train.targets, torch.from_numpy(arrays[LABELS]).long())
    assert data.test.inputs.shape == (20, 1, 28, 28)
    assert len(data.validation) == 0


def test_cifar10_files_are_read(tmp_path):
    files = layouts.cifar10(tmp_path / "cifar-10-batches-bin")
    data = load("cifar10", folder=tmp_path, any_size=True, validation=0)
    train = np.concatenate([files[f"data_batch_{k}.bin"] for k in range(1, 6)])
    assert data.train.inputs.shape == (100, 3, 32, 32)
    assert data.train.inputs.dtype == torch.uint8
    assert torch.equal(data.train.inputs.flatten(1), torch.from_numpy(train[:, 1:]))
    assert torch.equal(data.train.targets, torch.from_numpy(train[:, 0]).long())
    test = files["test_batch.bin"]
    assert torch.equal(data.test.inputs.flatten(1), torch.from_numpy(test[:, 1:]))


def test_cifar100_has_the_fine_labels(tmp_path):
    files = layouts.cifar100(tmp_path)
    data = load("cifar100", folder=tmp_path, any_size=True)
    assert data.classes == 100
    assert torch.equal(data.test.targets, torch.from_numpy(files["test.bin"][:, 1]).long())
    assert torch.equal(data.test.inputs.flatten(1), torch.from_numpy(files["test.bin"][:, 2:]))


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("mnist", "."),
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("cifar10", "."),
        ("cifar10", "cifar10"),
        ("cifar10", "cifar10/cifar-10-batches-bin"),
    ],
)
def test_the_folder_may_be_the_root_or_the_set_itself(tmp_path, name, inside):
    write = layouts.mnist if name == "mnist" else layouts.cifar10
    write(tmp_path / inside)
    assert len(load(name, folder=str(tmp_path), any_size=True).test) == 20


def test_the_validation_part_is_cut_from_the_training_part(tmp_path):
    layouts.mnist(tmp_path)
    a = load("mnist", folder=tmp_path, any_size=True, validation=0.25, seed=1)
    b = load("mnist", folder=tmp_path, any_size=True, validation=0.25, seed=1)
    c = load("mnist", folder=tmp_path, any_size=True, validation=0.25, seed=2)
    assert (len(a.train), len(a.validation), len(a.test)) == (30, 10, 20)
    assert torch.bincount(a.validation.targets).tolist() == [1] * 10
    assert torch.equal(a.validation.inputs, b.validation.inputs)
    assert not torch.equal(a.validation.inputs, c.validation.inputs)
    assert torch.equal(a.test.inputs, c.test.inputs)
    keys = [{bytes(i.flatten().tolist()) for i in part.inputs} for part in (a.train, a.validation)]
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 40


# -- IDX files that are wrong ------------------------------------------------------------------


def expect(folder, match, name="mnist", **options):
    with pytest.raises(ct.FileError, match=match) as caught:
        load(name, folder=folder, **({"any_size": True} | options))
    assert "\n" not in str(caught.value)


def plain(folder):
    layouts.mnist(folder, compress=False)
    return folder / TRAIN, folder / LABELS


@pytest.mark.parametrize(
    ("keep", "match"),
    [
        (0, "is empty"),
        (2, "no IDX file"),
        (9, "ends after 9 bytes, in its header"),
        (16, r"truncated: its header says images \[40, 28, 28\], which is 31,376 bytes, but .* 16"),
        (31_375, "but it has 31,375"),
    ],
)
def test_a_truncated_file_is_named(tmp_path, keep, match):
    images, _ = plain(tmp_path)
    images.write_bytes(images.read_bytes()[:keep])
    expect(tmp_path, f"{TRAIN} .*{match}")


def test_too_many_bytes_are_named(tmp_path):
    images, _ = plain(tmp_path)
    images.write_bytes(images.read_bytes() + b"x")
    expect(tmp_path, f"{TRAIN} is damaged: .* but it has 31,377")


def test_a_truncated_or_corrupted_archive_is_named(tmp_path):
    layouts.mnist(tmp_path)
    path = tmp_path / f"{TRAIN}.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-2000])
    expect(tmp_path, f"{TRAIN}.gz is truncated")
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    expect(tmp_path, f"{TRAIN}.gz is damaged: it cannot be decompressed")


def test_a_file_of_another_kind_is_named(tmp_path):
    images, _ = plain(tmp_path)
    images.write_bytes(b"<!doctype html>")
    expect(tmp_path, f"{TRAIN} is no IDX file .* starts with 0x3c21646f")


@pytest.mark.parametrize("named_gz", [True, False])
def test_the_name_does_not_decide_whether_a_file_is_compressed(tmp_path, named_gz):
    layouts.mnist(tmp_path, compress=not named_gz)
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name(path.name.removesuffix(".gz") + ".gz" * named_gz))
    assert len(load("mnist", folder=tmp_path, any_size=True).test) == 20


def test_images_and_labels_swapped_are_named(tmp_path):
    images, labels = plain(tmp_path)
    images.rename(tmp_path / "x")
    labels.rename(images)
    (tmp_path / "x").rename(labels)
    expect(tmp_path, f"{TRAIN} holds labels, not images: two files were swapped")


def test_other_counts_are_named(tmp_path):
    plain(tmp_path)
    expect(tmp_path, f"{TRAIN} holds 40 images, but train of mnist has 60,000", any_size=False)
    shutil.copy(tmp_path / "t10k-labels-idx1-ubyte", tmp_path / LABELS)
    expect(tmp_path, "holds 40 images, but .* 20 labels: they do not belong together")


def test_images_of_another_size_are_named(tmp_path):
    layouts.mnist(tmp_path, side=32)
    expect(tmp_path, "holds images of 32x32 pixels; those of mnist are 28x28")


def test_a_label_out_of_range_is_named(tmp_path):
    _, labels = plain(tmp_path)
    raw = bytearray(labels.read_bytes())
    raw[8 + 17] = 10
    labels.write_bytes(raw)
    expect(tmp_path, f"{LABELS} is damaged: label 17 is 10, but labels go from 0 to 9")


def test_a_file_without_images_is_named(tmp_path):
    layouts.mnist(tmp_path, train=0)
    expect(tmp_path, "holds no images")


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, monkeypatch):
    arrays = layouts.mnist(tmp_path)
    monkeypatch.setitem(_idx.MNIST_LABELS, zlib.crc32(arrays[LABELS].tobytes()), "train")
    load("mnist", folder=tmp_path, any_size=True)
    expect(tmp_path, "holds the train labels of MNIST, not of fashion-mnist", "fashion-mnist")


# -- CIFAR files that are wrong ----------------------------------------------------------------


def test_cifar_files_that_are_wrong_are_named(tmp_path):
    files = layouts.cifar10(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    whole = path.read_bytes()

    path.write_bytes(whole[:-1])
    expect(tmp_path, "data_batch_3.bin is truncated: .* 19 images .* and 3,072 bytes", "cifar10")
    path.write_bytes(b"")
    expect(tmp_path, "data_batch_3.bin is truncated", "cifar10")
    path.write_bytes(whole)
    match = "data_batch_1.bin holds 20 images, but the official file 10,000"
    expect(tmp_path, match, "cifar10", any_size=False)

    records = files["data_batch_3.bin"].copy()
    records[7, 0] = 200
    path.write_bytes(records.tobytes())
    expect(tmp_path, "data_batch_3.bin is damaged: label 7 is 200", "cifar10")


def test_a_training_batch_in_the_place_of_the_test_batch_is_named(tmp_path, monkeypatch):
    files = layouts.cifar10(tmp_path)
    records = files["data_batch_2.bin"]
    records[:, 0] = 3
    (tmp_path / "data_batch_2.bin").write_bytes(records.tobytes())
    known = {zlib.crc32(records[:, 0].tobytes()): "data_batch_2.bin"}
    monkeypatch.setattr(_cifar, "CIFAR10_LABELS", known)
    load("cifar10", folder=tmp_path, any_size=True)
    shutil.copy(tmp_path / "data_batch_2.bin", tmp_path / "test_batch.bin")
    expect(tmp_path, "test_batch.bin holds what belongs in data_batch_2.bin", "cifar10")


def test_the_parts_of_cifar100_swapped_are_named(tmp_path):
    layouts.cifar100(tmp_path, 10_000, 100)
    expect(
        tmp_path,
        "train.bin holds 10,000 images, but the official file 50,000",
        "cifar100",
        any_size=False,
    )


# -- the real ones -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_the_real_set(name):
    data = load(name, folder=real(name))
    assert (len(data.train), len(data.validation), len(data.test)) == ct.data.DATASETS[name].sizes
    per_class = len(data.test) // data.classes
    found = torch.bincount(data.test.targets, minlength=data.classes)
    assert ((found - per_class).abs() <= 0.2 * per_class).all()
    some = data.prepared(data.train.inputs[::9])
    assert some.dtype == torch.float32
    assert (some.mean((0, 2, 3)).abs() < 0.1).all()
    assert ((some.std((0, 2, 3)) - 1).abs() < 0.4).all()
