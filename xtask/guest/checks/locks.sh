# Whole-file and byte-range locks exclude each other, are given back, and end with their holder.
touch $WORK/lock
mkfifo /run/landfast/held /run/landfast/release
flock $WORK/lock sh -c 'echo yes >/run/landfast/held; read -r _ </run/landfast/release' &
holder=$!
read -r _ </run/landfast/held
refused flock --nonblock $WORK/lock true
refused flock --nonblock --shared $WORK/lock true
echo go >/run/landfast/release
wait $holder
flock --nonblock $WORK/lock true || die "the lock was not given back"
flock --nonblock --shared $WORK/lock flock --nonblock --shared $WORK/lock true || die "shared locks exclude each other"
python3 - $WORK/ranges <<'P'
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b"x" * 100)
fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
fcntl.lockf(fd, fcntl.LOCK_EX, 10, 20)
fcntl.lockf(fd, fcntl.LOCK_UN, 5, 3)        # splits the first range
def locked(start, length):
    child = os.fork()
    if child == 0:
        other = os.open(sys.argv[1], os.O_RDWR)
        try:
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
got = [locked(*r) for r in [(0, 3), (3, 5), (8, 2), (10, 10), (20, 10), (25, 50), (30, 0)]]
want = [True, False, True, False, True, True, False]
assert got == want, (got, want)
os.close(fd)                                # gives all back
fd = os.open(sys.argv[1], os.O_RDWR)
assert not locked(0, 0)
P
rm /run/landfast/held /run/landfast/release $WORK/lock $WORK/ranges
