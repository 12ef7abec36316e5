# A file below each of DEPTHS directories is opened and read ROUNDS times, each time by a client that has just come: with VERS a mount,
# without it Landfast's library.
for depth in $DEPTHS; do
    for ((round = 0; round < ROUNDS; round++)); do
        place=nfs://$SERVER:$PORT/
        [ -z "$VERS" ] || { mount_export; place=$MNT; }
        /root/landfast lab at nested-open "$place" --depth "$depth" --json >/run/round || die "depth $depth"
        [ -z "$VERS" ] || umount $MNT
        echo "@round $depth $(cat /run/round)"
    done
done
