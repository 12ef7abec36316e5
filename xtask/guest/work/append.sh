# One of two clients (CLIENT): appends lines to two files, to one under flock, to the other under fcntl's locks.
cat >/run/landfast/append.py <<'P'
import fcntl, os, sys
directory, client, lines = sys.argv[1], sys.argv[2], int(sys.argv[3])
for line in range(lines):
    for name, lock, unlock in (
        ("flock", lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), lambda fd: fcntl.flock(fd, fcntl.LOCK_UN)),
        ("fcntl", lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX), lambda fd: fcntl.lockf(fd, fcntl.LOCK_UN)),
    ):
        # Opened each time, or kept open: a lock brings the other's changes in both cases.
        fd = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
        lock(fd)
        os.lseek(fd, 0, os.SEEK_END)
        os.write(fd, f"{client} {line} {'x' * (line % 50)}\n".encode())
        unlock(fd)
        os.close(fd)
P
mkdir -p $WORK/append
python3 /run/landfast/append.py $WORK/append $CLIENT 40
