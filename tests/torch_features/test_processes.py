"""Several processes: spawned workers, statistics over processes, weights in shards."""

import socket

import pytest
import torch
import torch.multiprocessing as mp

from torch_features import ranks
from torch_features.device import DEVICE, KINDS, inputs, made

together = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available())
    or (DEVICE == "cuda" and torch.cuda.device_count() < 2),
    reason="needs torch.distributed, and on GPUs two of them",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What both ranks found."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(ranks.main, (port, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", map_location="cpu") for rank in range(2)]


@pytest.mark.slow
@together
def test_statistics_are_averaged(found):
    first, second = (each["statistics"] for each in found)
    for name, value in first["after"].items():
        one, other = first["before"][name], second["before"][name]
        assert torch.equal(value, second["after"][name])
        if value.is_floating_point():
            assert not torch.equal(one, other), name
            torch.testing.assert_close(value, (one + other) / 2)
        else:
            assert torch.equal(value, one)


@pytest.mark.slow
@together
def test_blocks_in_shards_train_as_in_one_piece(found):
    same = {(repr(kind), parts): "same" for kind in KINDS for parts in ranks.PARTS}
    assert [each["sharded"] for each in found] == [same, same]


@pytest.mark.slow
@together
def test_what_shards_cannot_do_is_said(found):
    for said in (each["said"] for each in found):
        assert said["child"].startswith("ModuleError: the weights of a field are sharded")
        assert said["refine"].startswith("ModuleError: the state of an optimizer of a sharded")


@pytest.mark.slow
@together
def test_models_in_shards_are_saved_refined_and_compressed(found):
    for each in found:
        assert {name for name, same in each["gathered"].items() if not same} == set()


@pytest.mark.slow
@together
def test_the_first_process_that_holds_a_part_saves(found):
    refused, saved = (each["apart"] for each in found)
    assert refused.startswith("ModuleError: 'weight' is spread over the processes [1], and process")
    assert saved == "True"


@pytest.mark.slow
def test_a_spawned_worker():
    block, x = made(KINDS[0]), inputs()
    with mp.get_context("spawn").Pool(1) as pool:
        assert torch.equal(pool.apply(ranks.solve, (block, x)), block(x).detach())
