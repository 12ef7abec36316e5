# What the kernel has warned of since it was asked last and names NFS, but for a server that was away.
dmesg --read-clear --level emerg,alert,crit,err,warn | grep -i '\bnfs' | grep -v -e 'not responding, still trying$' -e ' OK$' || true
