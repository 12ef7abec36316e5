# Second client: changes each of them in its way, and then, by version 3, the others. None of that may take as long as a client waits that is
# told to come again later.
longest=0
count=0
soon() { # soon COMMAND...
    local began=$(date +%s%N)
    "$@"
    local took=$((($(date +%s%N) - began) / 1000000))
    [ $took -le $longest ] || longest=$took
    count=$((count + 1))
    [ $took -lt 4000 ] || die "$*: $took ms"
}
append() { echo second >>$1; }
content() { expect "$1" "$2" "$(cat $1)"; }
about() { expect "$1" "$2" "$(stat -c "$3" $1)"; }
changes() { # changes DIRECTORY
    cd $1
    soon content looked 'first looked'
    soon about shortened 16 %s
    soon append appended
    soon content opened 'first opened'
    soon chmod 640 opened
    soon mv renamed renamed-2
    echo 'second replaced' >new
    soon mv new replaced
    soon rm removed
    soon chmod 600 moded
    soon truncate -s 5 shortened
    soon ln linked linked-2
    soon flock --nonblock locked true
    soon about timed 981173106 %Y
    soon append timed
    cd /
}
changes $WORK/held-1
three=/mnt/three
mkdir -p $three
here=${WORK#$MNT}
(VERS=3 && MNT=$three && mount_export)
changes $three$here/held-2
umount $three
shown "$count operations on the other client's files, the longest $longest ms"
