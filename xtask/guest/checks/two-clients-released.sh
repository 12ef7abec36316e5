# Second client of version 3: the holder is killed, which gives the lock back. No lease ends it later.
pkill -x sleep
flock --timeout 60 $WORK/two/file true || die "the lock did not end with its holder"
