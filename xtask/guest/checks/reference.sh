# The archive on the guest's own disk, which the others compare with; prints the number of files.
rm -rf $REFERENCE
mkdir $REFERENCE
tar -C $REFERENCE -xf $ARCHIVE
find $REFERENCE -type f | wc -l
