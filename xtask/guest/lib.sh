# Put in front of every check, after the settings of the run: SERVER, PORT (none: the port mapper knows it), EXPORT, VERS, CLIENT (linux,
# or mount: `landfast mount`); MOUNTPORT of a server that has another one for version 3's MOUNT, and no lock manager.
set -euo pipefail
MNT=/mnt/nfs                  # where the export is mounted
WORK=$MNT/check-$VERS         # where the checks of this version work
REFERENCE=/root/reference     # the archive, extracted on the guest's own disk
ARCHIVE=/dev/vdb              # the archive, a plain tar
export GIT_AUTHOR_NAME=guest GIT_AUTHOR_EMAIL=guest@localhost GIT_COMMITTER_NAME=guest GIT_COMMITTER_EMAIL=guest@localhost

die() { echo "FAILED: $*"; exit 1; }
shown() { echo "shown: $*"; } # a measurement, for the table
expect() { # expect WHAT WANTED GOT
    [ "$2" = "$3" ] || die "$1: wanted '$2', got '$3'"
}
refused() { # refused COMMAND...: it must fail
    if "$@" 2>/dev/null; then die "should have been refused: $*"; fi
}
landfast() { /root/bin/landfast "$@"; }
mount_export() { # mount_export [OPTION...]: more options, each with a comma in front
    local options="vers=$VERS"
    if [ "${CLIENT:-linux}" = mount ]; then
        [ -z "$PORT" ] || options+=",port=$PORT"
        [ -z "${MOUNTPORT:-}" ] || [ "$VERS" != 3 ] || options+=",mountport=$MOUNTPORT"
        landfast mount -o "$options$*,log=/run/landfast/mount.log" "$SERVER:$EXPORT" "$MNT"
        return
    fi
    [ -z "$PORT" ] || options+=",proto=tcp,port=$PORT"
    if [ "$VERS" = 3 ]; then
        # the guest's own lock manager needs both; landfast answers MOUNT on its one port
        pidof rpcbind >/dev/null || rpcbind
        pidof rpc.statd >/dev/null || rpc.statd
        [ -z "$PORT" ] || [ "$SERVER" = 127.0.0.1 ] || options+=",mountport=${MOUNTPORT:-$PORT},mountproto=tcp"
        [ -z "${MOUNTPORT:-}" ] || options+=",nolock"
    fi
    mount -t nfs -o "$options$*" "$SERVER:$EXPORT" "$MNT"
}
unmount_export() { # everything is on the server when it returns
    if [ "${CLIENT:-linux}" = mount ]; then landfast umount "$MNT"; else umount "$MNT"; fi
}
counters() { # the client's counters, in the form of /proc/self/mountstats
    if [ "${CLIENT:-linux}" = mount ]; then
        local rpcs
        rpcs=$(landfast status "$MNT" | sed -n 's/^rpcs: //p')
        printf 'device landfast mounted on %s with fstype nfs statvers=1.1\n\txprt:\ttcp 0 0 0 0 0 %s\n\tper-op statistics\n\tRPC: %s\n' \
            "$MNT" "$rpcs" "$rpcs"
    else
        cat /proc/self/mountstats
    fi
}
forget() { # empties the client's caches, so that what follows asks the server
    [ "${CLIENT:-linux}" != mount ] || landfast sync "$MNT"
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
list() { # type, mode, owner, links, time, size and target of everything below a directory
    (cd "$1" && find . -mindepth 1 \( -type d -printf '%y %m %U:%G %T@ %p\n' \) \
        -o -printf '%y %m %U:%G %n %T@ %s %p %l\n' | LC_ALL=C sort)
}
same_tree() { # same_tree WANTED GOT: contents, then everything else
    diff --recursive --no-dereference --brief "$1" "$2" || die "contents differ"
    diff <(list "$1") <(list "$2") >/tmp/differences || { head -20 /tmp/differences; die "attributes differ"; }
}
first_files() { # first_files N: names of some files of the reference
    (cd $REFERENCE && find . -type f | LC_ALL=C sort | head -n "$1" || true)
}
