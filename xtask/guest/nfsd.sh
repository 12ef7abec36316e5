# Put after the scripts that make a guest an NFS server, the kernel's, of /srv/export, once they have mounted it and written /etc/exports.
exportfs -ra
sed -i 's/^manage-gids=y/manage-gids=n/' /etc/nfs.conf # believe the client's groups, as landfast does
if [ -e /proc/fs/nfsd/nfsv4recoverydir ]; then # where this kernel notes which clients may reclaim
    mkdir -p /var/lib/nfs/v4recovery
else # newer ones leave that to a daemon
    mkdir -p /run/rpc_pipefs /var/lib/nfs/nfsdcld
    mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
    nfsdcld
fi
rpcbind # for NFSv3: where mountd, statd and the lock manager are
rpc.statd
rpc.mountd
rpc.nfsd --nfs-version 3 --tcp --no-udp 8
# Newer kernels have no grace period where nobody can reclaim, and refuse to end what has ended; others end it a little later.
over() { [ "$(cat /proc/fs/nfsd/v4_end_grace)" = Y ]; }
over || echo Y >/proc/fs/nfsd/v4_end_grace
until over; do sleep 0.05; done
