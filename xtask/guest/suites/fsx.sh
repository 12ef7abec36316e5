# fsx with each of its settings, printed as pjdfstest prints its cases.
for settings in $SELECTION; do
    name=${settings%:*} operations=${settings#*:}
    if timeout "$LIMIT" /root/suite/fsx -N "$operations" -S "$SEED" -f "/root/suite/$name.toml" -P /tmp "$MNT/fsx" >/tmp/fsx.out 2>&1; then
        echo "$name ok"
    else
        echo "$name FAILED"
        grep -v '^\[ERROR\] *[0-9]' /tmp/fsx.out | tail -n 12 | sed 's/^/\t/'
    fi
    rm -f "$MNT/fsx"
done
