"""What MkDocs does with our pages: links that leave `docs`, comments, and the page of all commands.

The pages are written for GitHub, where a link may lead to any file of the repository. Here such a file becomes a part
of the site, below `repository/`, and the link leads there. Nothing has to be written twice.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = "repository"  # where the site keeps files from outside of docs
COMMANDS = "reference/commands.md"
FENCED = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of all commands, and every file outside of docs that a page leads to, directly or not."""
    files.append(File.generated(config, COMMANDS, content=commands_page()))
    pages = [file for file in files if file.src_uri.endswith(".md")]
    while pages:
        page = pages.pop()
        for match in LINK.finditer(_prose(page.content_string)):
            target = _in_repository(match[2], page.src_uri)
            uri = target and _in_site(target)
            if uri and uri.startswith(OUTSIDE) and files.get_file_from_path(uri) is None:
                kept = InclusionLevel.NOT_IN_NAV  # nav may name it, and need not
                files.append(File.generated(config, uri, abs_src_path=str(_file(target)), inclusion=kept))
                if uri.endswith(".md"):
                    pages.append(files.get_file_from_path(uri))  # type: ignore[arg-type]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take out comments, and lead links to where the site keeps their files."""

    def link(match: re.Match[str]) -> str:
        target = _in_repository(match[2], page.file.src_uri)
        if target is None:
            return match[0]
        return match[1] + posixpath.relpath(_in_site(target), posixpath.dirname(page.file.src_uri) or ".") + match[3]

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(link, COMMENT.sub("", part)) for part in parts[::2]]
    return "".join(parts)


def commands_page() -> str:
    """Return the page of all commands, from what the commands say of themselves."""
    from sitar.cli.main import app

    lines = ["# Commands", "", "`sitar COMMAND --help` says the same in your terminal.", ""]
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        children = getattr(command, "commands", {})
        for path, one in [(name, command), *((f"{name} {child}", children[child]) for child in children)]:
            lines += [f"## sitar {path}", "", (one.help or "").strip(), "", *_options(one)]
    return "\n".join(lines)


def _options(command: click.Command) -> list[str]:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    shown = [parameter for parameter in shown if parameter.name != "help"]
    if not shown:
        return []
    return ["| option | meaning |", "|---|---|", *(f"| {_name(one)} | {_says(one)} |" for one in shown), ""]


def _name(parameter: click.Parameter) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name or '').strip('{}').upper().removesuffix('...')}`"
    return ", ".join(f"`{name}`" for name in parameter.opts)


def _says(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    default = parameter.default
    plain = isinstance(default, (str, int, float, Path)) and not isinstance(default, bool) and str(default) != ""
    return f"{text} Default: `{default}`." if plain and "default" not in text else text


def _prose(markdown: str) -> str:
    return FENCED.sub("", markdown)


def _in_repository(target: str, page: str) -> str | None:
    """The path in the repository that a link of a page leads to; None: it leads elsewhere."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    here = posixpath.dirname(page.removeprefix(f"{OUTSIDE}/") if page.startswith(OUTSIDE) else f"docs/{page}")
    return posixpath.normpath(posixpath.join(here, target))


def _in_site(target: str) -> str:
    """The path in the site of a path in the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    inside = _file(target).relative_to(ROOT).as_posix()
    return f"{OUTSIDE}/{inside}"


def _file(target: str) -> Path:
    """A folder is shown by its README."""
    path = ROOT / target
    return path / "README.md" if path.is_dir() else path
