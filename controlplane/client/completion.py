"""Command `completion`: print a script with which a shell completes commands, options and choices."""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping

from controlplane.client.output import Output

SHELLS = ("bash", "zsh")
BASH = """_{function}() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" commands={commands} command="" one
  for one in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " $commands " in *" $one "*) command="$one"; break ;; esac
  done
  case "$command $before" in
{choices}
  esac
  case "$command" in
{options}
    *) COMPREPLY=($(compgen -W "$commands" -- "$word")) ;;
  esac
}}
complete -o default -F _{function} {program}
"""
ZSH = "autoload -Uz bashcompinit && bashcompinit\n"


def print_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell. zsh runs the script of bash."""
    commands = dict(commands_of(parser))
    options = {name: sorted(words_of(one)) for name, one in commands.items()}
    choices = {
        f"{name} {option}": [str(choice) for choice in action.choices]
        for name, one in commands.items()
        for action in one._actions
        if action.choices
        for option in (action.option_strings or [name])
    }
    script = BASH.format(
        function=parser.prog.replace("-", "_").replace(" ", "_").replace(".", "_"),
        program=shlex.quote(parser.prog),
        commands=shlex.quote(" ".join(sorted(commands))),
        options="\n".join(cases(options)),
        choices="\n".join(f"{line.replace(' ;;', '; return ;;')}" for line in cases(choices)),
    )
    return f"{ZSH}{script}" if shell == "zsh" else script


def commands_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def words_of(command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a command, and the choices of its arguments."""
    for action in command._actions:
        yield from action.option_strings
        if not action.option_strings:
            yield from map(str, action.choices or ())


def cases(words: Mapping[str, list[str]]) -> Iterator[str]:
    for name, each in words.items():
        yield f'    {shlex.quote(name)}) COMPREPLY=($(compgen -W {shlex.quote(" ".join(each))} -- "$word")) ;;'


def run(client: object, given: Namespace, out: Output) -> int:
    """Print the script of the shell in `given.shell`."""
    from controlplane.client.parser import PROGRAM, build_parser  # it lists this command

    out.line(print_script(build_parser(PROGRAM), given.shell).rstrip("\n"))
    return 0
