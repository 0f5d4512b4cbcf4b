"""Offer containers as files to programs that use fsspec, such as pandas, polars, pyarrow and dask.

pandas.read_parquet("scbroker://reports/2026.parquet")
"""

from scbroker.filesystem.system import ContainerFileSystem as ContainerFileSystem

__all__ = ["ContainerFileSystem"]
