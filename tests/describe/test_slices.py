"""Shapes of slices and their wraparound, against the rules of part 2 of the scaling book."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog import network
from meshwright.describe.slices import rings_of_slice, shape_for, slice_network
from refusals import refusal

V5P, V5E = network("book-tpu-v5p"), network("book-tpu-v5e")


@pytest.mark.parametrize(
    ("net", "shape", "wraps"),
    [
        (V5P, (4, 4, 4), (True,) * 3),
        (V5P, (4, 4, 8), (True,) * 3),
        (V5P, (16, 20, 28), (True,) * 3),
        (V5P, (2, 2, 4), (False,) * 3),  # not made of whole cubes
        (V5P, (4, 4, 6), (False,) * 3),
        (V5E, (16, 16), (True, True)),
        (V5E, (8, 16), (False, True)),
        (V5E, (4, 4), (False, False)),
    ],
)
def test_an_axis_wraps_only_in_the_right_slices(net, shape, wraps):
    assert rings_of_slice(net, shape) == wraps
    dims = slice_network(net, shape).dims
    for dim, whole, wrap in zip(dims, net.dims, wraps, strict=False):
        if wrap is not None and dim.name != "dcn":
            assert dim.kind == ("ring" if wrap else "line")
            assert dim.bandwidth == whole.bandwidth / (1 if wrap else 2)
    assert dims[-1] == net.dims[-1]


@pytest.mark.parametrize(
    ("net", "chips", "shape", "pods"),
    [
        (V5P, 64, (4, 4, 4), 1),
        (V5P, 192, (4, 4, 12), 1),
        (V5P, 4096, (16, 16, 16), 1),
        (V5P, 8960, (16, 20, 28), 1),
        (V5P, 8192, (16, 16, 32), 1),
        (V5P, 89600, (16, 20, 28), 10),
        (V5P, 16, (2, 2, 4), 1),
        (V5E, 256, (16, 16), 1),
        (V5E, 64, (8, 8), 1),
        (V5E, 128, (8, 16), 1),
        (V5E, 1024, (16, 16), 4),
        (V5P, 1, (1, 1, 1), 1),
        # alone: nothing joins it to others
        (replace(V5E, dims=V5E.dims[:2]), 64, (8, 8), 1),
    ],
)
def test_shapes_for_numbers_of_chips(net, chips, shape, pods):
    assert shape_for(net, chips) == (shape, pods)


def test_what_does_not_fit_is_said():
    with refusal("does not fit"):
        slice_network(V5E, (32, 8))
    with refusal("2 sides"):
        slice_network(V5E, (4, 4, 4))
    with refusal("at least 1"):
        slice_network(V5E, (0, 4))
    with refusal("make no box"):
        shape_for(V5E, 257)
