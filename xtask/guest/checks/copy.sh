# cp -a within the mount.
cp -a $WORK/tree $WORK/copy
