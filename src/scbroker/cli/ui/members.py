"""Show and change who has access to a container: members, contacts, groups, and links with their QR codes."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.commands.checking import head_of
from scbroker.cli.output import day_after, end_of, in_zone, until_text
from scbroker.cli.ui.container import may
from scbroker.cli.ui.session import (
    Container,
    container_of,
    first_result,
    in_text,
    named,
    of_user,
    path_of,
    people_of,
    provider_of,
    show_of,
    shown_name,
    uuid_of,
)
from scbroker.cli.web.site import ask, done, fields, qr_code, show
from scbroker.desk.people import (
    MEANINGS,
    SHARE,
    WORDS,
    People,
    Somebody,
    capital,
    counted,
    in_words,
)


async def _show(request: Request) -> Response:
    """Show the members, and a change of access by a former member of a group; a POST accepts that change."""
    provider = provider_of(request)
    if request.method == "POST":
        id, head = request.path_params["id"], head_of(fields(request).get("head", ""))
        await provider.confirmAccess(id, head)
        return done(request, "The change of access is accepted.", path_of(id, "/people"))
    container, people = await container_of(request), await people_of(request)
    own = people.rights(container)
    return show_of(
        request,
        "members.html",
        container,
        members=_members(container, people),
        contacts=sorted(people.contacts.values(), key=lambda each: each.name),
        groups=sorted(people.groups.values(), key=lambda each: each.name),
        unsettled=await provider.confirmAccess(container.id),
        in_words=in_words,
        people=people,
        may=may(people, container),
        words={word: MEANINGS[word] for word, each in WORDS.items() if not each & ~own},
        tomorrow=day_after(1),
        chosen=request.query_params.get("person", ""),
    )


def _members(container: Container, people: People) -> list[dict[str, Any]] | None:
    """Return the members, the user first; None without ViewAccess."""
    if container.access is None:
        return None
    own, now = people.rights(container), dt.datetime.now(dt.UTC)
    found = [
        {
            "who": people.holder(each),
            "rights": in_words(each.permissions),
            "ends": each.expiresAt,
            "has_ended": each.expiresAt is not None and each.expiresAt <= now,
            "can_be_revoked": SHARE in own
            and each.userId != people.own_id
            and not each.permissions & ~own,
        }
        for each in container.access
    ]
    return sorted(found, key=lambda each: (each["who"].kind != "you", named(each["who"])))


async def _share(request: Request) -> Response:
    people, id = await people_of(request), request.path_params["id"]
    given = fields(request) if request.method == "POST" else request.query_params
    who, ref = _chosen(people, given.get("person", ""))
    name, word, until = in_text(who), given.get("can", ""), given.get("until", "").strip()
    if word not in WORDS:
        raise errors.InvalidArgumentError(f"Choose one of {', '.join(WORDS)}.")
    permissions, end = WORDS[word], end_of(until, "The end") if until else None
    if request.method == "POST":
        if ref.fingerprint != given.get("fingerprint"):
            raise errors.InvalidArgumentError(
                f"The contact {ref.name!r} has changed since you were asked: start again."
            )
        level = scbroker.AccessLevel(ref, permissions, end)
        await first_result(provider_of(request).grantAccess([id], level))
        text = f"{capital(name)} has access{until_text(end)}: {word}."
        return done(request, text, path_of(id, "/people"))
    container = await container_of(request)
    texts = [f"{capital(name)} can then {MEANINGS[word]}{until_text(end)}."]
    if isinstance(ref, scbroker.Group):
        number = counted(ref.memberCount, "member")
        texts = [
            f"{capital(name)} has {number}. Each can then {MEANINGS[word]}{until_text(end)}, as far as "
            "their role in the group allows it."
        ]
        if not ref.isManager:
            texts.append("The managers of the group can add others.")
    now = next((each for each in container.access or () if each.userId == who.id), None)
    if now is not None:
        texts.append(
            f"This replaces the present access: {in_words(now.permissions)}{until_text(now.expiresAt)}."
        )
        if now.permissions & ~permissions:
            texts.append(f"{capital(name)} loses permissions by this.")
    elif who.kind == "contact":
        texts.append(
            f"{name} is not verified, so this may be somebody else's card: compare fingerprints first."
        )
    texts.append("Anybody who can read may keep a copy.")
    compare = f"/contacts/{who.id}/compare?share={id}"
    return ask(
        request,
        f"Share {shown_name(container)} with {name}?",
        texts,
        "Share",
        path_of(id, "/people"),
        link=(compare, "Compare fingerprints, then share") if who.kind == "contact" else None,
        # The handler compares the fingerprint: another device may have replaced the contact meanwhile.
        hidden={"person": str(who.id), "fingerprint": ref.fingerprint, "can": word, "until": until},
    )


async def _revoke(request: Request) -> Response:
    provider, people = provider_of(request), await people_of(request)
    given = fields(request) if request.method == "POST" else request.query_params
    id, user_id = request.path_params["id"], uuid_of(given.get("user", ""))
    if user_id == people.own_id:
        raise errors.InvalidArgumentError("This is you: choose another member.")
    name = in_text(people.user(user_id))
    if request.method == "POST":
        await first_result(provider.revokeAccess([id], user_id))
        text = f"Revoked: {name} has no access any more."
        return done(request, text, path_of(id, "/people"))
    container = await container_of(request)
    level = next((each for each in container.access or () if each.userId == user_id), None)
    if level is None:
        raise errors.NotFoundError(f"Nothing to revoke: {name} has no access.")
    name = in_text(people.holder(level))
    texts = [
        f"The container {shown_name(container)} gets a new key: {name} cannot open what is written from then "
        "on.",
        "Copies that were made before stay readable.",
    ]
    for each in container.access or ():
        group = people.groups.get(each.userId)
        if group is not None and group.id != user_id:
            members = await provider.getGroupMembers(group)
            if any(member.userId == user_id for member in members):
                kept = in_text(people.group(group.id))
                texts.append(f"{capital(name)} is in {kept}, which keeps its access.")
    return ask(
        request,
        f"Revoke the access of {name}?",
        texts,
        "Revoke access",
        path_of(id, "/people"),
        is_dangerous=True,
        hidden={"user": str(user_id)},
    )


def _chosen(people: People, text: str) -> tuple[Somebody, scbroker.Contact | scbroker.Group]:
    """Return the contact or the group with which a container is to be shared."""
    id = uuid_of(text) if text else None
    if id is not None and (group := people.groups.get(id)) is not None:
        return people.group(id), group
    contact = people.contacts.get(id) if id is not None else None
    if contact is None:
        raise errors.NotFoundError("Choose one of your contacts: add the person's card first.")
    return people.user(contact.userId), contact


_DAYS: Final = 7
"""Days that a new link is valid if the person chooses no other end."""
_NAMED: Final = 20
"""The most containers that a link's view names."""


async def _links(request: Request) -> Response:
    return show(request, "links.html", links=await provider_of(request).getLinks())


async def _show_link(request: Request) -> Response:
    """Show a link. Its URL is a secret, which only this view has."""
    link = await _link_of(request)
    provider, ids = provider_of(request), link.containerIds[:_NAMED]
    found = await provider.getContainers(ids, content=False)
    names = {each.id: shown_name(each) for each in found if isinstance(each, scbroker.Container)}
    return show(
        request,
        "link.html",
        link=link,
        containers=[(each, names.get(each)) for each in ids],
        more=len(link.containerIds) - len(ids),
        code=None if link.expired else qr_code(link.url, "QR code of the link"),
    )


async def _make_link(request: Request) -> Response:
    """Make a link. The form is a POST, so that the password is in no URL."""
    if request.method == "GET":
        container, people = await container_of(request), await people_of(request)
        return show_of(
            request,
            "new_link.html",
            container,
            links=[each for each in people.links.values() if container.id in each.containerIds],
            may=may(people, container),
            tomorrow=day_after(1),
            proposed=day_after(_DAYS),
        )
    given = fields(request)
    password = given.get("password", "")
    if password != given.get("again", ""):
        raise errors.InvalidArgumentError("The two passwords differ: enter the same one twice.")
    end = end_of(given.get("until", ""), "The end")
    link = await provider_of(request).createLink(
        request.path_params["id"],
        expiresAt=end,
        password=password or None,
        name=given.get("name", "").strip() or None,
    )
    who = "the link and its password" if link.hasPassword else "the link"
    text = f"Anybody with {who} can read until {in_zone(end)}."
    return done(request, text, f"/links/{link.userId}")


async def _revoke_link(request: Request) -> Response:
    link = await _link_of(request)
    called = str(link.userId) if link.name is None else link.name
    if request.method == "POST":
        await provider_of(request).revokeLink(link)
        return done(request, f"The link {called} opens nothing any more.", "/links")
    return ask(
        request,
        f"Revoke the link {called}?",
        [
            "The link opens nothing any more, also for people who have it already.",
            "They may have kept copies of what they read.",
        ],
        "Revoke this link",
        f"/links/{link.userId}",
        is_dangerous=True,
    )


async def _link_of(request: Request) -> scbroker.Link:
    wanted = request.path_params["id"]
    return of_user(await provider_of(request).getLinks(), wanted, f"You have no link {wanted}.")


_PATH: Final = "/containers/{id:uuid}"
_BOTH: Final = ["GET", "POST"]
routes: Final = [
    Route(f"{_PATH}/people", _show, methods=_BOTH),
    Route(f"{_PATH}/share", _share, methods=_BOTH),
    Route(f"{_PATH}/revoke", _revoke, methods=_BOTH),
    Route(f"{_PATH}/link", _make_link, methods=_BOTH),
    Route("/links", _links),
    Route("/links/{id:uuid}", _show_link),
    Route("/links/{id:uuid}/revoke", _revoke_link, methods=_BOTH),
]
