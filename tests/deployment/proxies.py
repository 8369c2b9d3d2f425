"""The shipped proxy configurations, run as processes in front of instances on the test's ports."""

import os
import shutil
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from deployment.stack import Stack, make_folder, nginx_command, running, write_certificate, write_nginx_configuration
from tests.support.left_out import get_program
from tests.support.servers import CHECKOUT, free_port
from tests.support.waiting import wait_until

DEPLOYMENT = CHECKOUT / "deployment"


@contextmanager
def running_nginx(folder: Path, *ports: int, http_lines: str = "", rule: str = "") -> Iterator[httpx2.Client]:
    """Run nginx in front of instances on these ports, which it tries in this order. `rule` is one more location."""
    nginx_program = get_program("nginx")
    stack = _make_stack(folder)
    write_nginx_configuration(stack)
    configuration = folder / "nginx.conf"
    text = configuration.read_text().replace("http {\n", "http {\n" + http_lines)
    configuration.write_text(text.replace("location /oauth2/v1/ {", f"{rule}\nlocation /oauth2/v1/ {{"))
    lines = (f"server 127.0.0.1:{port} fail_timeout=1s;\n" for port in ports)
    (folder / "instances.conf").write_text("".join(lines))
    with running("nginx", nginx_command(nginx_program, stack), {}, signal.SIGQUIT, 20) as nginx:
        with _client_of(stack) as client:
            wait_until(lambda: _is_up(client), "nginx to start")
            yield client
        nginx.check()


@contextmanager
def running_haproxy(folder: Path, *ports: int, rule: str = "") -> Iterator[httpx2.Client]:
    """Run HAProxy in front of instances on these ports, which it tries in turn. `rule` is the last of its frontend."""
    haproxy = get_program("haproxy")
    stack = _make_stack(folder)
    text = (DEPLOYMENT / "haproxy.cfg").read_text()
    changes = {
        "bind :80\n": f"bind 127.0.0.1:{stack.http_port}\n",
        "bind :443 ": f"bind 127.0.0.1:{stack.https_port} ",
        "scheme https ": f"prefix https://localhost:{stack.https_port} ",
        "log /dev/log local0\n": "log stderr format raw local0\n",
        "default_backend token_service\n": f"{rule}\n    default_backend token_service\n",
    }
    for shipped, replacement in changes.items():
        assert shipped in text
        text = text.replace(shipped, replacement)
    servers = [f"    server instance-{number} 127.0.0.1:{port}\n" for number, port in enumerate(ports, 1)]
    text = text[: text.index("    server instance-1")] + "".join(servers)
    (folder / "haproxy.cfg").write_text(text)
    shutil.copy(DEPLOYMENT / "unavailable.http", folder)
    both = stack.certificate.read_text() + (folder / "tls" / "key.pem").read_text()
    stack.certificate.write_text(both)
    command = (haproxy, "-db", "-C", str(folder), "-f", "haproxy.cfg")
    with running("HAProxy", command, os.environ, signal.SIGUSR1, 20) as proxy:
        with _client_of(stack) as client:
            wait_until(lambda: _is_up(client), "HAProxy to start")
            yield client
        proxy.check()


def _make_stack(folder: Path) -> Stack:
    stack = Stack(folder, free_port(), free_port(), free_port(), free_port())
    make_folder(folder)
    write_certificate(stack)
    return stack


def _client_of(stack: Stack) -> httpx2.Client:
    return httpx2.Client(base_url=stack.url, verify=ssl.create_default_context(cafile=str(stack.certificate)))


def _is_up(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 404
    except httpx2.TransportError:
        return False
