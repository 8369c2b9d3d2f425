"""A run of the service: settings, seed, port, store and workers, which end in the reverse order.

Mistakes that can be found before anything runs are printed as plain lines, and the exit status is 2.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import uvicorn
from uvicorn.supervisors import ChangeReload

from service.config.reading import BadSettings
from service.config.settings import PREFIX, Settings, load_settings, unknown_variables
from service.crypto.certificates import find_expiry_in_file
from service.embedded.binary import StoreFailed
from service.embedded.server import EmbeddedStore
from service.observability.logs import EventLog, configure_logging
from service.registry.seed_file.entries import BadSeed
from service.registry.seed_file.read import load_seed
from service.serving.arguments import (
    APPLICATION,
    Arguments,
    BadArguments,
    apply_arguments,
    apply_port,
    check_tls,
    make_configuration,
    parse_arguments,
)
from service.serving.banner import Greet, greet_when_ready, print_banner
from service.serving.draining_server import DrainingServer, raise_file_limit
from service.serving.help import find_answer
from service.serving.metrics_listener import answering_metrics, sharing_numbers
from service.serving.sockets import AddressRefused, listen
from service.serving.workers import Workers
from service.system.interrupts import INTERRUPTED
from service.system.private_files import FolderRefused
from service.system.process import configure_malloc

DONE, FAILED, REFUSED = 0, 1, 2

log = EventLog("service.serving.supervisor")


def serve(command_line: list[str], *, application: str = APPLICATION, greet: Greet = print_banner) -> int:
    """Run the service until SIGTERM or SIGINT. Returns its exit status.

    `application` names the factory of the application. `greet` is called in a thread when the service is ready.
    """
    configure_malloc()
    _on_signals(_leave)
    try:
        return _serve(command_line, application, greet)
    except BadSettings as refusal:
        return _tell(REFUSED, *refusal.mistakes)
    except BadSeed as refusal:
        return _tell(REFUSED, f"errors in the seed file {refusal.file}:", *refusal.mistakes)
    except FolderRefused as refusal:
        return _tell(REFUSED, f"{refusal}. To use another folder: TOKEN_SERVICE_DATA_DIR=FOLDER")
    except (BadArguments, AddressRefused) as refusal:
        return _tell(REFUSED, str(refusal))
    except StoreFailed as failure:
        return _tell(FAILED, str(failure))


def _serve(command_line: list[str], application: str, greet: Greet) -> int:
    answer = find_answer(command_line)
    if answer is not None:
        sys.stdout.write(answer)
        return DONE
    arguments = parse_arguments(command_line, load_settings(os.environ), application)
    check_tls(arguments)
    apply_arguments(arguments, os.environ)
    settings = load_settings(os.environ, handed_socket=arguments["fd"])
    configure_logging(settings.log_level, settings.log_format)
    for warning in unknown_variables(os.environ):
        log.warning(warning)
    if arguments["ssl_certfile"] and (expiry := find_expiry_in_file(arguments["ssl_certfile"])):
        log.warning(f"--ssl-certfile {arguments['ssl_certfile']}: {expiry[1]}")
    if settings.seed_file is not None:
        load_seed(settings.seed_file, settings.min_password_characters)
    _say_what_is_used(settings)
    metrics_sockets, sockets = list[socket.socket](), list[socket.socket]()
    if settings.metrics_address is not None:
        metrics_sockets = listen(*settings.metrics_address, f"{PREFIX}METRICS_ADDRESS=HOST:PORT")
    if arguments["uds"] is None and arguments["fd"] is None:  # otherwise uvicorn opens it
        sockets = listen(arguments["host"], arguments["port"], "--port 8123")
        apply_port(arguments, sockets[0].getsockname()[1], os.environ)
    settings = load_settings(os.environ)
    with _embedded_store(settings) if settings.embedded else contextlib.nullcontext():
        return _run_workers(arguments, settings, sockets, metrics_sockets, greet)


def _say_what_is_used(settings: Settings) -> None:
    log.info("starting", store=settings.store_name, seed=str(settings.seed_file or "none"))
    if settings.has_public_example_seed:
        log.warning("the example seed is in use, and its passwords are public; set TOKEN_SERVICE_SEED_FILE")
    for variable in ("TOKEN_SERVICE_SECRET_KEY", "TOKEN_SERVICE_SECRET_KEY_FILE"):
        if settings.embedded and os.environ.get(variable):
            log.warning(f"{variable} is set, but REDIS_URL is not, so the embedded store is used")


@contextlib.contextmanager
def _embedded_store(settings: Settings) -> Iterator[None]:
    store = EmbeddedStore(settings.data_dir, syncs_always=settings.durability.level == "disk")
    try:
        store.claim()
        store.start()
        yield
    finally:
        # A second Ctrl-C must not interrupt the stop of the store. Child processes would inherit SIG_IGN.
        _on_signals(lambda _number, _frame: None)
        store.stop()


def _run_workers(
    arguments: Arguments,
    settings: Settings,
    sockets: list[socket.socket],
    metrics_sockets: list[socket.socket],
    greet: Greet,
) -> int:
    raise_file_limit()
    configuration = make_configuration(arguments)
    # The embedded store ends with this process, so no other instance could take over.
    drains = not settings.embedded
    if sockets:
        greet_when_ready(greet, settings, configuration.is_ssl)
    try:
        with contextlib.ExitStack() as around:
            if configuration.use_subprocess:
                around.enter_context(sharing_numbers())
            base_host = urlsplit(settings.base_url).hostname or ""
            around.enter_context(answering_metrics(metrics_sockets, base_host))
            if configuration.use_subprocess:
                return _run_processes(configuration, sockets or [configuration.bind_socket()], drains)
            return _run_here(configuration, sockets or None, drains)
    finally:
        if configuration.uds:
            Path(configuration.uds).unlink(missing_ok=True)


def _run_here(configuration: uvicorn.Config, sockets: list[socket.socket] | None, drains: bool) -> int:
    server = DrainingServer(configuration, drains=drains)
    # After a clean end uvicorn raises the signal again, and then this handler ignores it. A signal that arrives before
    # uvicorn handles signals must end the start.
    _on_signals(lambda number, frame: None if server.should_exit else _leave(number, frame))
    server.run(sockets)
    return DONE if server.started else FAILED


def _run_processes(configuration: uvicorn.Config, sockets: list[socket.socket], drains: bool) -> int:
    if configuration.should_reload:
        ChangeReload(configuration, DrainingServer(configuration, drains=False).run, sockets).run()
        return DONE
    workers = Workers(configuration, sockets, drains)
    workers.run()
    return FAILED if workers.failed else DONE


def _on_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(INTERRUPTED if number == signal.SIGINT else DONE)


def _tell(status: int, *lines: str) -> int:
    for line in lines:
        sys.stderr.write(f"{line}\n")
    return status
