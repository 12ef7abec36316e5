# First client of version 3: only the dead client's own word ends its lock.
expect "the other client's write" two "$(cat $WORK/two/file)"
refused flock --nonblock $WORK/two/file true
