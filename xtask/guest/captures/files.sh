# Extracts a few files, and prints what the client has counted since it was mounted. GNU tar makes a file without looking for it, and
# Linux's client then asks nobody; others look first, and so do we.
mount_export ",wsize=$WRITE_BYTES"
mkdir $WORK
for file in $FILES; do
    [ ! -e $WORK/$file ] || die "$file is there before it is made"
done
tar -C $WORK -xf $ARCHIVE
sync
cat /proc/self/mountstats
