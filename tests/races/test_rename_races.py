"""Many concurrent changes of names and ids: one wins, and no session outlives the rename of its user."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from functools import partial

import httpx2
import msgspec
import pytest

from service.protocol.user import User, identify_user
from service.registry.editor import ChangeRefused, RegistryEditor
from service.registry.seed_file.entries import BadSeed
from service.registry.seed_file.read import parse_seed
from service.store.keys import id_key
from service.worker import Worker
from tests.conftest import make_code
from tests.races.instances import InstancePair, all_at_once, is_live, until_available
from tests.registry.imports import import_file, make_file, make_import, make_user
from tests.registry.seeds import PASSWORD_HASH
from tests.support.clients_and_users import (
    GATEWAY,
    PHONE_APP,
    PHONE_CALLBACK,
    UserCredentials,
    put_user,
    tokens_of,
)
from tests.support.clients_and_users import (
    is_live as is_access_live,
)

pytestmark = pytest.mark.clause("decided-user-ids", "decided-user-renames")

CONTENDERS = 50
LOGINS = 8
PASSWORD = "a password of all"
EVE, EVA = UserCredentials("eve@example.com", PASSWORD), UserCredentials("eva@example.com", PASSWORD)
SIGN_UP = {"password": PASSWORD, "roles": ["enduser"]}
NAMES = (EVE.username, EVA.username, *(f"user{number}@example.com" for number in range(CONTENDERS)))


@pytest.fixture(autouse=True)
async def without_users(worker: Worker) -> AsyncIterator[None]:
    """Delete the users after the test, since the registry is shared."""
    yield
    for user in await worker.registry.users.list_of("main"):
        if user.username in NAMES:
            await worker.registry.users.delete(user.identity)
            await worker.registry.ids.release([user.id])


async def sign_up(http: httpx2.AsyncClient, *names: str) -> dict[str, str]:
    """Create the users. Returns their ids."""
    answers = await all_at_once([until_available(partial(put_user, http, name, SIGN_UP)) for name in names])
    return {name: answer.json()["id"] for name, answer in zip(names, answers, strict=True)}


def rename(http: httpx2.AsyncClient, old: str, new: str) -> Awaitable[httpx2.Response]:
    return until_available(partial(put_user, http, old, {"username": new}))


async def list_ids(worker: Worker) -> dict[str, str]:
    """Return the ids of the users of these tests by name. Each id leads to its user alone."""
    users = [user for user in await worker.registry.users.list_of("main") if user.username in NAMES]
    for user in users:
        assert not user.renamed_to
        assert [holder.digest for holder in await worker.registry.ids.find(user.id)] == [user.identity.digest]
    assert not await worker.registry.has_pending()
    return {user.username: user.id for user in users}


@pytest.mark.parametrize("place", [0, CONTENDERS // 2, CONTENDERS])
async def test_no_session_outlives_the_rename_of_its_user(
    instances: InstancePair, worker: Worker, http: httpx2.AsyncClient, place: int
) -> None:
    """Logins, refreshes and exchanges of codes race with the rename. Each ends in one world or the other."""
    ids = await sign_up(http, EVE.username)
    sessions = [tokens_of(await PHONE_APP.log_in(http, EVE)) for _ in range(4)]
    codes = [await make_code(worker, EVE) for _ in range(10)]
    asked = [
        *(PHONE_APP.exchange(http, code, PHONE_CALLBACK) for code in codes),
        *(PHONE_APP.refresh(http, sessions[number % 4]["refresh_token"]) for number in range(24)),
        *(PHONE_APP.log_in(http, user) for user in (EVE, EVA) for _ in range(LOGINS)),
    ]
    asked = [asked[number * 7 % CONTENDERS] for number in range(CONTENDERS)]
    answers = await all_at_once([*asked[:place], rename(http, EVE.username, EVA.username), *asked[place:]])
    renamed = answers.pop(place)
    later = tokens_of(await PHONE_APP.log_in(http, EVA))

    assert renamed.status_code in (200, 404), renamed.text  # 404: an attempt was answered 503, and a worker finished it
    assert await list_ids(worker) == {EVA.username: ids[EVE.username]}
    started = [answer.json() for answer in answers if "access_token" in answer.text]
    for body in [*sessions, *started, later]:
        told = (await GATEWAY.introspect(http, body["access_token"])).json()
        if told["active"]:
            assert (told["username"], told["sub"]) == (EVA.username, ids[EVE.username])
            assert await is_live(instances, http, PHONE_APP, body)
        else:
            assert not await is_live(instances, http, PHONE_APP, body)
    assert not [body for body in sessions if is_access_live(instances.store, body["access_token"])]
    assert is_access_live(instances.store, later["access_token"])


async def test_one_of_many_renames_gets_the_name(
    instances: InstancePair, worker: Worker, http: httpx2.AsyncClient
) -> None:
    names = NAMES[2:14]
    ids = await sign_up(http, *names)
    answers = await all_at_once([rename(http, name, EVE.username) for name in names])

    (winner,) = [name for name, answer in zip(names, answers, strict=True) if answer.status_code in (200, 404)]
    assert Counter(answer.status_code == 409 for answer in answers)[True] == len(names) - 1
    assert await list_ids(worker) == {name: ids[name] for name in names if name != winner} | {EVE.username: ids[winner]}


async def test_two_users_cannot_swap_their_names(
    instances: InstancePair, worker: Worker, http: httpx2.AsyncClient
) -> None:
    ids = await sign_up(http, EVE.username, EVA.username)
    pairs = [(EVE.username, EVA.username), (EVA.username, EVE.username)]
    answers = await all_at_once([rename(http, *pair) for _ in range(4) for pair in pairs])

    assert {answer.status_code for answer in answers} == {409}
    assert await list_ids(worker) == ids


async def test_a_chain_of_renames_loses_no_user(
    instances: InstancePair, worker: Worker, http: httpx2.AsyncClient
) -> None:
    """Each user takes the name of the one before, who may have left it."""
    names = NAMES[2:10]
    ids = await sign_up(http, *names)
    pairs = list(zip(names, (EVE.username, *names), strict=False))
    answers = await all_at_once([rename(http, *pair) for pair in reversed(pairs)])

    assert {answer.status_code for answer in answers} <= {200, 404, 409}
    assert answers[-1].status_code != 409
    assert sorted((await list_ids(worker)).values()) == sorted(ids.values())


async def test_one_of_many_creators_gets_the_id(
    instances: InstancePair, worker: Worker, http: httpx2.AsyncClient
) -> None:
    """They are requests, changes at the console, imports and seeds, each of another user."""
    editor = RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "root"})

    async def create(kind: int, name: str) -> bool:
        try:
            if kind == 0:
                await editor.create_user(User(realm="main", username=name, id="wanted"))
            elif kind == 1:
                await import_file(make_import(worker.redis, make_file(make_user(name, id="wanted"))))
            elif kind == 2:
                entry = {"username": name, "password_hash": PASSWORD_HASH, "id": "wanted"}
                await worker.seeding.apply(parse_seed(msgspec.json.encode({"users": [entry]})))
            else:
                answer = await until_available(partial(put_user, http, name, SIGN_UP | {"id": "wanted"}))
                assert answer.status_code in (200, 201, 409), answer.text
                return answer.status_code != 409
        except (ChangeRefused, BadSeed):
            return False
        return True

    names = NAMES[2:]
    wins = await asyncio.gather(*(create(number % 8, name) for number, name in enumerate(names)))

    assert sum(wins) == 1
    winner = names[wins.index(True)]
    assert await list_ids(worker) == {winner: "wanted"}
    assert instances.store.get(id_key("wanted")) == identify_user("main", winner).digest
