# SQLite with its own locks and a rollback journal: four processes change one database, and no change is lost.
mkdir $WORK/sqlite
cat >/run/landfast/contend.py <<'P'
import sqlite3, sys
path, worker, changes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
db = sqlite3.connect(path, timeout=300, isolation_level=None)
assert db.execute("pragma journal_mode").fetchone()[0] == "delete"
for change in range(changes):
    db.execute("begin immediate")
    total = db.execute("select total from sums").fetchone()[0]
    db.execute("update sums set total = ?", (total + 1,))
    db.execute("insert into changes values (?, ?)", (worker, change))
    db.execute("commit")
P
sqlite3 $WORK/sqlite/db 'create table sums (total integer); insert into sums values (0);
    create table changes (worker integer, change integer, primary key (worker, change))'
workers=()
for worker in 1 2 3 4; do
    python3 /run/landfast/contend.py $WORK/sqlite/db $worker 12 &
    workers+=($!)
done
for worker in "${workers[@]}"; do wait "$worker"; done
forget
expect "integrity" ok "$(sqlite3 $WORK/sqlite/db 'pragma integrity_check')"
expect "changes" "48 48" "$(sqlite3 -separator ' ' $WORK/sqlite/db 'select total, (select count(*) from changes) from sums')"
expect "files" db "$(ls $WORK/sqlite)"
rm -r $WORK/sqlite
