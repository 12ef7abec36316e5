# tar -x as root: owners, modes and times are restored.
mkdir $WORK/tree
tar -C $WORK/tree -xf $ARCHIVE
