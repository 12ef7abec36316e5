# Four works at once on four connections: written, read back, listed, renamed, linked, removed. Then what the client has counted.
mount_export ,nconnect=4
mkdir $WORK
make() {
    mkdir $WORK/$1
    cp -r /etc $WORK/$1/etc
    dd if=/dev/zero of=$WORK/$1/large bs=1M count=4 status=none
    ln -s etc $WORK/$1/link
    mv $WORK/$1/etc $WORK/$1/moved
    ln $WORK/$1/large $WORK/$1/moved/large
}
look() {
    diff --recursive --no-dereference --brief --exclude=large /etc $WORK/$1/moved || die "contents differ"
    ls -lR $WORK/$1 >/dev/null
    rm -r $WORK/$1/moved
}
at_once() {
    local pids='' pid part
    for part in 1 2 3 4; do
        "$@" $part &
        pids+=" $!"
    done
    for pid in $pids; do wait $pid; done
}
at_once make
forget
at_once look
sync
cat /proc/self/mountstats
