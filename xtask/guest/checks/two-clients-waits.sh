# First client of version 3: waits for the lock that the second one holds, until the script below says that it has it.
cat >/run/landfast/two-wait.py <<'P'
import fcntl, sys, time
file = open(sys.argv[1], "r+")
start = time.monotonic()
fcntl.flock(file, fcntl.LOCK_EX)
print(int(time.monotonic() - start), flush=True)
P
rm -f /run/landfast/two-waited
python3 /run/landfast/two-wait.py $WORK/two/file >/run/landfast/two-waited 2>&1 </dev/null &
waiter=$!
# Only once the server has said that it has to wait is it in one of these functions.
for _ in $(seq 300); do
    [ -s /run/landfast/two-waited ] && break
    grep -qsE "nlmclnt_(block|wait)" /proc/$waiter/stack && exit
    sleep 0.1
done
die "the lock is not waited for: $(cat /run/landfast/two-waited)"
