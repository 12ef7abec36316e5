# Four processes change one SQLite database, each under its lock and with a rollback journal. A change that SQLite has said to be committed is
# written down on the guest's own disk at once: ACKNOWLEDGED has a line for each, the worker and the change.
mkdir $WORK/sqlite
rm -f $ACKNOWLEDGED
cat >/run/landfast/contend.py <<'P'
import os, sqlite3, sys
path, acknowledged, worker, changes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
db = sqlite3.connect(path, timeout=600, isolation_level=None)
assert db.execute("pragma journal_mode").fetchone()[0] == "delete"
assert db.execute("pragma synchronous").fetchone()[0] == 2 # full
noted = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for change in range(changes):
    db.execute("begin immediate")
    total = db.execute("select total from sums").fetchone()[0]
    db.execute("update sums set total = ?", (total + 1,))
    db.execute("insert into changes values (?, ?)", (worker, change))
    db.execute("commit")
    os.write(noted, f"{worker} {change}\n".encode())
P
sqlite3 $WORK/sqlite/db 'create table sums (total integer); insert into sums values (0);
    create table changes (worker integer, change integer, primary key (worker, change))'
workers=()
for worker in 1 2 3 4; do
    python3 /run/landfast/contend.py $WORK/sqlite/db $ACKNOWLEDGED $worker $CHANGES &
    workers+=($!)
done
for worker in "${workers[@]}"; do wait "$worker"; done
