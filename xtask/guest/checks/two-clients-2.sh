# Second client: sees the file, and is kept from the lock; changes what the first one has cached.
mount_export
expect "the other client's file" one "$(cat $WORK/two/file)"
refused flock --nonblock $WORK/two/file true
refused flock --nonblock --shared $WORK/two/file true
mv $WORK/two/moved $WORK/two/renamed
echo new >$WORK/two/new
