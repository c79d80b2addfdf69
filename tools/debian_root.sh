# Debian roots: directories that hold programs which this project runs and the machine need not have. Each is made once
# under the cache directory and then reused; it is entered with bubblewrap. Sourced by scripts that define `say`, `die`
# (which ends the script) and `cache`.
# shellcheck shell=bash disable=SC2154

# debian_root_tools WHAT OTHERWISE: what making and entering a root takes. WHAT it is for; OTHERWISE: how to do without.
debian_root_tools() {
  local what=$1 otherwise=$2 missing=()
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
  command -v bwrap >/dev/null || missing+=(bubblewrap)
  [[ $(id -u) == 0 || -n $(command -v newuidmap) ]] || missing+=(uidmap)
  ((${#missing[@]} == 0)) && return
  command -v apt-get >/dev/null ||
    die "$what was not found, and this is no Debian machine on which it could be provided. $otherwise."
  [[ $(id -u) == 0 ]] ||
    die "these packages are needed to provide $what: ${missing[*]}. Run: sudo apt-get install ${missing[*]}   (or: $otherwise)"
  say "installing ${missing[*]} with apt-get"
  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"; } >"$cache/apt.log" 2>&1 ||
    die "apt-get could not install ${missing[*]}: $(tail -n 3 "$cache/apt.log"). Install them, or: $otherwise."
}

# The Debian mirror that this machine's own apt is configured with.
debian_mirror() {
  apt-get indextargets --format "\$(REPO_URI) \$(ORIGIN) \$(COMPONENT) \$(CREATED_BY)" 2>/dev/null |
    awk '$2 == "Debian" && $3 == "main" && $4 == "Packages" && $1 !~ /security/ { print $1; exit }'
}

# make_debian_root ROOT RELEASE PACKAGES WHAT COST FINISH: makes the directory ROOT with the packages of a Debian release,
# unless it is there. FINISH is a function that completes the tree in the directory that it is given.
make_debian_root() (
  local root=$1 release=$2 include=$3 what=$4 cost=$5 finish=$6 part=$1.part start=$SECONDS from
  [[ -d $root ]] && return
  umask 022 # actions of any user read this tree
  exec 9>"$cache/lock"
  flock -n 9 || { say "waiting for another process that is making a Debian root"; flock 9; }
  [[ -d $root ]] && return
  rm -rf "$cache"/debian-root-*.part # of interrupted runs: only the holder of the lock makes such a directory
  trap 'rm -rf "$part"' EXIT
  from=$(debian_mirror)
  [[ -n $from ]] || { [[ $(id -u) == 0 ]] && apt-get -qq update >&2 && from=$(debian_mirror); } || true
  [[ -n $from ]] || die "apt knows no Debian mirror on this machine. Run 'apt-get update' as root, then try again."
  say "making the Debian root that holds $what: once, $cost in $root"
  mkdir -p "$part"
  mmdebstrap --variant=apt --format=tar --include="$include" \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$release" - "$from" | tar -x -C "$part" --no-same-owner --exclude='./dev/*' ||
    die "mmdebstrap failed (see above): the root needs the packages $include of Debian $release from this machine's mirror."
  # What the host's files are bound over when the root is entered must exist in it.
  mkdir -p "$part/etc/xdg/pip"
  touch "$part"/etc/{resolv.conf,hosts,passwd,group,pip.conf}
  apt-config dump | grep -E '^Acquire::(http|https|Check-Date|Check-Valid-Until)' >"$part/etc/apt/apt.conf.d/90host" || true
  "$finish" "$part"
  mv -T "$part" "$root"
  say "made the Debian root in $((SECONDS - start)) s"
)

# enter_debian_root ROOT: sets the array `enter` to the bwrap command that enters a root. It has the root's /usr and
# /etc, and the machine's other directories under their own names, so that every path a person has typed means the same
# file inside. /proc, /sys and /dev are bound, not mounted afresh: with a fresh /proc the kernel refuses a sandbox
# inside (Bazel's linux-sandbox, a build farm's bubblewrap) its own.
enter_debian_root() {
  local root=$1 path
  enter=(bwrap --tmpfs / --ro-bind "$root/usr" /usr --ro-bind "$root/etc" /etc
    --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64
    --dev-bind /proc /proc --dev-bind /sys /sys --dev-bind /dev /dev)
  for path in /*; do
    case $path in
      /bin | /sbin | /lib* | /usr | /etc | /proc | /sys | /dev) ;;
      *) if [[ -L $path ]]; then enter+=(--symlink "$(readlink "$path")" "$path"); elif [[ -d $path ]]; then enter+=(--bind "$path" "$path"); fi ;;
    esac
  done
  for path in /etc/{resolv.conf,hosts,passwd,group,pip.conf,xdg/pip,ssl/certs/ca-certificates.crt}; do
    [[ -e $path ]] && enter+=(--ro-bind "$(readlink -f "$path")" "$path")
  done
  enter+=(--chdir "$PWD" --setenv PATH /usr/bin:/bin:/usr/sbin:/sbin
    --unsetenv LD_LIBRARY_PATH --unsetenv LD_PRELOAD --unsetenv PYTHONPATH --unsetenv PYTHONHOME)
}
