# Makes the guest an NFS server, the kernel's, of the filesystem FS on its scratch disk, with the export options in OPTIONS.
set -euo pipefail
modprobe -a nfsd "$FS"
mkdir -p /srv/export
mount -t "$FS" /dev/vdb /srv/export
mount -t nfsd nfsd /proc/fs/nfsd 2>/dev/null || true
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
# The lock manager of NFSv3 has a grace period of its own, 50 s by default, in which nfsd gives no delegations either: 3 s here.
echo 3 >/proc/sys/fs/nfs/nlm_timeout
echo 1 >/proc/sys/fs/nfs/nlm_grace_period
echo "/srv/export *(rw,insecure,no_root_squash,no_subtree_check,fsid=0,$OPTIONS)" >/etc/exports
exportfs -ra
sed -i 's/^manage-gids=y/manage-gids=n/' /etc/nfs.conf # believe the client's groups
if [ -e /proc/fs/nfsd/nfsv4recoverydir ]; then # where this kernel notes which clients may reclaim
    mkdir -p /var/lib/nfs/v4recovery
else # newer ones leave that to a daemon
    mkdir -p /run/rpc_pipefs /var/lib/nfs/nfsdcld
    mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
    nfsdcld
fi
rpcbind
rpc.statd
rpc.mountd
rpc.nfsd --nfs-version 3 --tcp --no-udp 8
# What clients were there before the cut stood on a disk that is thrown away: nobody can reclaim anything.
# Newer kernels have no grace period where nobody can reclaim, and refuse to end what has ended; others end it a little later.
over() { [ "$(cat /proc/fs/nfsd/v4_end_grace)" = Y ]; }
over || echo Y >/proc/fs/nfsd/v4_end_grace
until over; do sleep 0.05; done
