#!/usr/bin/env bash
# netns_hosts.sh up [N] | down | kill I        (root; needs iproute2, openssh-server, util-linux)
#
# N ssh hosts without machines: network namespaces on one bridge, each with its own sshd, host
# key, hostname, PID namespace and private /tmp; all other files are this machine's.
#   STATE   folder of keys, configs and pids (required)
#   PREFIX  names of bridge and namespaces (default: csfl)      NET  first three octets
# Leaves in STATE: id_ed25519, known_hosts, inventory.yaml. `down` is safe at any time and ends
# only the sshds that `up` has started.
set -euo pipefail
: "${STATE:?folder for keys and pids}"
PREFIX=${PREFIX:-csfl}
NET=${NET:-198.18.90}
command=${1:-}
count=${2:-3}

started() { # PIDFILE: is it alive and ours? (pid and start time; a zombie is dead)
  local pid time fields
  [ -s "$1" ] && read -r pid time <"$1" || return 1
  fields=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || return 1
  # shellcheck disable=SC2086  # fields of /proc/PID/stat are words
  set -- $fields
  [ "${1:-Z}" != Z ] && [ "${20}" = "$time" ]
}

end_sshd() { # FOLDER: the whole PID namespace goes with its init, which is sshd
  local pid _ file=$1/pid
  started "$file" || { rm -f "$file"; return 0; }
  read -r pid _ <"$file"
  kill -9 "$pid" # unshare runs with --kill-child=KILL
  for _ in $(seq 100); do started "$file" || break; sleep 0.02; done
  rm -f "$file"
}

start_sshd() { # INDEX
  local name=$PREFIX$1 address=$NET.$((10 + $1))
  local folder=$STATE/$name
  mkdir -p "$folder/tmp"
  chmod 1777 "$folder/tmp"
  [ -s "$folder/key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$folder/key"
  cat >"$folder/sshd_config" <<EOF
ListenAddress $address
HostKey $folder/key
AuthorizedKeysFile $STATE/id_ed25519.pub
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
# bash as sshd's child reads ~/.bashrc, unless SHLVL says that it is not the first
SetEnv SHLVL=1
EOF
  started "$folder/pid" && return 0
  # shellcheck disable=SC2016  # the inner shell expands them
  ip netns exec "$name" setsid unshare --mount --uts --pid --fork --mount-proc \
    --kill-child=KILL --propagation private \
    sh -c 'hostname "$1"; case $3 in /tmp/*) mkdir -p "$2/tmp${3#/tmp}"; mount --bind "$3" "$2/tmp${3#/tmp}";; esac
           mount --rbind "$2/tmp" /tmp; exec /usr/sbin/sshd -D -e -f "$2/sshd_config"' \
    sh "$name" "$folder" "$STATE" </dev/null >"$folder/log" 2>&1 &
  sleep 0.01
  echo "$! $(sed 's/.*) //' "/proc/$!/stat" | cut -d' ' -f20)" >"$folder/pid"
}

add_host() { # INDEX
  local name=$PREFIX$1 address=$NET.$((10 + $1))
  [ -e "/run/netns/$name" ] || ip netns add "$name"
  if ! ip link show "v$name" >/dev/null 2>&1; then
    ip link add "v$name" type veth peer name eth0 netns "$name"
    ip link set "v$name" master "$PREFIX" up
    ip -n "$name" addr add "$address/24" dev eth0
    ip -n "$name" link set lo up
    ip -n "$name" link set eth0 up
  fi
  start_sshd "$1"
}

await() { # ADDRESS
  for _ in $(seq 250); do
    (exec 3<>"/dev/tcp/$1/22") 2>/dev/null && return 0
    sleep 0.02
  done
  echo "sshd on $1 does not answer" >&2
  return 1
}

up() {
  mkdir -p "$STATE" /run/sshd
  chmod 755 "$STATE"
  [ -s "$STATE/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -C "$PREFIX" -f "$STATE/id_ed25519"
  if ! ip link show "$PREFIX" >/dev/null 2>&1; then
    ip link add "$PREFIX" type bridge
    ip addr add "$NET.1/24" dev "$PREFIX"
  fi
  ip link set "$PREFIX" up
  # shellcheck disable=SC2004
  for i in $(seq "$count"); do add_host "$i"; done
  : >"$STATE/known_hosts"
  printf 'coldsnap: inventory/v1\nhosts:\n' >"$STATE/inventory.yaml"
  for i in $(seq "$count"); do
    await "$NET.$((10 + i))"
    echo "$NET.$((10 + i)) $(cut -d' ' -f1,2 "$STATE/$PREFIX$i/key.pub")" >>"$STATE/known_hosts"
    cat >>"$STATE/inventory.yaml" <<EOF
  $PREFIX$i:
    {connector: "@ssh", hostname: $NET.$((10 + i)), user: root, key: id_ed25519, known_hosts: known_hosts}
EOF
  done
}

down() {
  for folder in "$STATE/$PREFIX"[0-9]*; do
    [ -d "$folder" ] || continue
    end_sshd "$folder"
    ip link del "v${folder##*/}" 2>/dev/null || true
    ip netns del "${folder##*/}" 2>/dev/null || true
  done
  ip link del "$PREFIX" 2>/dev/null || true
}

case $command in
  up) up ;;
  down) down ;;
  kill) end_sshd "$STATE/$PREFIX$count" ;;
  start) start_sshd "$count" && await "$NET.$((10 + count))" ;;
  *) echo "usage: $0 up [N] | down | kill I | start I" >&2; exit 2 ;;
esac
