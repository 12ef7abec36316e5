# Standard input is a tar of the database and its journal as the server has them after a power cut, before a client has reached it again: SQLite
# rolls back what was under way, and every change that it had acknowledged is there.
copy=$(mktemp -d /run/landfast/copy.XXXXXX)
tar -C $copy -xf -
touch $ACKNOWLEDGED
python3 - $copy/db $ACKNOWLEDGED <<'P'
import sqlite3, sys
path, acknowledged = sys.argv[1], sys.argv[2]
db = sqlite3.connect(path)
whole = db.execute("pragma integrity_check").fetchone()[0]
assert whole == "ok", f"integrity: {whole}"
tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
there = set(db.execute("select worker, change from changes")) if "changes" in tables else set()
told = {tuple(map(int, line.split())) for line in open(acknowledged)}
assert told <= there, f"acknowledged and lost: {sorted(told - there)}"
total = db.execute("select total from sums").fetchone()[0] if there else 0
assert total == len(there), f"the counter is {total}, the changes are {len(there)}"
P
rm -r $copy
