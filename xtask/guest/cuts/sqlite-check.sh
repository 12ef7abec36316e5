# On a mount that has seen nothing: the database is whole, every change is there once, and nothing is left beside it.
expect "integrity" ok "$(sqlite3 $WORK/sqlite/db 'pragma integrity_check')"
expect "total and changes" "$((4 * CHANGES)) $((4 * CHANGES))" \
    "$(sqlite3 -separator ' ' $WORK/sqlite/db 'select total, (select count(*) from changes) from sums')"
expect "acknowledged changes" $((4 * CHANGES)) "$(sort -u $ACKNOWLEDGED | wc -l)"
expect "files" db "$(ls $WORK/sqlite)"
