"""The example that moves a bucket, from a real S3."""

import pytest

from assurance.cluster.ceph import ObjectGateway
from examples.from_s3.test_move import alice, check  # noqa: F401 - a fixture
from scbroker import ServerProvider

pytestmark = pytest.mark.cluster("ceph")


def test_objects_of_a_real_s3_become_containers_once_each(
    alice: ServerProvider,  # noqa: F811
    gateway: ObjectGateway,
) -> None:
    check(gateway.store(gateway.new_bucket()), alice)
