# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone complete``: the completion for bash.

cliff's own completion knows neither the options in front of a noun nor the
values of options, and offers files in place of a volume.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator

from cliff import command

from cinder_localclone.cmd import base

#: Placeholders of options with a path.
PATHS = 'PATH', 'FILE', 'LOG_FILE'
_SCRIPT = '''\
# Completion for bash, made by "cinder-localclone complete"

# Set the words after a noun; the options of a command, and those with a value.
_cinder_localclone_after()
{
  next='' options='' valued=''
  case "$1" in
%(commands)s
    *) return 1 ;;
  esac
}

_cinder_localclone()
{
  local cur=${COMP_WORDS[COMP_CWORD]} prev='' noun='' word i
  local next='' options='' valued='' all='%(all)s'
  local with_value=' %(valued)s '
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '=' || $noun$word == help ]]; then
      continue
    fi
    if [[ "$with_value$valued " == *" $prev "* && -n $prev ]]; then
      prev=''
      continue
    fi
    prev=$word
    if [[ $word != -* ]]; then
      if _cinder_localclone_after "${noun:+$noun }$word"; then
        noun="${noun:+$noun }$word"
      else
        _cinder_localclone_after "$noun"
      fi
    fi
  done
  if [[ $cur == '=' ]]; then
    cur=''
  fi
  if [[ "$with_value$valued " == *" $prev "* && -n $prev ]]; then
    case "$prev" in
%(values)s
    esac
    return
  fi
  _cinder_localclone_after "$noun"
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options $all" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$next" -- "$cur"))
  fi
}
complete -F _cinder_localclone cinder-localclone
'''


def options_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a parser."""
    return [action for action in parser._actions if action.option_strings]


def script(all_options: Iterable[argparse.Action],
           commands: dict[str, list[argparse.Action]]) -> str:
    """Return the completion. Pure.

    :param all_options: the options in front of a noun
    :param commands: the options of each command, by its name
    """
    everywhere = list(all_options)
    actions = [*everywhere, *(each for found in commands.values()
                              for each in found)]
    return _SCRIPT % {
        'all': ' '.join(_strings(everywhere)),
        'commands': '\n'.join(_cases(commands)),
        'values': '\n'.join(_values(actions)),
        'valued': ' '.join(_with_value(everywhere))}


def _strings(actions: Iterable[argparse.Action]) -> list[str]:
    """Return the options' words, each once."""
    return list(dict.fromkeys(
        word for action in actions for word in action.option_strings))


def _with_value(actions: Iterable[argparse.Action]) -> list[str]:
    return _strings(action for action in actions if action.nargs != 0)


def _cases(commands: dict[str, list[argparse.Action]]) -> Iterator[str]:
    words: dict[str, set[str]] = {}
    for name in commands:
        *before, last = name.split()
        while True:
            words.setdefault(' '.join(before), set()).add(last)
            if not before:
                break
            *before, last = before
    for noun in sorted(words):
        yield "    '%s') next='%s' ;;" % (noun, ' '.join(sorted(words[noun])))
    for name in sorted(commands):
        yield "    '%s') options='%s'\n      valued='%s' ;;" % (
            name, ' '.join(_strings(commands[name])),
            ' '.join(_with_value(commands[name])))


def _values(actions: Iterable[argparse.Action]) -> Iterator[str]:
    """Yield the branches for options with choices, and with a path."""
    choices: dict[str, tuple[str, ...]] = {}
    paths = []
    for action in actions:
        for word in action.option_strings:
            if action.choices:
                choices[word] = tuple(map(str, action.choices))
            elif (action.metavar or action.dest.upper()) in PATHS:
                paths.append(word)
    for word, found in choices.items():
        yield '      %s) COMPREPLY=($(compgen -W \'%s\' -- "$cur")) ;;' % (
            word, ' '.join(found))
    yield '      %s) compopt -o filenames 2>/dev/null\n        COMPREPLY=(' \
        '$(compgen -f -- "$cur")) ;;' % '|'.join(dict.fromkeys(paths))


class Complete(base.Words, command.Command):
    """Print the completion of this command, for bash."""

    example = 'complete > /etc/bash_completion.d/cinder-localclone'
    takes_names = False

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the script."""
        commands = {}
        for name, _found in self.app.command_manager:
            kind, _name, _rest = self.app.command_manager.find_command(
                name.split())
            commands[name] = options_of(kind(self.app, None).get_parser(name))
        self.app.stdout.write(script(options_of(self.app.parser), commands))
