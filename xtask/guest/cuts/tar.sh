# An archive with times, modes and owners, extracted by root.
mkdir $WORK/tar
tar -C $WORK/tar -xf /kit/many.tar
