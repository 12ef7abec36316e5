# rm -rf leaves nothing.
rm -rf $WORK/copy
