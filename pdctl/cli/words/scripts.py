"""What a shell is told once, so that it asks answer.py at every Tab."""

from __future__ import annotations

from string import Template

_BASH = """\
_pdctl_words() {
  local IFS=$$'\\n'
  COMPREPLY=($$($ask bash "$$COMP_CWORD" "$${COMP_WORDS[@]}" 2>/dev/null))
  if [[ "$${COMPREPLY[0]-}" == :files ]]; then
    COMPREPLY=()
    compopt -o default 2>/dev/null
  elif [[ "$${#COMPREPLY[@]}" == 1 && "$${COMPREPLY[0]}" == *= ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -F _pdctl_words pdctl
"""

_ZSH = """\
#compdef pdctl
_pdctl_words() {
  local -a lines
  lines=("$${(@f)$$($ask zsh "$$((CURRENT - 1))" "$${words[@]}" 2>/dev/null)}")
  if [[ "$${lines[1]}" == :files ]]; then
    _files
  elif [[ "$${lines[1]}" == *= ]]; then
    _describe pdctl lines -S ''
  elif [[ -n "$${lines[1]}" ]]; then
    _describe pdctl lines
  fi
}
(( $$+functions[compdef] )) || { autoload -Uz compinit && compinit; }
compdef _pdctl_words pdctl
"""

_FISH = """\
function __pdctl_words
  set -l words (commandline -opc) (commandline -ct)
  set -l lines ($ask fish (math (count $$words) - 1) $$words 2>/dev/null)
  if test "$$lines[1]" = :files
    __fish_complete_path (commandline -ct)
  else
    printf '%s\\n' $$lines
  end
end
complete -c pdctl -f -a '(__pdctl_words)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str, ask: str) -> str:
    """`ask` is the command that runs answer.py, quoted for a shell."""
    return Template(SCRIPTS[shell]).substitute(ask=ask)
