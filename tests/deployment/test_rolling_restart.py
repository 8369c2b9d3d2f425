"""What docs/operations.md promises of a restart of one instance after the other, here to change the secret key."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.cast import ALICE, TOKEN, VERIFY, login_form
from tests.conftest import environment_of
from tests.deployment.test_nginx import running_nginx
from tests.servers import RedisServer, free_port, running_service

OLD, NEW = "the key of yesterday of 32 bytes or more", "the key of tomorrow of 32 bytes or more"
STEPS = (OLD, f"{OLD},{NEW}", f"{NEW},{OLD}", NEW)
PHONE_APP = {"client_id": "phone-app"}


class Session(threading.Thread):
    """Refreshes without a pause; repeats with the same token where the answer was 503, as a client should."""

    def __init__(self, http: httpx2.Client) -> None:
        super().__init__()
        self.http = http
        self.statuses: Counter[int] = Counter()
        self.ends = threading.Event()
        self.tokens = http.post(TOKEN, data=PHONE_APP | login_form(ALICE, "realm:main role:enduser")).json()

    def run(self) -> None:
        while not self.ends.is_set():
            self.refresh()

    def refresh(self) -> None:
        form = {"grant_type": "refresh_token", "refresh_token": self.tokens["refresh_token"]}
        answer = self.http.post(TOKEN, data=PHONE_APP | form)
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.tokens = answer.json()


@pytest.mark.long
@pytest.mark.clause("decided-secret-key-rotation")
def test_a_session_outlives_a_change_of_the_key_by_restarts_of_one_instance_after_the_other(
    tmp_path: Path, own_redis: RedisServer
) -> None:
    ports = (free_port(), free_port())

    def start(instance: ExitStack, port: int, keys: str) -> None:
        environment = environment_of(own_redis, TOKEN_SERVICE_SECRET_KEY=keys)
        instance.enter_context(running_service(tmp_path, environment, port=port))

    with ExitStack() as first, ExitStack() as second, running_nginx(tmp_path / "nginx", *ports) as http:
        instances = tuple(zip((first, second), ports, strict=True))
        for instance, port in instances:
            start(instance, port, STEPS[0])
        session = Session(http)
        session.start()
        try:
            for keys in STEPS[1:]:
                for instance, port in instances:
                    instance.close()
                    start(instance, port, keys)
        finally:
            session.ends.set()
            session.join()

        session.refresh()
        verified = http.get(VERIFY, headers={"Authorization": f"Bearer {session.tokens['access_token']}"})
        assert verified.headers["X-Auth-User"] == ALICE.username
        assert set(session.statuses) <= {200, 503}, session.statuses
        assert session.statuses[200] > 100
