"""pandas, polars, pyarrow, zarr, xarray and dask read and write encrypted tables by their own functions."""

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scbroker import ServerProvider
from scbroker.filesystem import ContainerFileSystem

pytestmark = [pytest.mark.long, pytest.mark.parametrize("engine", ["sqlite"], indirect=True)]


@pytest.fixture
def options(alice: ServerProvider) -> dict[str, Any]:
    return {"provider": alice}


def test_pandas_reads_and_writes_parquet_and_csv(
    options: dict[str, Any], files: ContainerFileSystem
) -> None:
    import pandas as pd

    table = pd.DataFrame({"day": range(300_000), "rain": [0.5] * 300_000})
    url = "scbroker://reports/2026.parquet"
    table.to_parquet(url, storage_options=options)
    assert files.info("reports/2026.parquet")["version"] == 1
    pd.testing.assert_frame_equal(pd.read_parquet(url, storage_options=options), table)
    column = pd.read_parquet(url, columns=["day"], storage_options=options)
    pd.testing.assert_frame_equal(column, table[["day"]])
    table.to_csv("scbroker://reports/2026.csv.gz", index=False, storage_options=options)
    found = pd.read_csv("scbroker://reports/2026.csv.gz", storage_options=options)
    pd.testing.assert_frame_equal(found, table)


def test_pyarrow_reads_and_writes_a_dataset_of_several_files(files: ContainerFileSystem) -> None:
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    table = pa.table({"day": list(range(1000)), "month": [each % 12 for each in range(1000)]})
    pq.write_table(table, "one.parquet", filesystem=files)
    assert pq.read_table("one.parquet", filesystem=files).equals(table)
    ds.write_dataset(
        table, "all", filesystem=files, format="parquet", partitioning=["month"],
        partitioning_flavor="hive",
    )  # fmt: skip
    assert len(files.find("all")) == 12
    found = ds.dataset("all", filesystem=files, partitioning="hive")
    some = found.to_table(filter=ds.field("month") == 3, columns=["day"])
    assert sorted(some["day"].to_pylist()) == list(range(3, 1000, 12))


def test_polars_reads_and_writes_parquet(options: dict[str, Any]) -> None:
    import fsspec
    import polars as pl

    table = pl.DataFrame({"day": list(range(1000))})
    with fsspec.open("scbroker://a.parquet", "wb", **options) as file:
        table.write_parquet(file)
    with fsspec.open("scbroker://a.parquet", **options) as file:
        assert pl.read_parquet(file).equals(table)


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


def test_chains_of_fsspec_keep_copies_or_look_into_an_archive(
    kept_options: dict[str, Any], tmp_path: Path
) -> None:
    import fsspec

    files = ContainerFileSystem(**kept_options)
    files.pipe("a/b", b"one")
    with files.open("z.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("c", "two")
    for kind in ("simplecache", "filecache", "blockcache"):
        chain: dict[str, Any] = {"scbroker": kept_options, kind: {"cache_storage": str(tmp_path)}}
        with fsspec.open(f"{kind}::scbroker://a/b", **chain) as file:
            assert file.read() == b"one"
    with fsspec.open("zip://c::scbroker://z.zip", scbroker=kept_options) as file:
        assert file.read() == b"two"


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
