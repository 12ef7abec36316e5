# Does `work` on a mount that nobody has used before, and prints how long it took in microseconds, and the client's counters before and
# after. With WRITES the end of the mount counts too, as it takes to the server what the client still holds; of its RPCs nothing
# is counted, the counters go with the mount. `landfast mount` holds nothing any more when `landfast sync` ends, so that counts there.
mount_export
cd $MNT
if [ "$CLIENT" = mount ]; then
    mapfile -t before < <(counters)
    start=${EPOCHREALTIME/./}
    work
    [ -z "$WRITES" ] || landfast sync .
    end=${EPOCHREALTIME/./}
    mapfile -t after < <(counters)
    cd /
    unmount_export
else
    mapfile -t before </proc/self/mountstats
    start=${EPOCHREALTIME/./}
    work
    [ -z "$WRITES" ] || sync -f .
    mapfile -t after </proc/self/mountstats
    if [ -n "$WRITES" ]; then
        cd /
        umount $MNT
    fi
    end=${EPOCHREALTIME/./}
    cd /
    [ -n "$WRITES" ] || umount $MNT
fi
echo "@took $((end - start))"
echo @before
printf '%s\n' "${before[@]}"
echo @after
printf '%s\n' "${after[@]}"
