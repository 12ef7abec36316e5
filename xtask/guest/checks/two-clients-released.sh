# Second client of version 3: the holder is killed, which gives the lock back.
pkill -x sleep
