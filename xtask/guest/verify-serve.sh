# Makes the guest an NFS server, the kernel's, of the filesystem FS on its scratch disk, with the export options in OPTIONS. What clients
# were there before the cut stood on a disk that is thrown away: nobody can reclaim anything.
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
