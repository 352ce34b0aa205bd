"""Help at 80 columns: every line fits, no word is cut, and what is shown is what the commands take."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from fastload.cli import main as main_module
from fastload.cli.help import command_help, first_sentence, parameters
from fastload.cli.main import COMMANDS, GROUPS


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command line that shows help. Returns what it prints."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fastload", *arguments])
        with pytest.raises(SystemExit) as ended:
            main_module.main()
        printed = capsys.readouterr()
        assert (ended.value.code, printed.err) == (0, "")
        return printed.out

    return call


def words_of(text: str) -> set[str]:
    return set(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help_fits_80_columns(shown: Any, name: str) -> None:
    """No line is wider, each word is one of the texts it is made from, and each argument and option is
    there in one piece."""
    text = shown(name, "--help")
    assert text == shown(name, "-h")
    assert max(map(len, text.splitlines())) <= 80
    command = COMMANDS[name]
    known = words_of(inspect.getdoc(command) or "") | words_of(
        "Usage: fastload Arguments: Options: Show this text and exit. [OPTIONS]"
    )
    known |= {name, "-h,", "--help"}
    for each in parameters(command):
        known |= words_of(f"{each.label} {each.text}") | words_of(
            each.note.replace("\N{NO-BREAK SPACE}", " ")
        )
        assert any(each.label in line for line in text.splitlines()), each.label
    assert words_of(text) <= known, words_of(text) - known
    assert "…" not in text


def test_the_programs_help_fits_80_columns(shown: Any) -> None:
    """Every command is in one group, with its first sentence; -h, --help and no argument show the same."""
    text = shown("--help")
    assert text == shown("-h")
    assert max(map(len, text.splitlines())) <= 80
    assert [name for name in GROUPS if f"{name}:\n" not in text] == []
    for name, command in COMMANDS.items():
        assert len(re.findall(rf"^  {name}  ", text, re.MULTILINE)) == 1
        assert words_of(first_sentence(inspect.getdoc(command) or "")) <= words_of(text)
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))


def test_a_narrow_terminal_gets_narrow_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 50 columns lines are as wide as that, but for names that are longer; a wide terminal gets 80."""
    monkeypatch.setenv("COLUMNS", "50")
    long = [line for line in command_help("index", COMMANDS["index"]).splitlines() if len(line) > 50]
    assert long == []
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, command_help("pack", COMMANDS["pack"]).splitlines())) <= 80


def test_a_dataset_that_is_read_is_called_dataset() -> None:
    """OUT and INDEX are what a command makes."""
    arguments = {
        (name, each.names[0])
        for name, command in COMMANDS.items()
        for each in parameters(command)
        if each.argument
    }
    makers = {name for name, shown in arguments if shown in ("OUT", "INDEX")}
    assert makers == {"pack", "attach", "pull", "convert"}
    assert {name for name, shown in arguments if "DATASET" in shown} == (
        set(COMMANDS) - makers | {"convert"}
    ) - {"run", "cache"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    """The program answers what a shell's completion asks."""
    asked = {
        "bash": {"COMP_WORDS": "fastload ve", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "fastload ve"},
        "fish": {"_TYPER_COMPLETE_ARGS": "fastload ve", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = subprocess.run(
        [sys.executable, "-c", "from fastload.cli.main import main; main()"],
        env={**os.environ, "_FASTLOAD_COMPLETE": f"complete_{shell}", **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "verify" in done.stdout, done.stderr
    assert "unpack" not in done.stdout
