"""What the book needs of MkDocs beyond its themes: see mkdocs.yml.

The pages stand in docs/ as anyone reads them there, with links to files of the whole project and GitHub's Markdown. For
the book

  - chapters are numbered as their programs are, and left out while they are not written
  - files of the project that a page links to become pages, too, since the book is read without the sources beside it
  - <!-- player: lockstep watch ... --> becomes the page that this command writes, in a frame
  - each page links to its twin in the other language
"""

import hashlib
import os
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PROGRAM = Path(os.environ.get("LOCKSTEP", ROOT / "build" / "release" / "bin" / "lockstep"))
PLAYERS = ROOT / "build" / "book-players"
FENCE = re.compile(r" *(```+|~~~+)")
LINK = re.compile(r"(\]\(|(?:src|href)=\")([^)\s\"#]+)(#[^)\s\"]*)?(?=[)\"])")
PLAYER = re.compile(r"<!-- *player: *lockstep (watch .+?) *-->")
ITEM = re.compile(r" *([-*+]|\d+\.) ")
LANGUAGES = {".py": "python", ".h": "cpp", ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".sh": "bash", ".cmake": "cmake"}
ZH = "book/zh/"


# Text of pages: what is done to lines outside of blocks of code.


def change_text(markdown, change):
    """The page with change(text) in place of each stretch of text between its blocks of code."""
    parts, text, fence = [], [], None
    for line in markdown.splitlines():
        match = FENCE.match(line)
        if fence is None and match:
            parts.append(change("\n".join(text)))
            parts, text, fence = [*parts, line], [], match[1]
        elif fence is not None:
            parts.append(line)
            fence = None if line.strip() == fence else fence
        else:
            text.append(line)
    return "\n".join([*parts, change("\n".join(text))])


def separate_lists(text):
    """GitHub begins a list right below a line of text; MkDocs wants an empty line between."""
    lines = []
    for line in text.split("\n"):
        if ITEM.match(line) and lines and lines[-1].strip() and not ITEM.match(lines[-1]) and lines[-1][0] != " ":
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def links_of(markdown):
    found = []
    change_text(markdown, lambda text: found.extend(match[2] for match in LINK.finditer(text)) or text)
    return [link for link in found if not re.match(r"[a-z]+:|/", link)]


# Where a file of the project stands in the book.


def path_of(src_uri):
    """The file or folder, from the root of the project, that a page of the book shows."""
    if not src_uri.startswith("files/"):
        return f"docs/{src_uri}"
    path = src_uri.removeprefix("files/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def page_of(path):
    """The page of the book, as MkDocs names it, that shows a file or folder of the project."""
    if path in ("README.md", "README.zh.md"):
        return ZH + "introduction.md" if "zh" in path else "book/introduction.md"
    if (ROOT / path / "README.md").is_file():
        path += "/README.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}" if path.endswith(".md") else f"files/{path}.md"


def page_behind(src_uri, link):
    """The page that a link leads to; None: the project has no such file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(path_of(src_uri)), link))
    return page_of(path) if (ROOT / path).exists() else None


def address_of(src_uri):
    """Where a page lies below build/book."""
    folder, name = ("zh/", src_uri.removeprefix(ZH)) if src_uri.startswith(ZH) else ("", src_uri.removeprefix("book/"))
    name = re.sub(r"(README|^introduction)\.md$", "index.md", name)
    return folder + re.sub(r"\.md$", ".html", name)


def between(src_uri, other):
    """The link from one page to another, as the browser follows it."""
    return posixpath.relpath(address_of(other), posixpath.dirname(address_of(src_uri)))


def is_chinese(config):
    return config.theme["language"] == "zh"


# The navigation.


def number_of(src_uri):
    """The number of the program that a chapter is about; empty for other pages."""
    name = Path(src_uri).stem if src_uri.startswith("book/") else ""
    return next((path.name[:2] for path in ROOT.glob("tutorials/[0-9][0-9]_*.cpp") if path.stem[3:] == name), "")


def title_of(src_uri):
    heading = re.search(r"^# +(.+)$", (DOCS / src_uri).read_text(), re.MULTILINE)
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading[1]) if heading else src_uri
    return f"{number_of(src_uri)} {title}".strip()


def navigation(items, config):
    """The pages that are there, with their titles and numbers; for the Chinese book the twins of the chapters."""
    found = []
    for item in items:
        if isinstance(item, dict):
            (name, pages), = item.items()
            pages = navigation(pages, config)
            found += [{config.extra.get("sections", {}).get(name, name): pages}] if pages else []
        else:
            page = re.sub("^(book/)?", ZH, item) if is_chinese(config) else item
            found += [{title_of(page): page}] if (DOCS / page).is_file() else []
    return found


def on_config(config):
    config.nav = navigation(config.nav, config)
    config.extra["polyfills"] = ["assets/javascripts/iframe-worker.js"]
    return config


# The files.


def source_page(path):
    """A page that shows a source file, or what a folder holds."""
    title = f"# `{path}`\n\n"
    if (ROOT / path).is_dir():
        names = sorted(entry.name for entry in (ROOT / path).iterdir() if not entry.name.startswith((".", "__")))
        return title + "\n".join(f"- `{name}`" for name in names) + "\n"
    return f"{title}~~~~~~{LANGUAGES.get(Path(path).suffix, 'text')}\n{(ROOT / path).read_text()}\n~~~~~~\n"


def add_linked_files(pages, config):
    """Pages for what these link to outside of docs, and for what those link to."""
    found, waiting = {}, [(page, (DOCS / page).read_text()) for page in pages]
    while waiting:
        src_uri, text = waiting.pop()
        for page in filter(None, (page_behind(src_uri, link) for link in links_of(text))):
            path = path_of(page)
            if page.startswith("files/") and page not in found:
                content = (ROOT / path).read_text() if path.endswith(".md") else source_page(path)
                found[page] = File.generated(config, page, content=content)
                waiting += [(page, content)] if path.endswith(".md") else []
    return found.values()


def record_players(pages, config):
    """Runs the commands of the players; their pages."""
    commands = {command: page for page in pages for command in PLAYER.findall((DOCS / page).read_text())}
    can_watch = PROGRAM.is_file() and subprocess.run([PROGRAM, "watch", "--help"], capture_output=True).returncode == 0
    if not can_watch:
        return []  # scripts/book.sh says so
    PLAYERS.mkdir(parents=True, exist_ok=True)
    for command, page in commands.items():
        player = PLAYERS / player_of(command)
        if not player.exists() or player.stat().st_mtime < PROGRAM.stat().st_mtime:
            result = subprocess.run([PROGRAM, *command.split(), "-o", player], capture_output=True, text=True)
            if result.returncode != 0:
                raise PluginError(f"docs/{page}: its player's command fails: lockstep {command}\n{result.stderr}")
    return [File.generated(config, f"players/{player_of(command)}", abs_src_path=str(PLAYERS / player_of(command)))
            for command in commands]  # fmt: skip


def player_of(command):
    return hashlib.sha256(command.encode()).hexdigest()[:12] + ".html"


def on_files(files, config):
    pages = [file.src_uri for file in files.documentation_pages()]
    kept = Files([file for file in files if file.src_dir != config.docs_dir or file.src_uri.startswith(ZH) == is_chinese(config)])
    if not is_chinese(config):
        for file in [*add_linked_files(pages, config), *record_players(pages, config)]:
            kept.append(file)
    for file in kept:
        if file.src_uri.startswith("book/"):
            file.dest_uri = address_of(file.src_uri).removeprefix("zh/")
    return kept


# The pages.


def show_player(command, src_uri):
    if not (PLAYERS / player_of(command)).is_file():
        return ""
    link = between(src_uri, f"players/{player_of(command)}")
    words = ("一步训练，一个事件一个事件地看", "单独打开") if src_uri.startswith(ZH) else ("One step, event by event", "Open it alone")
    return (f'<iframe class="player" src="{link}" title="{words[0]}" loading="lazy"></iframe>\n\n'
            f'<a href="{link}" target="_blank">{words[1]}</a>: `lockstep {command}`')  # fmt: skip


def follow(match, src_uri, config):
    """The link of a match as MkDocs or the browser can follow it in the book."""
    page = None if re.match(r"[a-z]+:|/", match[2]) else page_behind(src_uri, match[2])
    if page is None:
        return match[0]
    if is_chinese(config) or page.startswith(ZH):
        link = match[2] if is_chinese(config) and page.startswith(ZH) else between(src_uri, page)
    else:
        link = posixpath.relpath(page, posixpath.dirname(src_uri))
    return match[1] + link + (match[3] or "")


def on_page_markdown(markdown, page, config, files):
    src_uri = page.file.src_uri

    def change(text):
        text = PLAYER.sub(lambda match: show_player(match[1], src_uri), text)
        text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).replace("<details>", '<details markdown="1">')
        return LINK.sub(lambda match: follow(match, src_uri, config), separate_lists(text))

    return change_text(markdown, change)


def on_page_context(context, page, config, nav):
    """The link to the same page in the other language, or to its first page."""
    src_uri = page.file.src_uri
    twin = re.sub("^book/", ZH, src_uri) if not src_uri.startswith(ZH) else src_uri.replace(ZH, "book/", 1)
    english, chinese = (twin, src_uri) if is_chinese(config) else (src_uri, twin)
    english = english if (DOCS / english).is_file() or not is_chinese(config) else "book/introduction.md"
    chinese = chinese if chinese.startswith(ZH) and (DOCS / chinese).is_file() else ZH + "introduction.md"
    up = "../" if is_chinese(config) else ""
    config.extra["alternate"] = [{"name": "English", "link": up + address_of(english), "lang": "en"},
                                 {"name": "中文", "link": up + address_of(chinese), "lang": "zh"}]  # fmt: skip
    return context
