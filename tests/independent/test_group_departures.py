"""group_departures.json: docs/spec/groups.md, 9."""

from tests.independent import group_chains, rosters
from tests.independent.container_records import Judge
from tests.independent.test_group_chains import leaves_of, read_chain
from tests.independent.vectors import Vector, cases, chains, expect, load, octets, people, signed


@cases("group_departures")
def test_departures_from_groups_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A departure is from one leaf of one group, by its user, in time."""
    expect(vector, lambda: check(vector))


@cases("group_departures", "valid")
def test_departures_from_groups_are_written_as_they_were_read(vector: Vector) -> None:
    """What was read of a departure is all that it says: writing it gives the same bytes."""
    for stored in vector["departures"]:
        departure = group_chains.parse_departure(octets(stored["body"]))
        assert departure.stored() == octets(stored["body"])
        [user] = [one for one in people().values() if one.fingerprint == departure.fingerprint]
        again = departure.signed_by(user.signing[departure.key_index])
        assert again.body == octets(stored["body"])


def check(vector: Vector) -> None:
    pool = load("group_departures")["given"]["records"]
    chain = read_chain(pool, vector["records"], vector["now"], {})
    assert chain is not None
    members = rosters.check_leaves(chain.roster, leaves_of(pool, vector["records"]))
    judge = Judge(vector["now"], chains())
    served = [signed(one) for one in vector["departures"]]
    left = group_chains.departed(judge, chain, members, served)
    if vector["result"] == "valid":
        assert left == {people()[name].fingerprint for name in vector["left"]}
