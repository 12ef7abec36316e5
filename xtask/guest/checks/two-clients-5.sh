# First client: what the second one wrote is there; its lock ends with its lease, or by what it says after its restart.
expect "the other client's write" two "$(cat $WORK/two/file)"
flock --timeout 120 $WORK/two/file true || die "the lock of a dead client does not end"
rm -rf $WORK/two
