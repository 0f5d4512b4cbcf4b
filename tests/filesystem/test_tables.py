"""pandas, polars, pyarrow, zarr, xarray and dask read and write encrypted tables by their own functions."""

import re
from pathlib import Path
from typing import Any

import pytest

from scbroker.filesystem import ContainerFileSystem

pytestmark = [pytest.mark.long, pytest.mark.parametrize("engine", ["sqlite"], indirect=True)]


@pytest.mark.filterwarnings(
    "ignore::zarr.errors.ZarrUserWarning"
)  # of xarray's consolidated metadata
def test_zarr_xarray_and_dask_read_and_write_arrays(kept_options: dict[str, Any]) -> None:
    import dask.array
    import numpy as np
    import xarray
    import zarr

    numbers = np.arange(10_000.0).reshape(100, 100)
    to: dict[str, Any] = {"storage_options": kept_options}
    made = zarr.create_array("scbroker://a", shape=(100, 100), chunks=(50, 50), dtype="f8", **to)
    made[:] = numbers
    assert np.array_equal(zarr.open_array("scbroker://a", mode="r", **to)[:], numbers)
    made.resize((20, 20))
    assert sorted(ContainerFileSystem(**kept_options).find("a")) == ["a/c/0/0", "a/zarr.json"]
    table = xarray.Dataset({"rain": (("x", "y"), numbers)}, coords={"x": range(100)})
    table.to_zarr("scbroker://x", mode="w", **to)
    xarray.testing.assert_identical(xarray.open_zarr("scbroker://x", **to).load(), table)
    arrays: Any = dask.array  # has no types
    arrays.to_zarr(arrays.from_array(numbers, chunks=25), "scbroker://d", **to)
    assert np.array_equal(arrays.from_zarr("scbroker://d", **to).compute(), numbers)


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "fsspec.md"
[LINES] = re.findall("```text\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def test_the_lines_of_the_guide_work_with_a_kept_session(
    kept_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask.dataframe
    import fsspec
    import pandas
    import polars
    import pyarrow.dataset
    import zarr

    names: dict[str, Any] = {
        "dask": dask, "fsspec": fsspec, "pandas": pandas, "polars": polars, "pyarrow": pyarrow,
        "zarr": zarr,
    }  # fmt: skip
    monkeypatch.setitem(fsspec.config.conf, "scbroker", kept_options)
    results = [eval(line, names) for line in LINES.splitlines() if line.partition(".")[0] in names]
    assert [len(each) for each in results[1:]] == [2] * (len(results) - 1)
