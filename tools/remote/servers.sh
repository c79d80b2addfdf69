# What the servers' scripts share: the Debian root that holds nginx, buildbox, PostgreSQL and BuildGrid. Sourced.
# shellcheck shell=bash
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
name=$(basename "$0")
cache=${SMWHEEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/smwheel}

say() { printf '%s: %s\n' "$name" "$*" >&2; }
die() { say "$*"; exit 2; }

# shellcheck source=tools/debian_root.sh
. "$here/tools/debian_root.sh"

release=sid # the only Debian release that carries buildbox
packages=nginx-light,buildbox,bubblewrap,postgresql,python3,python3-pip,python3-venv,ca-certificates
recipe=1 # raise it when the way the root is made changes
lock=$here/tools/remote/buildgrid.txt
key=$({ printf '%s' "$release $packages $recipe" && cat "$lock"; } | sha256sum | cut -c1-12)
root=$cache/debian-root-$key

# For nginx, whose workers otherwise become another user than the one that the store belongs to.
# shellcheck disable=SC2034 # http-cache and casd use it
user="$(id -un) $(id -gn)"

# What actions see of the machine that runs them: the root's programs and libraries. Nothing of /etc but Debian's links
# between programs, no network, no environment.
runner=()
for pair in /usr:/usr /usr/bin:/bin /usr/lib:/lib /usr/lib64:/lib64 /etc/alternatives:/etc/alternatives; do
  runner+=("--runner-arg=--ro-bind-mount=$pair")
done

finish() {
  local part=$1
  enter_debian_root "$part"
  # shellcheck disable=SC2016 # the inner shell expands it
  "${enter[@]}" --bind "$part/usr" /usr bash -ec '
    python3 -m venv /usr/local/buildgrid
    /usr/local/buildgrid/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: -r "$1"
  ' bash "$lock" >"$cache/buildgrid.log" 2>&1 || die "BuildGrid could not be installed: $(tail -n 5 "$cache/buildgrid.log")"
}

# in_root ARGUMENTS: runs this script again inside the root, in a PID namespace of its own whose end is the end of every
# process in it. So nothing outlives this script, however it ends: not the helpers that buildbox starts, either. The
# stores are written so that they survive it, by rename. Its /proc must be that namespace's: bubblewrap, which runs the
# actions, looks itself up there by number.
in_root() {
  [[ -z ${SMWHEEL_SERVERS:-} ]] || return 0
  mkdir -p "$cache"
  debian_root_tools "the servers" "install nginx, buildbox, PostgreSQL and BuildGrid yourself"
  make_debian_root "$root" "$release" "$packages" "the servers" "about 1 minute, 0.6 GB" finish
  enter_debian_root "$root"
  local namespace=(unshare --pid --fork --kill-child --mount-proc)
  [[ $(id -u) == 0 ]] || namespace+=(--user --map-current-user)
  setpriv --pdeathsig KILL "${namespace[@]}" "${enter[@]}" --setenv SMWHEEL_SERVERS 1 "$here/tools/remote/$name" "$@" &
  local server=$!
  trap 'kill -KILL "$server"; exit 0' INT TERM
  wait "$server"
  exit
}

# options NAME=DEFAULT ... -- ARGUMENTS: sets the variable of each option `--name VALUE` that the script has.
options() {
  local known=() option value
  while [[ $1 != -- ]]; do
    known+=("${1%%=*}")
    declare -g "${1%%=*}=${1#*=}"
    shift
  done
  shift
  while (($#)); do
    option=${1#--} value=${2:-}
    option=${option//-/_}
    [[ $1 == --* && " ${known[*]} " == *" $option "* && $# -ge 2 ]] ||
      die "unknown or incomplete option '$1'. Options: $(printf -- '--%s VALUE ' "${known[@]//_/-}")"
    declare -g "$option=$value"
    shift 2
  done
}

# fill TEMPLATE NAME=VALUE ...: prints a file with each @NAME@ replaced.
fill() {
  local template=$1 words=()
  shift
  for pair in "$@"; do words+=(-e "s|@${pair%%=*}@|${pair#*=}|g"); done
  sed "${words[@]}" "$template"
}

# ready SECONDS PORT ... : waits until something listens on each port of this machine; ends the script if it does not.
ready() {
  local deadline=$((SECONDS + $1)) port
  shift
  for port in "$@"; do
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
      ((SECONDS < deadline)) || die "nothing listens on port $port; see the messages above"
      kill -0 "$!" 2>/dev/null || die "the server for port $port ended; see the messages above"
      sleep 0.05
    done
  done
}
