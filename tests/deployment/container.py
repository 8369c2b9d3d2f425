"""A container of the image without a container engine: namespaces, a read-only root and an unprivileged user.

What an engine does beyond this is left out: limits of memory and processes, seccomp, and bridges between networks.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.deployment.containerfile import Image
from tests.support.servers import stop
from tests.support.waiting import wait_until

RAISE_LOOPBACK: Final = """
import fcntl, socket, struct, sys
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
with socket.socket() as opened:
    fcntl.ioctl(opened, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))
print("up", flush=True)
sys.stdin.read()
"""

ENTER: Final = """
set -e
root="$1" files="$2"
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
while [ "$1" != -- ]; do
  mount -t tmpfs -o mode=1777 tmpfs "$root$1"
  shift
done
shift
mount --bind "$files/hosts" "$root/etc/hosts"
mount --bind "$files/secrets" "$root/run/secrets"
mount -o remount,bind,ro "$root"
exec "$@"
"""
"""Arguments: the root, the folder of hosts and secrets, the folders in memory, --, and the command."""

WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")
"""The beginning of a command whose process is killed when the tests end, even if they are killed."""


@dataclass(frozen=True)
class Network:
    """A network that has only its own loopback interface. All containers of a test share it, and all host names."""

    holder: subprocess.Popen[bytes]

    @property
    def enter(self) -> tuple[str, ...]:
        """Return the beginning of a command that runs in the network."""
        return ("nsenter", f"--net=/proc/{self.holder.pid}/ns/net")


@contextmanager
def private_network() -> Iterator[Network]:
    command = ["unshare", "--net", sys.executable, "-I", "-S", "-c", RAISE_LOOPBACK]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"up\n"
        yield Network(holder)
    finally:
        holder.communicate()


@dataclass(frozen=True)
class Container:
    """A running container. Its first process has the number 1 inside, and `pid` outside."""

    process: subprocess.Popen[bytes]
    pid: int
    image: Image
    environment: Mapping[str, str]
    log: Path

    def execute(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a further command in the container, as `docker compose exec` does, without the entrypoint."""
        enter = ("nsenter", f"--target={self.pid}", "--mount", "--net", "--pid")
        whole = [*enter, *make_command(self.image, self.environment, command)]
        return subprocess.run(whole, input=text, capture_output=True, text=True)


def make_command(image: Image, environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """Return a command that changes to the root, user, folder and environment of the container."""
    variables = [f"{name}={value}" for name, value in (image.environment | dict(environment)).items()]
    # setpriv is outside of chroot, so chroot still has its capability. The change of the user drops all of them.
    change = ["setpriv", "--no-new-privs", "chroot", f"--userspec={image.user}", "--groups=", str(image.root)]
    return [*change, "/usr/bin/env", "-i", f"--chdir={image.folder}", *variables, *command]


@contextmanager
def running_container(
    image: Image, network: Network, environment: Mapping[str, str], memory_folders: Sequence[str], files: Path
) -> Iterator[Container]:
    """Run the entrypoint and the command of the image until the block ends.

    The root is read-only but for the folders in memory. `files` has the folder `secrets` and the file `hosts`.
    """
    image.locate("/run/secrets").mkdir(exist_ok=True)
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "enter"]
    start = make_command(image, environment, [*image.entrypoint, *image.command])
    command = [*network.enter, *enter, str(image.root), str(files), *memory_folders, "--", *start]
    log = files / "container.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*WITH_PARENT, *command], stdout=output, stderr=output)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        wait_until(lambda: process.poll() is not None or children.read_text().strip(), "the first process")
        assert process.poll() is None, log.read_text()
        yield Container(process, int(children.read_text()), image, environment, log)
    finally:
        stop(process, signal.SIGKILL)
