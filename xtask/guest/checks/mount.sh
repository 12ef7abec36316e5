# The export is mounted with the version that was asked for, and has room.
mount_export
grep -E " $MNT nfs4? " /proc/mounts | grep -q "vers=$VERS," || die "mounted otherwise: $(grep " $MNT " /proc/mounts)"
[ "$(stat -f -c %b $MNT)" -gt 0 ] || die "no space is reported"
[ "$(stat -f -c %c $MNT)" -gt 0 ] || die "no files are reported"
if [ -z "$PORT" ]; then
    showmount -e --no-headers "$SERVER" | grep -q "^$EXPORT \+\*$" || die "showmount: $(showmount -e "$SERVER" 2>&1)"
fi
mkdir $WORK
