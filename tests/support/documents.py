"""Checks of the documents. Each takes the path and the text of a page, and returns the problems that it finds."""

import ast
import functools
import re
from pathlib import Path
from urllib.parse import unquote

import click

from service.admin.command import console
from service.config.settings import VARIABLES
from service.observability import metrics
from tests.support.events import read_table
from tests.support.metrics_scrape import Scrape
from tests.support.servers import CHECKOUT

PAGES = [CHECKOUT / "README.md", *sorted(CHECKOUT.glob("docs/**/*.md"))]
MAX_WORDS = 27_000
MAX_WORDS_OF_A_SENTENCE = 30
FORBIDDEN = re.compile(
    r"\b(?:(?:is|are|be|gets?) [1-5]\d\d|strangers?|mend|beside|whoever|under way|half moved|asks? Redis|those of)\b",
    re.IGNORECASE,
)
"""A status that is not *returned*, and words for which the documents have another one."""

BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>.*?) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"not run: \S+ .+|run by \S+|run as: .+|exit status \d|file: [\w.-]+")
SHELL = re.compile(
    r"```(bash|console|shell)\n|^ *(\$ |curl |\./scripts/|docker |kubectl |token-service-admin )", re.MULTILINE
)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)

SOURCES = ("service", "templates", "deployment", "examples", "scripts", "tools", "distributions", "benchmarks")
CONSOLE = re.compile(r"(?:token-service-admin|scripts/admin)((?: +[^\s|;<>&)#]+)*)")
NO_MESSAGE = re.compile(
    r"[=@$|{}<>]|--|\b[A-Z]{3,} [A-Z]|^[A-Z][\w-]+: |"
    r"^(?:docker|head|journalctl|kubectl|redis-cli|sed|sentinel|systemctl|user default|\S*admin|auth2) "
)
"""Code of three words that quotes no message, such as a command, a header or a line of a configuration."""
OTHER_MESSAGES = (
    "Connection refused",
    "OOM command not allowed when used memory > 'maxmemory'",
    "Scope has changed",
    "issued in the future",
    "a password at the cooperative",
    "its userinfo returned status 403",
)
"""Messages of other programs and a password. The code assembles the last one."""
OTHER_NAMES = {
    *(
        "--ignore-buildable",
        "--rm",
        "--entryPoints",
        "--cluster-pipeline",
        "--bigkeys",
        "--tls",
        "--latency",
        "--cluster",
    ),
    *("aof_delayed_fsync", "aof_last_cow_size", "latest_fork_usec", "authorize_url", "userdata_url", "expired_token"),
    *("backchannel_logout_session_required", "backchannel_logout_uri", "encrypted_password", "get_client_info"),
    *("form_post", "response_mode", "deployment/token-service"),
}
"""Names in other programs, and of what the service lacks."""


def split_code(text: str) -> tuple[list[str], list[str], str]:
    """Return the shell blocks of a page, its inline code, and its prose with an `x` for each piece of code."""
    shell = [match["code"].replace("\\\n", "") for match in BLOCK.finditer(text) if match["language"] == "sh"]
    prose = re.sub(r"<!--.*?-->", "", BLOCK.sub("", text))
    return shell, [" ".join(code.split()) for _, code in CODE.findall(prose)], CODE.sub("x", prose)


# Links


def list_links(text: str) -> list[str]:
    """Return the links within the repository, without those in code."""
    return [target for target in LINK.findall(split_code(text)[2]) if not re.match(r"[a-z]+:", target)]


def list_anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of headings: lower case, no punctuation, hyphens for spaces, numbered."""
    anchors: list[str] = []
    for heading in HEADING.findall(BLOCK.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "").lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        times = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", anchor) is not None for anchor in anchors)
        anchors.append(f"{slug}-{times}" if times else slug)
    return set(anchors)


def check_links(page: Path, text: str) -> list[str]:
    """Find links to files and headings that do not exist."""
    problems = []
    for link in list_links(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        if not target.exists():
            problems.append(f"{link}: no such file")
        elif anchor and anchor not in list_anchors(target.read_text() if path else text):
            problems.append(f"{link}: no such heading")
    return problems


# Blocks


def check_marks(page: Path, text: str) -> list[str]:
    """Find unknown marks, marks that name a test of another page, and shell blocks that do not say so."""
    hidden = [match for match in BLOCK.finditer(text) if match["language"] != "sh" and SHELL.search(match[0])]
    problems = [f"{match[0]}: not marked as sh" for match in hidden]
    for mark in (match["mark"] for match in BLOCK.finditer(text) if match["mark"]):
        run_by = mark.removeprefix("run by ")
        if not MARK.fullmatch(mark):
            problems.append(f"{mark}: unknown mark")
        elif run_by != mark and not ((file := CHECKOUT / run_by).is_file() and page.name in file.read_text()):
            problems.append(f"{mark}: does not read {page.name}")
    return problems


# Messages


@functools.cache
def read_sources() -> str:
    files = [CHECKOUT / "redis.conf", CHECKOUT / "docs" / "openapi.yaml"]
    files += (file for folder in SOURCES for file in (CHECKOUT / folder).rglob("*") if file.is_file())
    return "\n".join(file.read_text(errors="replace") for file in files if "__pycache__" not in file.parts)


@functools.cache
def read_messages() -> tuple[list[str], list[re.Pattern[str]]]:
    """Return the texts of the code, with the fixed parts of f-strings, and patterns of f-strings of three words."""
    trees = [ast.parse(path.read_text()) for path in (CHECKOUT / "service").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    formats = [
        "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+?" for part in node.values)
        for node in nodes
        if isinstance(node, ast.JoinedStr)
    ]
    patterns = [re.compile(text) for text in formats if len(re.findall(r"[a-z]+", text)) >= 3]
    return texts, patterns


def check_messages(page: Path, text: str) -> list[str]:
    """Find quoted messages, in `text` blocks and in inline code of three words, that are not in the code."""
    blocks = [match["code"] for match in BLOCK.finditer(text) if match["language"] == "text"]
    shown = [re.sub(r"^\S+: ", "", line) for block in blocks for line in block.splitlines()]
    shown += re.findall(r'"error_description":"([^"…]+)"', text)
    spans = [code for code in split_code(text)[1] if len(code.split()) >= 3 and not NO_MESSAGE.search(code)]
    shown += (code for code in spans if get_command(console, code.split()[0]) is None)
    texts, patterns = read_messages()

    def is_in_the_code(message: str) -> bool:
        parts = [part.strip(" :") for part in message.split("…")]
        return all(any(part in text for text in texts) or part in OTHER_MESSAGES for part in parts) or any(
            pattern.search(message) for pattern in patterns
        )

    return [f"{message}: not in the code" for message in shown if not is_in_the_code(message)]


# Names


@functools.cache
def list_names() -> set[str]:
    """Return the words of the code, and the names that the code assembles."""
    families = Scrape(metrics.render().decode()).families
    assembled = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    return {*re.findall(r"\w+", read_sources()), *assembled, *read_table(), *OTHER_NAMES}


def check_names(page: Path, text: str) -> list[str]:
    """Find settings, metrics, events, fields, options, endpoints and files that do not exist."""
    shell, spans, _ = split_code(text)
    inline, code = "\n".join(spans), "\n".join([*shell, *spans])
    settings = (
        {*re.findall(r"\bTOKEN_SERVICE_[A-Z_]*[A-Z]\b", text)} - VARIABLES - {f"{name}_FILE" for name in VARIABLES}
    )
    names = {*re.findall(r"(?<![\w$.-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b", inline)} - list_names()
    files = re.findall(rf"(?<![\w/.-])(?:\./)?((?:{'|'.join(SOURCES)}|docs|tests)/[\w./-]*\w)", code)
    others = re.findall(r"(?<![\w-])--[a-z][\w-]+", inline)
    others += re.findall(r"/(?:oauth2/v1|authorization|sessions|\.well-known)/[\w-]*", text)
    unknown = {file for file in files if not (CHECKOUT / file).exists() and "/secrets" not in file} - OTHER_NAMES
    unknown |= {name for name in others if name not in read_sources()} - OTHER_NAMES
    return [f"{name}: unknown name" for name in sorted(settings | names | unknown)] + find_wrong_commands(code, spans)


def find_wrong_commands(code: str, spans: list[str]) -> list[str]:
    """Find commands and options that the CLI does not have. The name of the program may be missing in a span."""
    lines = CONSOLE.findall(code) + [
        span for span in spans if re.match(r"(?!user (?:default|operator))\w+ [\w-]", span)
    ]
    problems = []
    for line in lines:
        command: click.Command = console
        for word in re.findall(r"[^\s\[\]]+", line):
            if word.startswith("--"):
                options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
                problems += [] if word in options or command is console else [f"{line}: unknown option {word}"]
            elif isinstance(command, click.Group):
                found = get_command(command, word)
                if found is None:
                    problems += [] if command is console and line in spans else [f"{line}: unknown command {word}"]
                    break
                command = found
    return problems


def get_command(group: click.Group, word: str) -> click.Command | None:
    return group.get_command(click.Context(group), word)


# Prose


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a document, without code, tables, headings and the addresses of links."""
    prose = re.sub(r"\]\([^)]*\)", "]", split_code(text)[2])
    lines = [line for line in prose.splitlines() if not line.lstrip().startswith(("|", "#", "!["))]
    blocks = re.split(r"\n\s*(?:[-*]|\d+\.)\s+|\n\s*\n", "\n".join(lines))
    return [sentence for block in blocks for sentence in re.split(r"(?<=[.!?])\s+", " ".join(block.split()))]


def check_prose(page: Path, text: str) -> list[str]:
    """Find long sentences and wording that the documents avoid."""
    sentences = split_sentences(text)
    long = [
        f"{len(words)} words: {' '.join(words)}"
        for words in map(str.split, sentences)
        if len(words) > MAX_WORDS_OF_A_SENTENCE
    ]
    return long + [f"{found[0]!r}: {sentence}" for sentence in sentences if (found := FORBIDDEN.search(sentence))]


def check_words(page: Path, text: str) -> list[str]:
    """Find that README.md and docs, with this text of the page, are too long."""
    words = sum(len((text if other == page else other.read_text()).split()) for other in PAGES)
    return [f"{words} words, but at most {MAX_WORDS} are allowed"] if words > MAX_WORDS else []
