"""The tools that attack the project."""

import gzip
import random

from safetensors.torch import save
from torch import ones

from trust.mutate import mutated


def test_every_seed_makes_a_mutant():
    content = save({"x": ones(2)})
    for number in range(2000):
        assert isinstance(mutated("x.safetensors", content, random.Random(number))[0], bytes)


def test_two_gzip_streams_have_right_checksums():
    content = gzip.compress(b"a line\n")
    whole = [mutated("x.gz", content, random.Random(number)) for number in range(2000)]
    twice = [right for changed, right in whole if changed == content * 2]
    assert twice
    assert all(twice)
