# What the kernel has warned of since it was asked last and names NFS, but for a server that was away. It calls the lock of each owner lost that has a
# LOCK or LOCKU under way when an open is reclaimed; of a lock that it could not reclaim it says something else.
dmesg --read-clear --level emerg,alert,crit,err,warn | grep -i '\bnfs' |
    grep -v -e 'not responding, still trying$' -e ' OK$' -e ': lost [0-9]* locks$' || true
